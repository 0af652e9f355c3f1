"""RRH-like (risk-reward heuristic): jobs run in order of what they are worth less what they cost others, per GPU.

Source: RRH as a comparator of OASiS (INFOCOM 2018, arXiv 1801.00936), described there in one sentence [P]: a job is
admitted if its utility less the cost of the delay that it causes is above a threshold, and on arrivals and completions
unfinished jobs run in order of future utility less cost, others pause; numbers of workers are fixed. The formula is
ours [I]: a job is worth u(its end if it runs at once); its cost is the sum over all other unfinished jobs of what they
are worth now less what they are worth when all of them end later by its GPU-seconds over all GPUs; there is no delay
where all jobs fit beside each other. [I] the fixed number is the most workers of the job, or as many as find room;
workers take nodes as under all queue policies, not in turn; a job that was not admitted is not dropped: it is offered
again at each arrival and completion, and takes room that no job with a payoff above the threshold can use; from then on
it counts as admitted. The utility is that of the job, or that of a job that names none: see
`tranche.policies.allocation.utility`.
"""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from tranche.policies.allocation.allocation_policy import DistributingPolicy
from tranche.policies.allocation.draft import Draft
from tranche.policies.allocation.utility import utility_of
from tranche.policies.base import PolicyTraits, PooledPolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Rrh(DistributingPolicy):
    """Greatest utility less delay cost per GPU first; a job that costs more than it is worth waits for idle room."""

    name: ClassVar[str] = "rrh"
    source: ClassVar[str] = (
        "RRH-like: utility less the cost of delay, per GPU; after one sentence of OASiS [P], formula ours [I]"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which is worth more, less what it delays",
        uses_weights=True,
        preemptive=True,
        allocates_workers=True,
    )

    threshold: float = 0.0
    """Bound of utility less cost above which a job is admitted."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not isfinite(self.threshold):
            raise ValueError("rrh needs a finite threshold")

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Give each job all its workers, one job after the other, while there is room."""
        draft = Draft(cluster, now)
        on_nodes = [state for state in draft.jobs if draft.most[state.job.key]]
        worth = payoffs(on_nodes, draft.capacity.gpus, now)

        def order(state: JobState) -> tuple[bool, float, tuple[float, int, str]]:
            payoff = worth.get(state.job.key, 0.0)
            admitted = payoff > self.threshold or bool(state.runs) or state.counted_gpu_seconds > 0
            return (not admitted, -payoff / state.job_gpus, state.arrival)

        draft.jobs.sort(key=order)
        for state in draft.jobs:
            while draft.add(state):
                pass
        return draft


def payoffs(jobs: list[JobState], gpus: int, now: float) -> dict[str, float]:
    """Return the payoff of each unfinished job by key: its utility if it runs at once, less the delay of all others.

    Args:
        jobs: All unfinished jobs.
        gpus: Number of GPUs of the cluster.
        now: Clock, in seconds.
    """
    crowded = sum(state.job_gpus for state in jobs) > gpus
    ends, delays, utilities = [], [], []
    for state in jobs:
        seconds_left = max(0.0, state.worker_seconds(now))
        ends.append(now - state.job.submitted + seconds_left / state.job.width)
        delays.append(seconds_left * max(1, state.job.gpus) / max(1, gpus) if crowded else 0.0)
        utilities.append(utility_of(state))
    by_key = {}
    values = [utility.at(end) for utility, end in zip(utilities, ends, strict=True)]
    fading = [i for i, value in enumerate(values) if value > 1e-9 * utilities[i].priority]
    for number, state in enumerate(jobs):
        delay = delays[number]
        cost = sum(values[i] - utilities[i].at(ends[i] + delay) for i in fading if i != number) if delay else 0.0
        by_key[state.job.key] = values[number] - cost
    return by_key
