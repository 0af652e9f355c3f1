"""The production policy: the job with the least work left first, chunks where their data are, copied ahead of need.

Source: ours [I] (decision 5): the order of SRPT over jobs, because a job's last chunk decides its completion; late
binding: a chunk is bound to a slot only when it starts, at whatever site has a copy of its data
(`tranche.planner.scheduling.data_replication`); the rest of a chunk moves to an idle GPU of a faster kind
(`tranche.planner.scheduling.faster_gpu`); cost-aware preemption: a running worker is stopped only if
``rest / W_preemptor > (p_preemptor + ρ) / W_running``, W the work left of a job; a gang, whose work is one piece, if
``W_running > W_preemptor`` and both starts, in GPU-seconds; aging: W is divided by ``1 + wait / (θ · ideal)``, where
wait is the time without a window and ideal the JCT on an empty cluster. The work left is an estimate: see
`tranche.state.remaining_work`. Measurements: docs/explanation/policy-study.md; worked numbers:
docs/explanation/algorithms.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf, log
from typing import ClassVar

from tranche.policies.base import PolicyTraits, QueuePolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.remaining_work import next_overrun, overruns, reported_gpu_seconds, rest_gpu_seconds, rest_rate

AGE_STEP = 1.1
"""Factor between two steps of the age factor. A waiting job is ranked again at each step: logarithmically often."""
TOLERATED_OVERRUN = 8.0
"""Multiple of its declared size from which the GPU time of a job counts for its age, in place of that size [I]."""
OLDEST = 100
"""Largest number of steps (a factor of 13,780), so that a job that can never run does not set timers without end."""
NEARLY = 1e-6
"""Tolerance in steps: a timer may fire this much too early by rounding."""
MAX_COPIES = 1_000_000
"""More sites than a cluster has: the number of copies for `copies=inf`."""
SHORTEST_STEP = 1.0
"""Least time between two steps, in seconds."""


@dataclass(frozen=True, slots=True)
class Chunk(QueuePolicy):
    """Least remaining GPU-seconds over weight and age first; late binding of chunks to sites and slots."""

    name: ClassVar[str] = "chunk"
    source: ClassVar[str] = (
        "ours [I]: least work left first, late binding to sites and slots, preemption that pays (decision 5)"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which has less work left",
        preemptive=True,
        uses_weights=True,
        uses_learned_estimates=True,
        optimizes_server_site=True,
        needs_local_data=True,
    )

    copies: float = 6.0
    """Number of sites, the nearest first, to which an arriving job's data are copied ahead of need: all chunks to each
    over dedicated links, else each chunk to one; none in the simulator's network model, where uploads share uplinks."""
    aging: float = 30.0
    """θ: a job that has waited θ times its ideal JCT counts as if half its work were left; 0: jobs do not age."""
    fair: float = 0.0
    """1: within a priority class, tenants above their share of recent GPU time rank behind those below theirs."""
    halflife: float = 86_400.0
    """Time after which a tenant's GPU time counts half in its recent share, in seconds."""
    belief: float = 1.0
    """1: the work left of a job is a belief: its last reports, and what its workers have trained since by their pace;
    0: its last reports alone."""
    price: float = 0.0
    """Hours of JCT that one GPU-hour at an unlimited site may cost; 0: only time counts."""
    declared: float = 0.0
    """1: declared durations of gangs and jobs of one chunk are corrected by completed jobs of the namespace."""

    grouped: float = 0.0
    """1: a gang starts inside the sites with the fastest links between them that have room for all of its members."""
    split: float = 0.0
    """A worker of a job without waiting chunks saves and stops if its rest takes more than this many times as long as
    on an idle slot, with the restart; its partial work counts, and idle slots take the rest. 0: never."""
    faster: float = 1.5
    """A worker of a job without waiting chunks saves and stops if its rest takes more than this many times as long as
    on an idle GPU of a faster kind, with the transfer of data and the restart. 0: never."""

    contention: float = 1.0
    """1: expected uploads share the uplinks of both of their sites, and data go where they arrive first;
    0: they share the uplink of the site with the data. This concerns only the simulator's network model."""

    levels: float = 1.0
    """1: a gang that names no topology level and sends gradients starts at the narrowest level that has room for it, or
    at which preemption makes room, if the capacities of the levels are known (network model, `levelBandwidths`); 0: it
    takes the best fit."""

    def __post_init__(self) -> None:
        if self.faster and not self.faster >= 1:
            raise ValueError("chunk needs faster ≥ 1, or 0")
        if self.split and not self.split >= 1:
            raise ValueError("chunk needs split ≥ 1, or 0")
        if not 0 < self.halflife < float("inf"):
            raise ValueError("chunk needs a finite halflife > 0")
        for name in ("copies", "aging", "price"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"chunk needs {name} ≥ 0")
        for name in ("fair", "belief", "declared", "grouped", "contention", "levels"):
            if getattr(self, name) not in (0, 1):
                raise ValueError(f"chunk needs {name} 0 or 1")

    def prefers_levels(self, state: JobState, cluster: ClusterState) -> bool:
        """Return whether the option is set, the levels differ in speed, and the gang sends gradients."""
        return bool(self.levels) and cluster.level_network is not None and state.job.gradient_bits > 0

    def tier(self, state: JobState, cluster: ClusterState) -> float:
        """Return the tier: the highest priority class first; in it, under `fair`, tenants below their share first."""
        over = bool(self.fair) and state.job.tenant in cluster.shares.over
        return 2.0 * -state.job.priority + over

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return what puts the first job before the second: class, share, weight, wait or work left."""
        reason = QueuePolicy.precedence_reason(self, first, second, cluster, now)
        if reason != self.traits.precedence_reason:
            return reason
        if self.tier(first, cluster) < self.tier(second, cluster):
            return "whose namespace has used less than its share of GPU time"
        if self._rest(first, now) < self._rest(second, now):
            return reason
        aged = [self._rest(state, now) / AGE_STEP ** self._age(state, now) for state in (first, second)]
        if first.job.weight > second.job.weight and aged[0] >= aged[1]:
            return f"which has more weight ({first.job.weight:g})"
        return "which has waited longer for its size"

    def rank_epoch(self, cluster: ClusterState) -> int:
        """Return a number that rises when another set of tenants is above its share."""
        return cluster.shares.revision

    def usage_halflife_seconds(self) -> float:
        """Return the option `halflife`, or 0 without fair shares."""
        return self.halflife if self.fair else 0.0

    @property
    def corrects_declared_sizes(self) -> bool:
        """Whether the option `declared` is set."""
        return bool(self.declared)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the remaining GPU-seconds of the job over its weight and age."""
        return (self._work(state, now), 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return the decrease of remaining GPU-seconds per second, over weight and age."""
        return rest_rate(state, now) / self._divisor(state, now) if self.belief else 0.0

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return how often the job's estimate was overrun: a job that is larger than estimated may have to make way."""
        return overruns(state, now) if self.belief else 0

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when a waiting job ages by another step, or when a running one overruns its estimate."""
        if state.busy_since is not None or not self.aging:
            return next_overrun(state, now) if self.belief else None
        age = self._age(state, now)
        if age == OLDEST:
            return None
        older = AGE_STEP ** (age + 1) - 1.0
        return now + max(SHORTEST_STEP, self.aging * _ideal_seconds(state) * older - state.waited_seconds(now))

    def choose_server_node(
        self, cluster: ClusterState, state: JobState, index: int, feasible: Sequence[NodeState], seed: int
    ) -> NodeState:
        """Return the node with the fewest GPUs, so that workers find room, and then with the most CPU left."""
        return min(
            feasible, key=lambda node: (node.capacity.gpus, node.reserved.cpu - node.capacity.cpu, node.node.name)
        )

    def expects_contention(self) -> bool:
        """Return the option `contention`."""
        return bool(self.contention)

    def prefetch_site_count(self) -> int:
        """Return the option `copies`, or a number that no cluster has."""
        return int(min(self.copies, MAX_COPIES))

    def cloud_price(self) -> float:
        """Return the option `price`."""
        return self.price

    def groups_by_bandwidth(self) -> bool:
        """Return whether the option `grouped` is set."""
        return bool(self.grouped)

    def split_factor(self) -> float:
        """Return the option `split`."""
        return self.split

    def faster_factor(self) -> float:
        """Return the option `faster`."""
        return self.faster

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Return the bound above which the gain of the waiting job exceeds the loss of the victim.

        A job of a higher priority class may always preempt. The module docstring has the inequalities.
        """
        if state.job.priority > victim.job.priority:
            return -inf
        preemptor, running = self._work(state, now), self._work(victim, now)
        if victim.job.is_indivisible:
            return -inf if running > preemptor + _start_cost(victim) + _start_cost(state) else inf
        return (seconds + victim.restart_seconds) * preemptor / running if running else inf

    def _work(self, state: JobState, now: float) -> float:
        return self._rest(state, now) / self._divisor(state, now)

    def _rest(self, state: JobState, now: float) -> float:
        """Return the remaining GPU-seconds of the job, as a belief or as last reported."""
        return rest_gpu_seconds(state, now) if self.belief else reported_gpu_seconds(state)

    def _divisor(self, state: JobState, now: float) -> float:
        return state.job.weight * AGE_STEP ** self._age(state, now)

    def _age(self, state: JobState, now: float) -> int:
        """Return the number of steps by which the job has aged."""
        if not self.aging:
            return 0
        older = 1.0 + state.waited_seconds(now) / max(self.aging * _ideal_seconds(state), 1e-9)
        return min(OLDEST, floor(log(min(older, AGE_STEP ** (OLDEST + 1)), AGE_STEP) + NEARLY))


def _ideal_seconds(state: JobState) -> float:
    """Return `JobState.ideal_seconds`, or a part of what each worker has trained, if that is longer.

    A job that is declared as much too small would be old as soon as it waits, and rank first again and again.
    """
    attained = state.counted_gpu_seconds / max(1, state.job_gpus)
    return max(state.ideal_seconds, attained / TOLERATED_OVERRUN)


def _start_cost(state: JobState) -> float:
    """Return the GPU-seconds that starting the job's workers takes, all of a gang or one, over its weight."""
    job = state.job
    return state.restart_seconds * job.gpus * job.min_available / job.weight
