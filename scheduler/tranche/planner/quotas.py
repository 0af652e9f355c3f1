"""Windows within the quotas of their namespace, and room made in a quota by those that rank behind."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tranche.model import Quota
from tranche.planner.rooms import Challenge, Trial, Victim, free_nodes
from tranche.planner.servers import joining, missing_requests
from tranche.policies import ClusterState, JobState, Kind, NodeState, Shortage, kind_of

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def shortage(cluster: ClusterState, state: JobState) -> Shortage | None:
    """The limit that keeps the job from one more worker (a gang: from all), with the servers that it lacks."""
    if not cluster.quotas.by_namespace:
        return None
    workers = state.job.together
    return cluster.quotas.shortage(state.job, workers, missing_requests(state))


def make_quota(planner: Planner, challenge: Challenge, nodes: list[NodeState], behind: list[JobState]) -> bool:
    """Stop windows of the namespace that rank behind, if their quota would let the job run; whether any was stopped.

    The quota has room only when their pods are over; the job, which ranks first, is planned then.

    Args:
        planner: Closes the windows.
        challenge: Of the job that its quotas hold back.
        nodes: That it could use.
        behind: Jobs that may be preempted, the first in rank first.
    """
    state, now = challenge.state, challenge.now
    workers = state.job.together
    quotas, job, missing = planner.cluster.quotas, state.job, missing_requests(state)
    less: Counter[Kind] = Counter()
    for other in planner.cluster.jobs.values():
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
        and Trial(planner.cluster, state, now, challenge.victims(behind)).find(nodes, workers, joining(state)) is None
    ):
        return False
    for victim in chosen:
        for run in victim.runs:
            planner.close(victim.state, run, preempted_by=job.key)
        if planner.queue is not None:
            planner.queue.note_running(victim.state, now)
    return bool(chosen)


def quota_changed(planner: Planner, quota: Quota) -> None:
    """Limits and scopes change who waits with whom; what others use only changes how much is left."""
    known = planner.cluster.quotas.by_namespace.get(quota.namespace, {}).get(quota.name)
    planner.cluster.quotas.put(quota)
    if known is None or known.with_foreign({}) != quota.with_foreign({}):
        quotas_differ(planner, quota.namespace)
    else:
        planner.quota_grew(quota.namespace)


def quotas_differ(planner: Planner, namespace: str) -> None:
    """Other quotas hold for a namespace: who waits with whom has to be worked out anew."""
    for state in planner.cluster.jobs.values():
        if state.job.namespace == namespace:
            planner.touch(state)
            if not state.runs:
                planner.publish(state.job.key)
    planner.room_grew(None)
