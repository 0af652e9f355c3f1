"""Windows that the last forecast opens later: by job and node, to the end of the rollout.

A forecast knows when each chunk trains (`Estimate.chunks`). Chunks that follow each other without a gap on one node are
one window, and the members of a gang on one node are one window with several workers.
"""

from collections.abc import Iterator

from tranche.model import PlannedWindow, format_chunks
from tranche.planner.forecast.chunk_windows import PlannerView
from tranche.planner.forecast.estimates import Estimate
from tranche.planner.forecast.rollout import PlannedChunk
from tranche.planner.forecast.steps import Steps
from tranche.state.job import JobState


def planned_windows(planner: PlannerView, most: int) -> Steps[list[PlannedWindow]]:
    """Return the first `most` windows of all jobs by start, computed in one step per job.

    Under a binding policy there are none, because its forecast is by chunk queue.

    Args:
        planner: Planner with a forecast; it is not changed.
        most: Maximum number of windows.
    """
    found: list[PlannedWindow] = []
    for key, estimate in list(planner.estimates.items()):
        state = planner.context.cluster.jobs.get(key)
        if state is not None and state.active:
            found += _windows_of(state, estimate)
            yield
    return sorted(found, key=lambda one: (one.start, one.job, one.node))[:most]


def _windows_of(state: JobState, estimate: Estimate) -> Iterator[PlannedWindow]:
    ahead = {chunk: one for chunk, one in estimate.chunks.items() if not _is_assigned(state, chunk)}
    for chunks in _gangs(ahead) if state.job.is_gang else _sequences(ahead):
        first, end = ahead[chunks[0]], ahead[chunks[-1]].end
        end = estimate.completion if end is None else end
        workers = len(chunks) if state.job.is_gang else 1
        yield PlannedWindow(state.job.key, first.site, first.node, workers, format_chunks(chunks), first.start, end)


def _is_assigned(state: JobState, chunk: int) -> bool:
    """Return whether the chunk is done, or in a window that is open."""
    run = state.chunk_runs.get(chunk)
    return chunk in state.done or (run is not None and not run.closing)


def _gangs(ahead: dict[int, PlannedChunk]) -> list[list[int]]:
    """Return the members by node."""
    found: dict[tuple[str, str], list[int]] = {}
    for member, one in ahead.items():
        found.setdefault((one.site, one.node), []).append(member)
    return list(found.values())


def _sequences(ahead: dict[int, PlannedChunk]) -> list[list[int]]:
    """Return the chunks that follow each other on one node."""
    found: list[list[int]] = []
    ends: dict[tuple[str, str, float | None], list[list[int]]] = {}
    for chunk, one in sorted(ahead.items(), key=lambda item: (item[1].start, item[0])):
        before = ends.get((one.site, one.node, one.start))
        sequence = before.pop() if before else []
        if not sequence:
            found.append(sequence)
        sequence.append(chunk)
        ends.setdefault((one.site, one.node, one.end), []).append(sequence)
    return found
