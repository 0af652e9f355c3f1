"""Handler for progress reports: durable batches are counted in the ledger, applied ones in the estimates.

A checkpoint takes precedence over the ledger: the first report of an attempt states the progress that the attempt
loaded, even if that is less than was counted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import fsum

from tranche.model import Checkpoint, Timings
from tranche.planner.context import PlannerContext
from tranche.planner.events import ProgressReported
from tranche.planner.job_actions import finish, is_saved, watch_idle_servers
from tranche.state import site_accounting
from tranche.state.job import JobState
from tranche.state.progress_ledger import least_measured_batches, roll_back
from tranche.state.window import TrackedWindow


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Progress of a job."""

    batches: float
    """Number of mini-batches of all chunks, by the last reports and the pace of running workers."""
    total_batches: float
    """Number of durable mini-batches at which the job is done."""
    estimated: bool
    """Whether some running worker does not report, so that its progress is estimated from its run time alone."""
    reported: float | None
    """Time of the job's last report, in seconds; None if there was none."""
    timings: Timings

    @property
    def fraction(self) -> float:
        """Trained part of the job, from 0 to 1."""
        return self.batches / self.total_batches if self.total_batches > 0 else 0.0


def training_progress(state: JobState, now: float) -> TrainingProgress:
    """Return the progress of the job."""
    whole = state.job.chunks * state.job.batches_per_chunk_total
    pace = state.nominal_batch_seconds
    left = state.worker_seconds(now) / pace if pace > 0 else state.batches_left(range(state.job.chunks))
    silent = any(run.started is not None and run.first_report is None for run in state.runs.values())
    at, timings = state.reported or (None, Timings())
    trained = whole - left - fsum(_refuted_batches(state, run, now) for run in state.runs.values())
    return TrainingProgress(min(whole, max(0.0, trained)), whole, silent, at, timings)


def _refuted_batches(state: JobState, run: TrackedWindow, now: float) -> float:
    """Return the estimated mini-batches of a worker that its last report has refuted, because it showed no progress."""
    if run.since is None or run.known_until is None:
        return 0.0
    estimated, since_report = (
        min(state.left_of(run), max(0.0, now - at) / run.batch_seconds) for at in (run.since, run.known_until)
    )
    return estimated - since_report


def reported_chunks(state: JobState, attempt: int) -> Collection[int]:
    """Return the chunks for which reports of the attempt count: none if it is over or another pod reports for them.

    The chief reports for all chunks, else parameter server 0, and else rank 0 of a gang. Without any of these, a worker
    reports for the chunks of its window.
    """
    if any(server.planned.attempt == attempt for server in state.reporters):
        return range(state.job.chunks)
    run = state.runs.get(attempt)
    if run is None or state.job.helper_count:
        return ()
    if state.job.is_gang:
        return range(state.job.chunks) if run.window.index == 0 else ()
    return run.window.chunks


def is_superseded(state: JobState, attempt: int) -> bool:
    """Return whether another attempt has replaced this one, so that this one must not even save any more.

    The server of a job that is done or suspended is not superseded: it still has to save its state.
    """
    if state.job.helper_count:
        return any(server.planned.attempt > attempt for server in state.reporters)
    return attempt not in state.runs and not state.finished


def count(context: PlannerContext, event: ProgressReported) -> None:
    """Count a report, unless its attempt is over."""
    report = event.report
    state = context.cluster.jobs.get(report.job)
    chunks = reported_chunks(state, report.attempt) if state is not None and report.is_of(state.job) else ()
    if state is None or not chunks:
        return
    total = state.job.batches_per_chunk_total
    durable = {c: min(max(0.0, float(report.durable[c])), total) for c in chunks if c in report.durable}
    applied = {c: min(max(0.0, float(report.applied[c])), total) for c in chunks if c in report.applied}
    applied |= {c: max(batches, applied.get(c, 0.0)) for c, batches in durable.items()}
    unfinished = [c for c in chunks if c not in state.done]
    if first := _is_first(state, report.attempt):
        loaded = _loaded_chunks(state, report.attempt, chunks, applied)
        roll_back(state, loaded, durable, applied)
        context.touch(state)
        context.publish(report.job)
    # What the attempt has loaded is no progress of its workers.
    before = {c: state.known_batches(c) for c in unfinished}
    if report.attempt not in state.runs:
        known = is_saved(state)
        if first and state.checkpoint is not None:
            _note_reload(state, event.at)
        state.checkpoint = _merged_checkpoint(state.checkpoint, report.attempt, durable)
        if not known and is_saved(state):
            watch_idle_servers(context, state)
    _raise_progress(state, durable, applied)
    for run in {id(state.chunk_runs[c]): state.chunk_runs[c] for c in chunks if c in state.chunk_runs}.values():
        gained = fsum(max(0.0, state.known_batches(c) - before[c]) for c in run.window.chunks if c in before)
        _note_pace(run, gained, event.at, least_measured_batches(state), first=first)
    state.reported = (event.at, report.timings)
    state.ledger_changed()
    context.rank_again(state)
    finished = [c for c in unfinished if c in state.done]
    if finished:
        _finish_chunks(context, state, finished)


