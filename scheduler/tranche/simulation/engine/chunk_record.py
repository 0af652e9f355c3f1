"""Executed windows of chunks in a run, next to their planned windows at dispatch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tranche.model import ChunkState, ChunkWindow, ExecutedWindow, Window
from tranche.planner import Planner
from tranche.planner.forecast.chunk_windows import chunk_windows
from tranche.state.job import JobState
from tranche.state.window import SlotBinding

Stretch = tuple[int, float, float, bool]
"""Chunk, start and end of its training by one worker, and whether it was complete at the end."""


def stretches(
    window: Window, begun: Mapping[int, float], total: int, per_batch: float, starts: float, now: float
) -> Iterator[Stretch]:
    """Yield the training periods of a worker until now: its chunks one after the other, as far as it has progressed.

    Args:
        window: Window of the worker.
        begun: Mini-batches of each chunk that had been trained before.
        total: Mini-batches of a chunk.
        per_batch: Seconds of one mini-batch.
        starts: When the worker began with the first chunk.
        now: When the worker stopped.
    """
    for chunk in window.chunks:
        end = starts + (total - begun[chunk]) * per_batch
        through = end <= now or end - now < 1e-9 * max(1.0, abs(now))
        if starts < now:
            yield chunk, starts, end if through else now, through
        if not through:
            return
        starts = end


@dataclass(slots=True, eq=False)
class ChunkRecords:
    """Collector of the windows of all chunks of a run."""

    _planned: dict[str, dict[int, ChunkWindow]] = field(default_factory=dict)
    """Planned windows at dispatch, by job."""
    _executed: dict[str, dict[int, list[ExecutedWindow]]] = field(default_factory=dict)
    _homes: dict[tuple[str, int], SlotBinding] = field(default_factory=dict)
    """Bindings of open windows, by job and attempt."""

    def opened(self, state: JobState, window: Window) -> None:
        """Record that a worker starts; the planned windows of its chunks are known by then."""
        key = state.job.key
        self._homes[key, window.attempt] = state.runs[window.attempt].home
        rows = self._planned.setdefault(key, {})
        for chunk in window.chunks:
            entry = state.entries.get(chunk)
            row = ChunkWindow(chunk, ChunkState.DONE)
            if entry is not None:
                row = replace(row, cost=entry.cost, planned_start=entry.planned_start, planned_end=entry.planned_end)
            rows[chunk] = row

    def ended(self, key: str, window: Window, trained: Iterable[Stretch], outcome: str) -> None:
        """Record that a worker ended; what it trained is discarded if its node was lost."""
        home = self._homes.pop((key, window.attempt))
        executed = self._executed.setdefault(key, {})
        for chunk, start, end, through in trained:
            chunk_outcome = "Succeeded" if through and outcome != "Lost" else outcome
            executed_window = ExecutedWindow(window.site, window.node, home.slots, start, end, chunk_outcome)
            executed.setdefault(chunk, []).append(executed_window)

    def result(self, planner: Planner, now: float) -> dict[str, tuple[ChunkWindow, ...]]:
        """Return all chunks of all jobs by job: completed ones as executed, others as they are planned now."""
        jobs = planner.cluster.jobs
        open_ended = [key for key, state in jobs.items() if not state.finished]
        by_job = {key: [rows[chunk] for chunk in sorted(rows)] for key, rows in self._planned.items()}
        for key in open_ended:
            by_job[key] = [self._with_dispatch(key, row) for row in chunk_windows(planner, key, now)]
        return {key: tuple(self._with_executed(key, row) for row in rows) for key, rows in sorted(by_job.items())}

    def _with_dispatch(self, key: str, row: ChunkWindow) -> ChunkWindow:
        planned = self._planned.get(key, {}).get(row.chunk)
        if planned is None or row.state is not ChunkState.DONE:
            return row
        return replace(row, cost=planned.cost, planned_start=planned.planned_start, planned_end=planned.planned_end)

    def _with_executed(self, key: str, row: ChunkWindow) -> ChunkWindow:
        executed = tuple(self._executed.get(key, {}).get(row.chunk, ()))
        if not executed or row.state is not ChunkState.DONE:
            return replace(row, executed=executed)
        first, last = executed[0], executed[-1]
        return replace(
            row, site=last.site, node=last.node, slots=last.slots, start=first.start, end=last.end, executed=executed
        )
