"""Tiresias-L: two-dimensional least attained service, discretized into a few queues.

Source: Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019. [P]
Attained service is GPUs × time; a job moves down a queue when it passes the queue's limit; a starving job is promoted
back to the first queue when it has waited PROMOTEKNOB times as long as it has run (option `promote`, off by default);
within a queue jobs go by start time (`order=start`). The limits, 3,250 and 7,200 GPU-seconds, are those of the authors'
simulator (dlas-gpu), which puts the running jobs of a queue first, as is the default here; there a job may fall later
than at its limit, at the next event, since the time is computed from seconds and not from GPU-seconds. [I] The other
orders; what each gives is in docs/reference/results.md. The profiler and the consolidated placement are not here.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import NEARLY

Order = Literal["arrival", "start", "entry", "running", "attained"]


@dataclass(frozen=True, slots=True)
class Tiresias(PooledPolicy):
    """Discretized two-dimensional LAS, with promotion as an option."""

    name: ClassVar[str] = "tiresias"
    source: ClassVar[str] = (
        "Tiresias-L, two-dimensional LAS in queues (Gu et al., NSDI 2019), without promotion by default"
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
    run before those that wait, and these as they began to wait, so that jobs of one queue do not preempt each other
    (the order of the authors' simulator); or by service attained when last looked at."""
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
                runs = any(not run.closing for run in state.runs.values())
                return 0.0 if runs else 1.0 + max(state.idle_since, state.level_since)
            case "attained":
                return state.attained_gpu_seconds(now)
            case _:
                return 0.0

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when a running job reaches its queue's limit, or when a waiting one is promoted."""
        if state.runs:
            limit = self.limits[state.level] if state.level < len(self.limits) else None
            return None if limit is None else state.reaches(limit + state.gpu_seconds_at_promotion, now)
        if self.promote and state.level:
            return state.idle_since + self.promote * state.attained_gpu_seconds(now) / state.job_gpus
        return None

    def should_promote(self, state: JobState, now: float) -> bool:
        """Return whether the job has waited `promote` times as long as it ran, in the time of all its GPUs together."""
        if not self.promote or not state.level or state.runs:
            return False
        run = state.attained_gpu_seconds(now) / state.job_gpus
        return now - state.idle_since >= self.promote * run - NEARLY
