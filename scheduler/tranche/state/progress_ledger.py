"""Counting finished work: what the end of a worker means for its job's ledger."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from tranche.model import AttemptRecord, JobProgress, PlannedServer, PreemptedJob, Window
from tranche.model.attempt_record import (
    KEPT_ATTEMPTS,
    KEPT_VICTIMS,
    bounded,
    outcome_class,
    pack,
    short_log,
    short_reason,
)
from tranche.state import site_accounting
from tranche.state.job import JobState
from tranche.state.window import TrackedWindow

KEPT_RECORDS = 5
"""Number of ended workers and chiefs in `JobState.records`."""
DISCONNECTION_SECONDS = 60.0
"""Time in seconds within which a worker fails that has lost the connection to another pod of its job."""
LEAST_SHARE = 1e-12
"""Smallest share of a chunk that shows a pace; a smaller one may be a rounding error, or a lie that is not finite."""
SAME_SECONDS = 1.0
"""Workers of one job that are stopped for another within this time form one record."""


class PodEnd(Protocol):
    """End of a pod; the events of ended workers, parameter servers and chiefs have these fields."""

    @property
    def outcome(self) -> str:
        """Succeeded, Preempted, Failed, Lost or Refused."""

    @property
    def preempted_by(self) -> str:
        """Foreign pod for which kube-scheduler evicted it; empty if it did not."""

    @property
    def reason(self) -> str:
        """Why it ended, in the words of the kubelet; empty if it states nothing."""

    @property
    def stopped_by(self) -> str:
        """Why others than tranche stopped it; empty if they did not, or if that is unknown."""

    @property
    def log(self) -> str:
        """Last lines of its log, if it failed and its termination message has them."""


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

    @property
    def finished(self) -> float | None:
        """When its container ended by the clock of its node; None if that is unknown."""


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
    state.history = progress.history or tuple(map(pack, progress.records))
    state.ended = dict(progress.ended) or _count(progress.records)
    state.victims = progress.victims
    state.preempted_workers = progress.preempted_workers


def _count(records: Iterable[AttemptRecord]) -> dict[str, int]:
    """Count the records of an earlier version, which kept no totals."""
    return dict(Counter(outcome_class(record.reason) for record in records))


def progress_of(state: JobState, learnt: float) -> JobProgress:
    """Return the ledger as a value."""
    return JobProgress(
        done=frozenset(state.done),
        partial=dict(sorted(state.partial.items())),
        attained_gpu_seconds=state.counted_gpu_seconds,
        busy_seconds=state.busy_seconds,
        preemptions=state.preemptions,
        failures=state.failures,
        lost_batches=state.lost_batches,
        records=tuple(state.records),
        history=_packed_history(state),
        ended=state.ended,
        victims=state.victims,
        preempted_workers=state.preempted_workers,
        learnt=learnt,
        busy_since=state.busy_since,
        start_seconds=state.restarts.start_seconds,
        save_seconds=state.restarts.save_seconds,
        restart_seconds=state.restart_seconds,
        sites=site_accounting.progress_of(state),
        checkpoint=state.checkpoint,
    )


def _packed_history(state: JobState) -> tuple[str, ...]:
    """Return the history as texts, within its limits; each record is packed once."""
    texts = tuple(entry for entry in state.history if isinstance(entry, str))
    if len(texts) < len(state.history):
        new = (pack(entry) for entry in state.history if isinstance(entry, AttemptRecord))
        state.history = texts = bounded((*texts, *new))
    return texts


def least_measured_batches(state: JobState) -> float:
    """Return the number of mini-batches of the job that a worker must exceed before its pace counts."""
    return LEAST_SHARE * state.job.batches_per_chunk_total


def applied_in_order(
    chunks: Sequence[int], before: Mapping[int, float], total: float, trained: float
) -> dict[int, float]:
    """Return the applied batches by chunk after `trained` batches of a worker, which trains its chunks in list order.

    Args:
        chunks: Chunks of its window.
        before: Mini-batches of each chunk that had been applied when the worker began.
        total: Mini-batches of one chunk.
        trained: Mini-batches of this worker, which may be a fraction.
    """
    applied = {}
    for chunk in chunks:
        done = min(trained, total - before[chunk])
        trained -= done
        applied[chunk] = before[chunk] + done
    return applied


def count_end(state: JobState, run: TrackedWindow, event: WorkerEnd) -> float:
    """Count the durable batches and the time of an ended worker, and record why it ended.

    Returns the mini-batches that it trained as far as reports are known.
    """
    trained, lost = count_batches(state, run, event)
    reason: str = event.outcome
    if event.outcome == "Failed":
        state.failures += not _fails_with_others(state, run, event.at)
    elif event.outcome in ("Preempted", "Lost"):
        if run.started is None:
            reason = run.start_failure or "NotStarted"
        else:
            state.preemptions += 1
    if event.outcome == "Succeeded" or state.checkpoint is not None:
        lost = 0.0
    state.lost_batches += lost
    window = run.window
    by, why = cause_of(window, event)
    record = AttemptRecord(
        index=window.index,
        attempt=window.attempt,
        node=window.node or window.site,
        reason=reason,
        exit_code=event.exit_code,
        preempted_by=by,
        why=why,
        started=run.started,
        ended=event.at,
        lost_seconds=lost * run.batch_seconds,
        log=short_log(event.log),
    )
    note(state, record)
    return trained


def _fails_with_others(state: JobState, run: TrackedWindow, at: float) -> bool:
    """Return whether a worker that fails is no failure of its job, because another pod of the job has ended first.

    Most often, it has lost the connection to a member of its gang, or to a parameter server. A gang is closing then.
    The workers of a chunked job continue while a server is replaced, or is not known to be lost.
    """
    if not (state.job.is_gang or state.job.helper_count):
        return False
    ended = state.disconnected_at
    return run.closing or (run.started is not None and run.started <= ended and at - ended <= DISCONNECTION_SECONDS)


def cause_of(planned: Window | PlannedServer, event: PodEnd) -> tuple[str, str]:
    """Return the job or foreign pod that preempted a pod that has ended, and why it ended; empty if that is unknown."""
    if event.outcome in ("Preempted", "Lost"):
        if event.preempted_by:
            return event.preempted_by, short_reason(event.stopped_by)
        return planned.preempted_by, short_reason(planned.why or event.stopped_by or event.reason)
    return "", "" if event.outcome == "Succeeded" else short_reason(event.reason)


def note(state: JobState, record: AttemptRecord) -> None:
    """Record the end of a pod in the history of its job, and count it by outcome."""
    if record.role != "ps":
        state.records = [*state.records, record][-KEPT_RECORDS:]
    state.history = (*state.history, record)[-KEPT_ATTEMPTS:]
    outcome = outcome_class(record.reason)
    state.ended = {**state.ended, outcome: state.ended.get(outcome, 0) + 1}


def note_victim(state: JobState, victim: str, workers: int, now: float) -> None:
    """Record that workers of another job were stopped for this one.

    Args:
        state: State of the preemptor.
        victim: Key of the other job.
        workers: Number of its workers; negative if they continue after all, because a disruption budget protects them.
        now: Clock, in seconds.
    """
    state.preempted_workers = max(0, state.preempted_workers + workers)
    last = next((record for record in reversed(state.victims) if record.job == victim), None)
    if last is not None and (workers < 0 or now - last.at < SAME_SECONDS):
        earlier = tuple(record for record in state.victims if record is not last)
        remaining = last.workers + workers
        state.victims = (*earlier, replace(last, workers=remaining)) if remaining > 0 else earlier
    elif workers > 0:
        state.victims = (*state.victims, PreemptedJob(victim, workers, now))[-KEPT_VICTIMS:]


def count_batches(state: JobState, run: TrackedWindow, event: WorkerEnd) -> tuple[float, float]:
    """Count the durable batches and the time of an ended window.

    Without a termination message, a worker that succeeded has done all of its chunks; for any other worker, the durable
    batches in its reports count. Progress never decreases here, so if the same end is counted twice, only the totals
    change. Returns the mini-batches that it trained according to reports, and those that it has probably lost.
    """
    trained = max(0.0, event.at - run.started) if run.started is not None else 0.0
    state.counted_gpu_seconds += trained * max(1, state.job.gpus)
    durable = _durable(state, run, event)
    unreported = max(0.0, event.at - run.known_until) if run.known_until is not None else 0.0
    expected = min(unreported / run.batch_seconds, state.left_of(run))
    gained = newly_known = 0.0
    partial, total = state.partial, state.job.batches_per_chunk_total
    for chunk in run.window.chunks:
        before, reported = partial.get(chunk, 0.0), state.known_batches(chunk)
        batches = max(before, durable.get(chunk, 0.0))
        if chunk not in state.done:
            expected += reported - before
            gained += batches - before
            newly_known += max(0.0, batches - reported)
            if batches >= total:
                partial.pop(chunk, None)
                state.done.add(chunk)
            elif batches > before:
                partial[chunk] = batches
        # If there is a checkpoint, the parameter server still has the batches of a chunk that is not done.
        if state.applied and (chunk in state.done or state.checkpoint is None):
            state.applied.pop(chunk, None)
    state.ledger_changed(run.window.chunks)
    return run.counted + newly_known, max(0.0, expected - gained)


def level_gang(state: JobState) -> None:
    """Let all members of a gang resume from its checkpoint, after some of them ended before they were done.

    A member that succeeded starts again with the others, at the least saved progress of these.
    """
    saved = min(state.partial.get(member, 0.0) for member in range(state.job.chunks) if member not in state.done)
    state.partial.update(dict.fromkeys(state.done, saved) if saved else {})
    state.done.clear()
    state.ledger_changed()
    state.windows_changed()


def roll_back(
    state: JobState, chunks: Iterable[int], durable: Mapping[int, float], applied: Mapping[int, float]
) -> None:
    """Set the progress of some chunks in the ledger to that in a checkpoint, which may be less or more.

    Args:
        state: State of the job.
        chunks: Chunks in the scope of the checkpoint.
        durable: Mini-batches in the checkpoint by chunk; 0 for missing chunks.
        applied: Mini-batches by chunk that are not lost; a chunk stays done if all of its mini-batches are.
    """
    total = state.job.batches_per_chunk_total
    for chunk in chunks:
        batches, kept = min(durable.get(chunk, 0.0), total), applied.get(chunk, 0.0)
        was_done = chunk in state.done
        if was_done and kept >= total:
            continue
        state.lost_batches += max(0.0, (total if was_done else state.known_batches(chunk)) - max(batches, kept))
        state.done.discard(chunk)
        state.partial.pop(chunk, None)
        state.applied.pop(chunk, None)
        if batches >= total and chunk not in state.chunk_runs:
            state.done.add(chunk)
        elif batches > 0:
            state.partial[chunk] = batches
    for run in state.runs.values():
        run.resumed = min(run.resumed, state.durable_batches(run))
    state.ledger_changed()
    state.windows_changed()


def ends_in_vain(state: JobState, run: TrackedWindow, event: WorkerEnd, *, is_alone: bool) -> bool:
    """Return whether a worker has ended as if it had succeeded, and by its own word has saved nothing new.

    The next one would most likely do the same, so that the job would never end. Of a gang without a chief, the last
    member shows whether all of them have, or one that has ended alone. It is not known of a worker that others have
    stopped, that may not have received its chunks, whose server has been replaced, or that an earlier planner has
    started.
    """
    if event.outcome != "Succeeded" or event.progress is None or event.stopped_by or run.closing:
        return False
    if run.adopted or run.window.renewed or run.reloaded is not None:
        return False
    job, durable = state.job, _durable(state, run, event)
    if job.is_gang and (job.chief is not None or (len(state.runs) > 1 and not is_alone)):
        return False
    chunks = range(job.chunks) if job.is_gang and not is_alone else run.window.chunks
    saved = [max(state.partial.get(c, 0.0), durable.get(c, 0.0)) for c in chunks if c not in state.done]
    if min(saved, default=inf) >= job.batches_per_chunk_total:
        return False
    return (min(saved) if job.is_gang else sum(saved)) <= run.resumed


def _durable(state: JobState, run: TrackedWindow, event: WorkerEnd) -> dict[int, float]:
    """Return the durable mini-batches by chunk by a worker's own word, or by its success without a word.

    A worker that trains at a parameter server may have ended before that server failed. Its successor has loaded a
    checkpoint, so that it may lack mini-batches that the worker has pushed.
    """
    total = state.job.batches_per_chunk_total
    if event.progress is not None:
        durable = {c: min(float(b), total) for c, b in event.progress.items() if c in run.window.chunks and b >= 0}
    else:
        # A worker may end before it receives the chunks of a renewed window.
        succeeded = event.outcome == "Succeeded" and not run.window.renewed
        durable = dict.fromkeys(run.window.chunks, total) if succeeded else {}
    if run.reloaded is not None and (event.finished is None or event.finished <= run.reloaded):
        return {chunk: min(batches, state.known_batches(chunk)) for chunk, batches in durable.items()}
    return durable
