"""Estimates of a job's remaining work: predictions, corrected when they are overrun.

The estimate for gangs, jobs of one chunk and jobs of unknown speed rests on the GPU time that they have attained. That
for a chunked job rests on its ledger, and, for a window that takes longer than predicted, on the time that the window
has taken. In both cases an estimate that is overrun is doubled, so that no job ranks first without end: also not one
whose workers report slow progress.
"""

from math import inf, log2
from typing import NamedTuple

from tranche.estimate import OVERRUN, estimated_total
from tranche.state.job import JobState
from tranche.state.tenant_usage import CompletedJob
from tranche.state.window import TrackedWindow

NEARLY = 1e-6
"""GPU-seconds by which rounding may keep a job below a limit that it has reached."""
TIE_DIGITS = 6
"""Digits of seconds that count in a rank: equal sizes tie, though batches × seconds per batch round differently."""


class WindowRest(NamedTuple):
    """Estimated rest of a window."""

    seconds: float
    batches: float


def by_service(state: JobState) -> bool:
    """Return whether the remaining work follows from attained GPU time, because the ledger says nothing about it."""
    return state.job.is_indivisible or state.assumed


def ledger_seconds(state: JobState, now: float) -> float:
    """Return `JobState.worker_seconds` for a rank: equal sizes are equal, whatever the number of mini-batches."""
    return round(state.worker_seconds(now), TIE_DIGITS)


def nominal_gpu_seconds(state: JobState) -> float:
    """Return the GPU-seconds of the whole job as declared, predicted or assumed; positive also without GPUs."""
    job = state.job
    return job.chunks * job.batches_per_chunk_total * state.nominal_batch_seconds * max(1, job.gpus)


def completed_job(state: JobState, gpu_seconds: float) -> CompletedJob:
    """Return the job as it counts in a history if it needed, or will have needed, this service."""
    job = state.job
    return CompletedJob(
        gpu_seconds, job.submitted, state.job_gpus, nominal_gpu_seconds(state), job.size_declared, job.restart_seconds
    )


def rest_gpu_seconds(state: JobState, now: float) -> float:
    """Return the estimated remaining GPU-seconds of the job."""
    if by_service(state):
        attained = state.attained_gpu_seconds(now) + NEARLY
        return max(0.0, estimated_total(nominal_gpu_seconds(state), attained) - attained)
    remaining = state.worker_seconds(now)
    if now >= state.first_end:
        for run in state.runs.values():
            remaining += _excess_seconds(state, run, now)
    return remaining * state.job.gpus


def _excess_seconds(state: JobState, run: TrackedWindow, now: float) -> float:
    """Return by how much the rest of a window exceeds its part in `JobState.worker_seconds`, in seconds.

    It does if the window takes longer than predicted, or if its worker reports less than half of the predicted pace.
    """
    expected, elapsed = _times(state, run, now)
    if expected <= 0:
        return 0.0
    total = estimated_total(expected, elapsed)
    rest = max(0.0, total - elapsed)
    counted = max(0.0, expected - elapsed)
    return (rest * run.slowdown - counted) * state.nominal_batch_seconds / run.batch_seconds


def reported_gpu_seconds(state: JobState) -> float:
    """Return the remaining GPU-seconds by the last reports alone, without what running workers train after them."""
    if not by_service(state):
        return state.batches_left(range(state.job.chunks)) * state.nominal_batch_seconds * state.job.gpus
    attained = state.counted_gpu_seconds + NEARLY
    for run in state.runs.values():
        if run.started is not None and run.known_until is not None:
            attained += (run.known_until - run.started) * max(1, state.job.gpus)
    return max(0.0, estimated_total(nominal_gpu_seconds(state), attained) - attained)


def rest_seconds(state: JobState, run: TrackedWindow, now: float) -> float:
    """Return the estimated remaining seconds of one window."""
    if by_service(state):
        return rest_gpu_seconds(state, now) / (max(1, state.job.gpus) * max(1, len(state.runs)))
    remaining = run.window.end - now
    if remaining > 0:
        return remaining
    expected, elapsed = _times(state, run, now)
    return max(0.0, estimated_total(expected, elapsed) - elapsed) if expected > 0 else 0.0


def rest_of(state: JobState, run: TrackedWindow, now: float) -> WindowRest:
    """Return the estimated rest of a window that trains, of a job whose ledger counts mini-batches."""
    expected, elapsed = _times(state, run, now)
    if expected <= 0:
        return WindowRest(0.0, 0.0)
    total = estimated_total(expected, elapsed)
    remaining = max(0.0, total - elapsed)
    return WindowRest(remaining, state.left_of(run) * remaining / total)


def longest_rest_seconds(state: JobState, now: float) -> float:
    """Return an upper bound of `rest_seconds` over the job's windows, in seconds; inf if none is known."""
    first, last = state.window_ends
    return last - now if now < first and not by_service(state) else inf


def rest_rate(state: JobState, now: float) -> float:
    """Return the decrease of `rest_gpu_seconds` per second while the windows that train now go on."""
    if not by_service(state):
        rate = state.training_rate(now)
        for run in state.runs.values() if now >= state.first_end else ():
            if run.started is not None and run.started <= now:
                rate += (run.slowdown - 1.0) * state.nominal_batch_seconds / run.batch_seconds
        return rate * state.job.gpus
    return state.training_workers * max(1, state.job.gpus)


def overruns(state: JobState, now: float) -> int:
    """Return how often the predictions have been doubled."""
    if by_service(state):
        return _doublings(nominal_gpu_seconds(state), state.attained_gpu_seconds(now) + NEARLY)
    if now < state.first_end:
        return 0
    times = (_times(state, run, now) for run in state.runs.values())
    return sum(_doublings(expected, elapsed) for expected, elapsed in times if expected > 0)


def _doublings(expected: float, attained: float) -> int:
    return round(log2(estimated_total(expected, attained) / expected))


def next_overrun(state: JobState, now: float) -> float | None:
    """Return when `overruns` rises next if the windows that train now go on; None if it never does."""
    if by_service(state):
        attained = state.attained_gpu_seconds(now) + NEARLY
        return state.reaches(estimated_total(nominal_gpu_seconds(state), attained) * OVERRUN, now)
    first: float | None = None
    for run in state.runs.values():
        expected, elapsed = _times(state, run, now)
        if run.since is not None and expected > 0:
            time = run.since + estimated_total(expected, elapsed) * OVERRUN
            first = time if first is None else min(first, time)
    return first


def _times(state: JobState, run: TrackedWindow, now: float) -> tuple[float, float]:
    """Return the predicted and the elapsed training time of the window since it last showed progress, in seconds."""
    expected = state.left_of(run) * run.batch_seconds
    return expected, max(0.0, now - run.since) + NEARLY if run.since is not None else 0.0
