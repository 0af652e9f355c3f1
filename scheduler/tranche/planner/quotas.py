"""Windows within the quotas of their namespace, and room made in a quota by those that rank behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tranche.model import Quota
from tranche.planner.rooms import Trial, Victim, free_nodes
from tranche.planner.servers import missing_servers
from tranche.policies import ClusterState, JobState, Kind, NodeState, Run, Shortage, kind_of

if TYPE_CHECKING:
    from tranche.planner.machines import Planner

Stops = Callable[[JobState, Run], bool]


def shortage(cluster: ClusterState, state: JobState) -> Shortage | None:
    """The limit that keeps the job from one more worker (a gang: from all), with the servers that it lacks."""
    if not cluster.quotas.by_namespace:
        return None
    workers = state.job.chunks if state.job.rigid else 1
    return cluster.quotas.shortage(state.job, workers, missing_servers(state))


def make_quota(
    planner: Planner, state: JobState, nodes: list[NodeState], behind: list[JobState], stops: Stops, now: float
) -> bool:
    """Stop windows of the namespace that rank behind, if their quota would let the job run; whether any was stopped.

    The quota has room only when their pods are over; the job, which ranks first, is planned then.

    Args:
        planner: Closes the windows.
        state: The job that its quotas hold back.
        nodes: That it could use.
        behind: Jobs that may be preempted, the first in rank first.
        stops: Whether a window of theirs may be closed.
        now: Clock, in seconds.
    """
    workers = state.job.chunks if state.job.rigid else 1
    quotas, job, missing = planner.cluster.quotas, state.job, missing_servers(state)
    less: Counter[Kind] = Counter()
    for other in planner.cluster.jobs.values():
        if other.job.namespace == job.namespace:
            less[kind_of(other.job, other.job.worker.requests)] -= sum(run.closing for run in other.runs.values())
    chosen: list[Victim] = []
    victims = _victims([one for one in behind if one.job.namespace == job.namespace], stops)
    while (short := quotas.shortage(job, workers, missing, besides=less)) is not None:
        victim = next(victims, None)
        if victim is None:
            return False
        requests = victim.state.job.worker.requests
        if short.quota.covers(victim.state.job.priority, requests) and getattr(requests, short.limit.measure):
            chosen.append(victim)
            less[kind_of(victim.state.job, requests)] -= len(victim.runs)
    fits = len(free_nodes(nodes, state, workers, first_fit=False)) == workers
    if not fits and Trial(planner.cluster, state, now, list(behind), stops).find(nodes, workers) is None:
        return False
    for victim in chosen:
        for run in victim.runs:
            planner.close(victim.state, run)
        if planner.queue is not None:
            planner.queue.note_running(victim.state, now)
    return bool(chosen)


def _victims(behind: list[JobState], stops: Stops) -> Iterator[Victim]:
    """Windows that may be closed, the last in rank first; those of a gang together."""
    for state in reversed(behind):
        runs = [run for run in state.runs.values() if not run.closing]
        if state.job.rigid:
            if runs and all(stops(state, run) for run in runs):
                yield Victim(state, runs)
        else:
            yield from (Victim(state, [run]) for run in reversed(runs) if stops(state, run))


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
