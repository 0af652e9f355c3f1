"""Tiresias-L: two-dimensional least attained service, discretized into a few queues.

Source: the simulator that the authors of Tiresias (Gu et al., NSDI 2019) published, with its schedule dlas-gpu [C]; the
paper itself was not read. [C] Attained service is GPUs × time. A job moves down a queue when it passes the queue's
limit, 3,250 and 7,200 GPU-seconds. With promotion (option `promote`, off by default), a job goes back to the first
queue when it has waited `promote` times as long as it has run since it was there. `order=simulator` is the order of a
queue there: a job that enters a queue is its last one, also if it runs; once it has run in this queue, it comes before
all that wait, and if it is stopped, before those that waited already.
[I] Of equal times the earlier submission comes first. [I] The other orders, with the default; what each gives is in
docs/reference/results/job-logs.md. [I] A job falls at its limit; in the simulator it may fall later, at the next
event, since the time is computed from seconds and not from GPU-seconds. [I] Only the present wait counts for a
promotion, where the simulator sums all waits since the job left the first queue.
The profiler and the consolidated placement are not here.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import MOMENT_SECONDS, JobState
from tranche.state.remaining_work import NEARLY

Order = Literal["arrival", "start", "entry", "running", "attained", "simulator"]
FAR = 1e11
"""More seconds than any clock has."""


@dataclass(frozen=True, slots=True)
class Tiresias(PooledPolicy):
    """Discretized two-dimensional LAS, with promotion as an option."""

    name: ClassVar[str] = "tiresias"
    source: ClassVar[str] = (
        "Tiresias-L [C]: two-dimensional LAS in queues, after the authors' simulator (Gu et al., NSDI 2019), without "
        "promotion by default"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which is in a higher queue of attained service, or came earlier in the same",
        preemptive=True,
        recoverable=False,  # first starts, entries and promotions are not in status
    )

    limits: tuple[float, ...] = (3250.0, 7200.0)
    """GPU-seconds at which a job leaves a queue for the next."""
    order: Order = "running"
    """Within a queue: by submission; by first start (jobs that never ran come last); by the time of entry; those that
    run before those that wait, and these as they began to wait, so that jobs of one queue do not preempt each other; by
    service attained when last looked at; or as in the authors' simulator."""
    promote: float = 0.0
    """PROMOTEKNOB: waiting time over time run, from which a job is promoted; 0: never."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if list(self.limits) != sorted(set(self.limits)) or not self.limits or self.limits[0] <= 0:
            raise ValueError("tiresias needs rising limits above 0")
        if self.order not in get_args(Order):
            raise ValueError(f"tiresias knows the orders {', '.join(get_args(Order))}, not {self.order!r}")
        if not self.promote >= 0:
            raise ValueError("tiresias needs promote ≥ 0")

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the number of the queue, by service attained since the last promotion."""
        return bisect_right(self.limits, state.attained_gpu_seconds(now) - state.gpu_seconds_at_promotion + NEARLY)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the queue, then the order within it."""
        return (float(state.level), self._within(state, now))

    def _within(self, state: JobState, now: float) -> float:
        match self.order:
            case "start":
                return float("inf") if state.first_started is None else state.first_started
            case "entry":
                return state.level_since
            case "running":
                return 0.0 if _runs(state) else 1.0 + max(state.idle_since, state.level_since)
            case "simulator":
                return _place(state, now)
            case "attained":
                return state.attained_gpu_seconds(now)
            case _:
                return 0.0

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when a running job reaches its queue's limit, or when a waiting one is promoted."""
        if state.runs:
            if self.order == "simulator" and now < state.level_since + MOMENT_SECONDS:
                return state.level_since + MOMENT_SECONDS
            limit = self.limits[state.level] if state.level < len(self.limits) else None
            return None if limit is None else state.reaches(limit + state.gpu_seconds_at_promotion, now)
        if self.promote and state.level:
            return state.idle_since + self.promote * self._run_seconds(state, now)
        return None

    def should_promote(self, state: JobState, now: float) -> bool:
        """Return whether the job has waited `promote` times as long as it ran since it was in the first queue."""
        if not self.promote or not state.level or state.runs:
            return False
        return now - state.idle_since >= self.promote * self._run_seconds(state, now) - NEARLY

    def _run_seconds(self, state: JobState, now: float) -> float:
        """Return how long the job has run on all of its GPUs since its last promotion."""
        return (state.attained_gpu_seconds(now) - state.gpu_seconds_at_promotion) / state.job_gpus


def _runs(state: JobState) -> bool:
    return any(not run.closing for run in state.runs.values())


def _place(state: JobState, now: float) -> float:
    """Return the place of a job in its queue: those that have run there, those stopped since, and those that entered.

    The first are in order of their starts or, if later, of their entries; the second in the reverse order of their
    stops; the last in order of entry. A running job counts among the first a moment after its entry.
    """
    if _runs(state) and now >= state.level_since + MOMENT_SECONDS:
        opened = max(run.window.start for run in state.runs.values() if not run.closing)
        return max(opened, state.level_since) - FAR
    if not state.runs and state.idle_since > state.level_since:
        return -state.idle_since
    return state.level_since + FAR
