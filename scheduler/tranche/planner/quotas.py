"""Windows within the quotas of their namespace, and room made in a quota by those that rank behind."""

from collections import Counter

from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window
from tranche.planner.rooms import Challenge, Trial, Victim, free_nodes
from tranche.planner.servers import joining, missing_requests
from tranche.policies import ClusterState, JobState, Kind, NodeState, Shortage, kind_of


def shortage(cluster: ClusterState, state: JobState) -> Shortage | None:
    """The limit that keeps the job from one more worker (a gang: from all), with the servers that it lacks."""
    if not cluster.quotas.by_namespace:
        return None
    workers = state.job.together
    return cluster.quotas.shortage(state.job, workers, missing_requests(state))


def make_quota(context: PlannerContext, challenge: Challenge, nodes: list[NodeState], behind: list[JobState]) -> bool:
    """Stop windows of the namespace that rank behind, if their quota would let the job run; whether any was stopped.

    The quota has room only when their pods are over; the job, which ranks first, is planned then.

    Args:
        context: Has the jobs and the queue.
        challenge: Of the job that its quotas hold back.
        nodes: That it could use.
        behind: Jobs that may be preempted, the first in rank first.
    """
    state, now = challenge.state, challenge.now
    workers = state.job.together
    quotas, job, missing = context.cluster.quotas, state.job, missing_requests(state)
    less: Counter[Kind] = Counter()
    for other in context.cluster.jobs.values():
        if other.job.namespace == job.namespace:
            less[kind_of(other.job, other.job.worker.requests)] -= sum(run.closing for run in other.runs.values())
    chosen: list[Victim] = []
    victims = challenge.victims([one for one in behind if one.job.namespace == job.namespace])
    while (short := quotas.shortage(job, workers, missing, besides=less)) is not None:
        victim = next(victims, None)
        if victim is None:
            return False
        requests = victim.state.job.worker.requests
        if short.quota.covers(victim.state.job.priority, requests) and getattr(requests, short.limit.measure):
            chosen.append(victim)
            less[kind_of(victim.state.job, requests)] -= len(victim.runs)
    fits = len(free_nodes(nodes, state, workers, first_fit=False)) == workers
    if (
        not fits
        and Trial(context.cluster, state, now, challenge.victims(behind)).find(nodes, workers, joining(state)) is None
    ):
        return False
    for victim in chosen:
        for run in victim.runs:
            close_window(context, victim.state, run)
        if context.queue is not None:
            context.queue.note_running(victim.state, now)
    return bool(chosen)
