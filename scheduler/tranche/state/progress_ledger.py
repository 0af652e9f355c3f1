"""Counting finished work: what the end of a worker means for its job's ledger."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tranche.model import AttemptRecord, JobProgress, PlannedServer, Window
from tranche.state import site_accounting
from tranche.state.entities import JobState, TrackedWindow

KEPT_RECORDS = 5


class PodEnd(Protocol):
    """How a pod has ended; the events of ended workers, parameter servers and chiefs have these fields."""

    @property
    def outcome(self) -> str:
        """Succeeded, Preempted, Failed, Lost or Refused."""

    @property
    def preempted_by(self) -> str:
        """Foreign pod for which kube-scheduler evicted it; empty if it did not."""


class WorkerEnd(PodEnd, Protocol):
    """How a worker has ended; the event `WorkerEnded` has these fields."""

    @property
    def at(self) -> float:
        """When, in seconds."""

    @property
    def progress(self) -> Mapping[int, float] | None:
        """Batches applied by chunk, durably, as the worker itself reported; None if it reported nothing."""

    @property
    def exit_code(self) -> int | None:
        """Exit code of its container."""


def restore(state: JobState, progress: JobProgress) -> None:
    """Set the ledger to what an earlier planner wrote."""
    state.done = {chunk for chunk in progress.done if chunk < state.job.chunks}
    state.partial = {
        chunk: min(batches, state.job.batches_per_chunk_total)
        for chunk, batches in progress.partial.items()
        if chunk < state.job.chunks and chunk not in state.done
    }
    state.checkpoint = progress.checkpoint
    state.ledger_changed()
    state.windows_changed()
    state.counted_gpu_seconds = progress.attained_gpu_seconds
    site_accounting.restore(state, progress.sites)
    state.busy_seconds, state.busy_since = progress.busy_seconds, progress.busy_since
    state.restarts.start_seconds, state.restarts.save_seconds = progress.start_seconds, progress.save_seconds
    state.preemptions = progress.preemptions
    state.failures = progress.failures
    state.lost_batches = progress.lost_batches
    state.records = list(progress.records)


def progress_of(state: JobState, learnt: float) -> JobProgress:
    """The ledger as a value."""
    return JobProgress(
        done=frozenset(state.done),
        partial=dict(sorted(state.partial.items())),
        attained_gpu_seconds=state.counted_gpu_seconds,
        busy_seconds=state.busy_seconds,
        preemptions=state.preemptions,
        failures=state.failures,
        lost_batches=state.lost_batches,
        records=tuple(state.records),
        learnt=learnt,
        busy_since=state.busy_since,
        start_seconds=state.restarts.start_seconds,
        save_seconds=state.restarts.save_seconds,
        restart_seconds=state.restart_seconds,
        sites=site_accounting.progress_of(state),
        checkpoint=state.checkpoint,
    )


def applied_in_order(
    chunks: Sequence[int], before: Mapping[int, float], total: float, trained: float
) -> dict[int, float]:
    """Return the applied batches by chunk after `trained` batches of a worker, which trains its chunks in list order.

    Args:
        chunks: Of its window.
        before: Batches of each that had been applied when it began.
        total: Mini-batches that finish one chunk.
        trained: Mini-batches of this worker, as a fraction too.
    """
    applied = {}
    for chunk in chunks:
        done = min(trained, total - before[chunk])
        trained -= done
        applied[chunk] = before[chunk] + done
    return applied


def count_end(state: JobState, run: TrackedWindow, event: WorkerEnd) -> float:
    """Count an ended worker: its durable batches, its time, and why it ended.

    Returns the mini-batches that it trained as far as reports are known.
    """
    trained, lost = count_batches(state, run, event)
    reason: str = event.outcome
    if event.outcome == "Failed":
        state.failures += 1
    elif event.outcome in ("Preempted", "Lost"):
        if run.started is None:
            reason = run.start_failure or "NotStarted"
        else:
            state.preemptions += 1
    if event.outcome != "Succeeded" and state.checkpoint is None:
        state.lost_batches += lost
    node = run.window.node or run.window.site
    index, attempt, by = run.window.index, run.window.attempt, preemptor_of(run.window, event)
    note(state, AttemptRecord(index, attempt, node, reason, event.exit_code, preempted_by=by))
    return trained


def preemptor_of(planned: Window | PlannedServer, event: PodEnd) -> str:
    """The job or foreign pod that preempted a pod that has ended; empty if it ended by itself."""
    return (event.preempted_by or planned.preempted_by) if event.outcome in ("Preempted", "Lost") else ""


def note(state: JobState, record: AttemptRecord) -> None:
    """Keep how a pod has ended, among the last that have."""
    state.records = [*state.records, record][-KEPT_RECORDS:]


def count_batches(state: JobState, run: TrackedWindow, event: WorkerEnd) -> tuple[float, float]:
    """Count the durable batches of a window that is over, and its time.

    A worker that said nothing has done all its chunks if it succeeded, and else what its reports said was durable.
    Progress never decreases here, so that counting the same end twice changes nothing but the totals. Returns the
    mini-batches that it trained as far as reports are known, and those that it has probably lost.
    """
    trained = max(0.0, event.at - run.started) if run.started is not None else 0.0
    state.counted_gpu_seconds += trained * max(1, state.job.gpus)
    durable = _durable(state, run, event)
    untold = max(0.0, event.at - run.since) if run.since is not None else 0.0
    expected = min(untold / run.batch_seconds, state.left_of(run))
    gained = learnt = 0.0
    for chunk in run.window.chunks:
        before, known = state.partial.get(chunk, 0.0), state.known_batches(chunk)
        batches = max(before, durable.get(chunk, 0.0))
        if chunk not in state.done:
            expected += known - before
            gained += batches - before
            learnt += max(0.0, batches - known)
            if batches > before:
                state.partial[chunk] = batches
            if batches >= state.job.batches_per_chunk_total:
                state.partial.pop(chunk, None)
                state.done.add(chunk)
        if chunk in state.done or state.checkpoint is None:  # else its parameter server has what it was sent
            state.applied.pop(chunk, None)
    state.ledger_changed(run.window.chunks)
    return run.counted + learnt, max(0.0, expected - gained)


def level_gang(state: JobState) -> None:
    """All members of a gang have ended, some before they were done: these have the gang's checkpoint, so all resume.

    A member that succeeded starts again with the others, where the one of them that has saved least does.
    """
    saved = min(state.partial.get(member, 0.0) for member in range(state.job.chunks) if member not in state.done)
    state.partial.update(dict.fromkeys(state.done, saved) if saved else {})
    state.done.clear()
    state.ledger_changed()
    state.windows_changed()


def roll_back(
    state: JobState, chunks: Iterable[int], durable: Mapping[int, float], applied: Mapping[int, float]
) -> None:
    """Set what the ledger holds of some chunks to what a checkpoint holds, whether that is less or more.

    Args:
        state: Of the job.
        chunks: Those that the checkpoint is about.
        durable: Mini-batches in it by chunk; of chunks that are not named, none.
        applied: Mini-batches beyond it that are not lost; a chunk that is done stays so if it has all of them.
    """
    total = state.job.batches_per_chunk_total
    for chunk in chunks:
        batches, left = min(durable.get(chunk, 0.0), total), applied.get(chunk, 0.0)
        done = chunk in state.done
        if done and left >= total:
            continue
        state.lost_batches += max(0.0, (total if done else state.known_batches(chunk)) - max(batches, left))
        state.done.discard(chunk)
        state.partial.pop(chunk, None)
        state.applied.pop(chunk, None)
        if batches >= total and chunk not in state.chunk_runs:
            state.done.add(chunk)
        elif batches > 0:
            state.partial[chunk] = batches
    state.ledger_changed()
    state.windows_changed()


def _durable(state: JobState, run: TrackedWindow, event: WorkerEnd) -> dict[int, float]:
    total = state.job.batches_per_chunk_total
    if event.progress is None:
        silent = event.outcome == "Succeeded" and not run.window.renewed  # else it may not know of these chunks
        return dict.fromkeys(run.window.chunks, total) if silent else {}
    return {c: min(float(b), total) for c, b in event.progress.items() if c in run.window.chunks and b >= 0}