def _is_first(state: JobState, attempt: int) -> bool:
    run = state.runs.get(attempt)
    if run is not None:
        return run.first_report is None
    return state.checkpoint is None or attempt > state.checkpoint.attempt


def _loaded_chunks(state: JobState, attempt: int, chunks: Collection[int], named: Collection[int]) -> Collection[int]:
    """Return the chunks whose progress the first report of an attempt states; it is 0 for those that are not `named`.

    A member of a gang that is done has ended in this attempt, so that no checkpoint was loaded after its end. A worker
    whose window an earlier planner has renewed may not have the later chunks yet, so that it says nothing about them.
    """
    if state.job.is_gang:
        return [chunk for chunk in chunks if chunk not in state.done]
    run = state.runs.get(attempt)
    return [chunk for chunk in chunks if chunk in named] if run is not None and run.window.renewed else chunks


def _note_reload(state: JobState, at: float) -> None:
    """Record for workers of a chunked job that a server has replaced the one to which they have pushed gradients."""
    for run in state.runs.values():
        if run.started is not None and not state.job.is_gang:
            run.reloaded = at


def _merged_checkpoint(known: Checkpoint | None, attempt: int, durable: Mapping[int, float]) -> Checkpoint:
    if known is None or attempt > known.attempt:
        return Checkpoint(attempt, durable)
    return Checkpoint(attempt, {**known.batches, **{c: max(b, known.batches.get(c, 0.0)) for c, b in durable.items()}})


def _raise_progress(state: JobState, durable: Mapping[int, float], applied: Mapping[int, float]) -> None:
    """Count progress beyond the known progress; a chunk in a window is done only when its worker has ended."""
    for chunk, batches in applied.items():
        if chunk in state.done:
            continue
        held = max(durable.get(chunk, 0.0), state.partial.get(chunk, 0.0))
        if held >= state.job.batches_per_chunk_total and chunk not in state.chunk_runs:
            state.done.add(chunk)
            state.partial.pop(chunk, None)
            state.applied.pop(chunk, None)
            continue
        if held > 0:
            state.partial[chunk] = held
        if max(batches, state.applied.get(chunk, 0.0)) > held:
            state.applied[chunk] = max(batches, state.applied.get(chunk, 0.0))
        else:
            state.applied.pop(chunk, None)


def _note_pace(run: TrackedWindow, gained: float, at: float, least: float, *, first: bool) -> None:
    """Record a running worker's progress since its last report, and its pace since its first report.

    A report without progress changes neither: otherwise a program that hangs while it reports would never overrun.

    Args:
        run: Window of the worker.
        gained: Mini-batches since the last report.
        at: Time of the report.
        least: Fewest mini-batches that show progress or a pace.
        first: Whether this is the first report of its attempt, from which the workers go on.
    """
    if run.since is None:
        return
    run.counted += gained
    run.last_report = at
    if run.first_report is None:
        run.first_report, first = (at, run.counted), True
    if first or gained > least:
        run.since = max(run.since, at)
    began, counted = run.first_report
    if gained > least and at > began and run.counted - counted > least:
        if run.predicted_batch_seconds is None:
            run.predicted_batch_seconds = run.batch_seconds
        run.batch_seconds = (at - began) / (run.counted - counted)


def _finish_chunks(context: PlannerContext, state: JobState, chunks: list[int]) -> None:
    context.cluster.unbind([state.entries[chunk] for chunk in chunks if chunk in state.entries])
    site_accounting.count_completions(context.cluster, state, chunks)
    state.windows_changed()
    if state.finished:
        finish(context, state)
    context.touch(state)
    context.publish(state.job.key)
