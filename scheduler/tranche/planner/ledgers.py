"""Counting finished work: what the end of a worker means for its job's ledger."""

from tranche.model import AttemptRecord, JobProgress
from tranche.planner.events import WorkerEnded
from tranche.policies import JobState, Run

KEPT_RECORDS = 5


def restore(state: JobState, progress: JobProgress) -> None:
    """Set the ledger to what an earlier planner wrote."""
    state.done = {chunk for chunk in progress.done if chunk < state.job.chunks}
    state.partial = {
        chunk: min(batches, state.job.batches_per_chunk_total)
        for chunk, batches in progress.partial.items()
        if chunk < state.job.chunks and chunk not in state.done
    }
    state.ledger_changed()
    state.windows_changed()
    state.attained_seconds = progress.attained_seconds
    state.busy_seconds = progress.busy_seconds
    state.preemptions = progress.preemptions
    state.failures = progress.failures
    state.lost_batches = progress.lost_batches
    state.records = list(progress.records)


def progress_of(state: JobState, learnt: float) -> JobProgress:
    """The ledger as a value."""
    return JobProgress(
        done=frozenset(state.done),
        partial=dict(sorted(state.partial.items())),
        attained_seconds=state.attained_seconds,
        busy_seconds=state.busy_seconds,
        preemptions=state.preemptions,
        failures=state.failures,
        lost_batches=state.lost_batches,
        records=tuple(state.records),
        learnt=learnt,
    )


def count_end(state: JobState, run: Run, event: WorkerEnded) -> float:
    """Count an ended worker: its durable batches, its time, and why it ended.

    A worker that said nothing has done all its chunks if it succeeded and none otherwise. Progress never decreases
    here, so that counting the same end twice changes nothing but the totals. Returns the mini-batches gained.
    """
    trained = max(0.0, event.at - run.started) if run.started is not None else 0.0
    state.attained_seconds += trained * max(1, state.job.gpus)
    durable = _durable(state, run, event)
    expected = min(trained / run.batch_seconds, sum(state.remaining_batches(c) for c in run.window.chunks))
    gained = 0.0
    for chunk, batches in durable.items():
        before = state.partial.get(chunk, 0.0)
        if batches > before and chunk not in state.done:
            gained += batches - before
            state.partial[chunk] = batches
        if state.remaining_batches(chunk) <= 0:
            state.partial.pop(chunk, None)
            state.done.add(chunk)
    state.ledger_changed()
    reason: str = event.outcome
    if event.outcome == "Failed":
        state.failures += 1
    elif event.outcome in ("Preempted", "Lost"):
        if run.started is None:
            reason = "NotStarted"
        else:
            state.preemptions += 1
    if event.outcome != "Succeeded":
        state.lost_batches += max(0.0, expected - gained)
    node = run.window.node or run.window.site
    record = AttemptRecord(run.window.index, run.window.attempt, node, reason, event.exit_code)
    state.records = [*state.records, record][-KEPT_RECORDS:]
    return gained


def _durable(state: JobState, run: Run, event: WorkerEnded) -> dict[int, float]:
    total = state.job.batches_per_chunk_total
    if event.progress is None:
        return dict.fromkeys(run.window.chunks, total) if event.outcome == "Succeeded" else {}
    return {c: min(float(b), total) for c, b in event.progress.items() if c in run.window.chunks and b >= 0}
