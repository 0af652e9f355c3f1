"""What is left of a job as far as one can believe: predictions, corrected when they are overrun.

Gangs and jobs of unknown speed are judged by the GPU time that has gone into them; a chunked job by its ledger, and a
window of it that takes longer than predicted by the time that it has taken. Either way what is overrun is believed to
take twice as long, so that no job ranks first for ever.
"""

from math import inf, log2

from tranche.estimate import OVERRUN, believed_total
from tranche.policies.queue.las import NEARLY
from tranche.state.entities import JobState, TrackedWindow


def by_service(state: JobState) -> bool:
    """Whether the ledger says nothing of how much is left."""
    return state.job.is_indivisible or state.assumed


def told_gpu_seconds(state: JobState) -> float:
    """What the job needs in all by declaration, prediction or assumption; positive also if it asks for no GPU."""
    job = state.job
    return job.chunks * job.batches_per_chunk_total * state.nominal_batch_seconds * max(1, job.gpus)


def rest_gpu_seconds(state: JobState, now: float) -> float:
    """The rest of the job."""
    if by_service(state):
        attained = state.attained_gpu_seconds(now) + NEARLY
        return max(0.0, believed_total(told_gpu_seconds(state), attained) - attained)
    rest = state.worker_seconds(now)
    if now >= state.first_end:
        for run in state.runs.values():
            expected, elapsed = _times(state, run, now)
            if elapsed >= expected > 0:
                more = max(0.0, believed_total(expected, elapsed) - elapsed)
                rest += more * state.nominal_batch_seconds / run.batch_seconds
    return rest * state.job.gpus


def rest_seconds(state: JobState, run: TrackedWindow, now: float) -> float:
    """How long one of its windows still trains."""
    if by_service(state):
        return rest_gpu_seconds(state, now) / (max(1, state.job.gpus) * max(1, len(state.runs)))
    rest = run.window.end - now
    if rest > 0:
        return rest
    expected, elapsed = _times(state, run, now)
    return max(0.0, believed_total(expected, elapsed) - elapsed) if expected > 0 else 0.0


def longest_rest_seconds(state: JobState, now: float) -> float:
    """No window of the job still trains for longer."""
    first, last = state.window_ends
    return last - now if now < first and not by_service(state) else inf


def rest_rate(state: JobState, now: float) -> float:
    """By how much that falls per second with the windows that train now."""
    if not by_service(state):
        return state.training_rate(now) * state.job.gpus
    return state.training_workers * max(1, state.job.gpus)


def overruns(state: JobState, now: float) -> int:
    """How often what was told has been doubled."""
    if by_service(state):
        return _doublings(told_gpu_seconds(state), state.attained_gpu_seconds(now) + NEARLY)
    if now < state.first_end:
        return 0
    times = (_times(state, run, now) for run in state.runs.values())
    return sum(_doublings(expected, elapsed) for expected, elapsed in times if expected > 0)


def _doublings(told: float, attained: float) -> int:
    return round(log2(believed_total(told, attained) / told))


def next_overrun(state: JobState, now: float) -> float | None:
    """When it jumps up if the windows that train now go on; None if it never does."""
    if by_service(state):
        attained = state.attained_gpu_seconds(now) + NEARLY
        return state.reaches(believed_total(told_gpu_seconds(state), attained) * OVERRUN, now)
    found: float | None = None
    for run in state.runs.values():
        expected, elapsed = _times(state, run, now)
        if run.since is not None and expected > 0:
            at = run.since + believed_total(expected, elapsed) * OVERRUN
            found = at if found is None else min(found, at)
    return found


def _times(state: JobState, run: TrackedWindow, now: float) -> tuple[float, float]:
    """How long the window trains by prediction, and how long it has trained, in seconds, since its last report."""
    expected = state.left_of(run) * run.batch_seconds
    return expected, max(0.0, now - run.since) + NEARLY if run.since is not None else 0.0
