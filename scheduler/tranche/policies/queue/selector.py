"""Policy selector: one of several named policies orders the queue, chosen by the state of the cluster.

Source: ASET-like and Improper-RL-like. After the abstracts of ASET (arXiv 2301.13618), which chooses among policies by
the state of the cluster, and of Improper reinforcement learning (arXiv 2105.00210), which learns a softmax mixture of
given policies in a simulator [P]. [I] the policy with the greatest score decides, so that a restarted planner decides
alike; a score is the sum of a weight, a weight times the binary logarithm of demanded over present GPUs, and a weight
times the share of unfinished jobs that do not declare their size; the weights are those of a seeded random search on
three job logs, each with declared and with unknown sizes (`benchmarks/selector_weights.py`). It reads all jobs before
each decision.
"""

from dataclasses import dataclass
from math import inf, log2
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.policies.queue.fifo_skip import FifoSkip
from tranche.policies.queue.las import Las
from tranche.policies.queue.sjf import Sjf
from tranche.policies.queue.srsf import Srsf
from tranche.policies.queue.srtf import Srtf
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState

MEMBERS: dict[str, PooledPolicy] = {one.name: one for one in (FifoSkip(), Las(), Sjf(), Srsf(), Srtf())}
"""Policies that can be chosen: those whose traits differ in preemption alone."""
FEATURES = 3
"""Number of weights of each policy."""
LARGEST_LOAD = 3.0
"""Bound of the binary logarithm of demanded over present GPUs, in both directions."""


@dataclass(frozen=True, slots=True)
class Selector(PooledPolicy):
    """Order of the policy that scores best in the present state of the cluster."""

    name: ClassVar[str] = "selector"
    source: ClassVar[str] = (
        "ASET-like and Improper-RL-like, ours [I]: a policy chosen by the cluster's state, weights learnt by simulation"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which the chosen policy puts first", preemptive=True
    )

    members: str = "srsf+srtf+las+fifo-skip"
    """Policies to choose from, joined by `+`: some of fifo-skip, las, sjf, srsf and srtf."""
    weights: tuple[float, ...] = (1.18, 0.83, 0.56, 0.10, -0.88, 0.36, 0.06, 0.58, 2.18, 0.88, -0.04, 0.16)
    """Three weights for each of them: constant, load, share of jobs of unknown size."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        names = self.members.split("+")
        unknown = [name for name in names if name not in MEMBERS]
        if unknown or len(set(names)) < len(names):
            raise ValueError(f"selector chooses among different ones of {', '.join(MEMBERS)}, not {self.members!r}")
        if len(self.weights) != FEATURES * len(names):
            raise ValueError(f"selector needs {FEATURES * len(names)} weights for {len(names)} members")

    def rank_epoch(self, cluster: ClusterState) -> int:
        """Return the number of the policy with the greatest score, the first of equal ones."""
        load, unsized = features(cluster)
        scores = [
            self.weights[at] + self.weights[at + 1] * load + self.weights[at + 2] * unsized
            for at in range(0, len(self.weights), FEATURES)
        ]
        return scores.index(max(scores))

    def chosen(self, state: JobState) -> PooledPolicy:
        """Return the policy by which the job was ranked."""
        return MEMBERS[self.members.split("+")[state.rank_epoch]]

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the rank of the chosen policy."""
        return self.chosen(state).rank(state, cluster, now)

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return the reason of the chosen policy."""
        return self.chosen(first).precedence_reason(first, second, cluster, now)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return the decrease of the rank of the chosen policy."""
        return self.chosen(state).rank_decrease_per_second(state, now)

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the level of the chosen policy."""
        return self.chosen(state).level(state, cluster, now)

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when the rank of the chosen policy changes."""
        return self.chosen(state).next_rank_change(state, cluster, now)

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Return the bound of the chosen policy; inf if that policy stops no worker."""
        chosen = self.chosen(state)
        return chosen.min_remaining_to_preempt(state, seconds, victim, now) if chosen.traits.preemptive else inf


def features(cluster: ClusterState) -> tuple[float, float]:
    """Return the binary logarithm of demanded over present GPUs, bounded, and the share of jobs of unknown size."""
    active = [state for state in cluster.jobs.values() if state.active]
    demanded = sum(state.job_gpus for state in active)
    present = sum(node.capacity.gpus for node in cluster.nodes.values())
    if not (demanded and present):
        return 0.0, 0.0
    unsized = sum(not state.job.size_declared for state in active)
    return max(-LARGEST_LOAD, min(LARGEST_LOAD, log2(demanded / present))), unsized / len(active)
