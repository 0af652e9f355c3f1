"""Eviction cost of training pods, and the choice of victims with the lowest cost.

For each node, kube-scheduler proposes victims by priority and age. Training pods of one tier have equal priorities but
very different costs: the GPU-seconds since the last durable progress plus the restart, for the whole gang if the pod is
a gang member.
"""

from collections.abc import Iterable, Mapping
from math import inf

from tranche.extender.view import View
from tranche.extender.wire_format import MetaPod, MetaVictims
from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import ROLE_SERVER, ROLE_WORKER
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pod_identity import controlled_identity
from tranche.kube.convert.pod_shape import pod_requests, template_shape
from tranche.kube.convert.pod_state import STOP_SLACK_SECONDS, started_at
from tranche.model.quantity import parse_duration

Cost = tuple[int, int, float]
"""Violated disruption budgets, victims with preemption policy Never, lost GPU-seconds; smaller is better. A gang is one
victim."""


def cheapest_eviction(pod: Pod, victims: Mapping[str, MetaVictims], view: View, now: float) -> dict[str, MetaVictims]:
    """Return the node with the lowest eviction cost and its cheapest victims; all nodes if no eviction has a cost.

    Args:
        pod: Foreign pod that preempts.
        victims: Victims by node, as proposed by kube-scheduler.
        view: View of pods, jobs and nodes.
        now: Seconds since the epoch.
    """
    by_uid = {bound_pod.metadata.uid: bound_pod for name in victims for bound_pod in _pods_on(name, view)}
    chosen = {name: _with_cheaper_pods(pod, name, proposed, by_uid, view, now) for name, proposed in victims.items()}
    costs = {name: _cost(node_victims, by_uid, view, now) for name, node_victims in chosen.items()}
    if all(cost == (0, 0, 0.0) for cost in costs.values()):
        return dict(victims)
    best = min(costs, key=lambda name: (costs[name], name))
    return {best: chosen[best]}


def loss(pod: Pod, view: View, now: float) -> tuple[int, float]:
    """Return the cost of evicting one pod: 1 if its job forbids preemption, and lost GPU-seconds; 0 for foreign pods.

    The work of a worker with a parameter server is saved there. A worker without one has no result until it ends.
    Evicting a gang member or a parameter server stops the whole job. A pod that should have stopped already costs most:
    to evict it frees nothing.
    """
    ends = pod.metadata.deletion_timestamp
    if ends is not None and now > ends.timestamp() + STOP_SLACK_SECONDS:
        return 1, inf
    identity = controlled_identity(pod)
    job = view.jobs.get(identity.job) if identity is not None else None
    if identity is None or job is None or ends is not None:
        return 0, 0.0
    began = started_at(pod)
    trained = max(0.0, now - began) if began is not None else 0.0
    restart = _restart_seconds(job)
    never, workers = int(job.preemption_policy == "Never"), _open_windows(job)
    if job.spec.data is None or identity.role == ROLE_SERVER:
        gpus = template_shape(job.spec.workers.template, view.gpu_resources).requests.gpus
        return never, max(1, gpus * workers) * (trained + restart)
    pushed = job.spec.parameter_servers is not None
    return never, max(1, pod_requests(pod, view.gpu_resources).gpus) * (restart + (0.0 if pushed else trained))


def _restart_seconds(job: TrainingJob) -> float:
    """Return the restart cost in seconds as estimated by the planner; as declared before the first estimate."""
    estimated = job.status.progress.restart_seconds if job.status.progress is not None else None
    return parse_duration(job.spec.preemption.restart_overhead or "0s") if estimated is None else estimated


def _open_windows(job: TrainingJob) -> int:
    plan = job.status.plan
    return sum(window.state == "Open" for window in plan.workers) if plan is not None else 0


def _cost(victims: MetaVictims, pods: Mapping[str, Pod], view: View, now: float) -> Cost:
    losses: dict[str, tuple[int, float]] = {}
    for pod in (pods[victim.uid] for victim in victims.pods if victim.uid in pods):
        stopped = _gang(pod, view) or pod.metadata.uid
        losses[stopped] = max(losses.get(stopped, (0, 0.0)), loss(pod, view, now))
    nevers, seconds = zip(*losses.values(), strict=True) if losses else ((), ())
    return victims.pdb_violations, sum(nevers), sum(seconds)


def _gang(pod: Pod, view: View) -> str:
    """Return the key of the gang that stops with the pod; empty if there is none."""
    identity = controlled_identity(pod)
    job = view.jobs.get(identity.job) if identity is not None else None
    return job.key if job is not None and job.spec.data is None else ""


def _with_cheaper_pods(
    pod: Pod, name: str, proposed: MetaVictims, pods: Mapping[str, Pod], view: View, now: float
) -> MetaVictims:
    """Return the victims of a node with those replaced for which cheaper ones of the same size and priority exist.

    They are replaced only if the pod lacks free resources: then evicting other pods of the same size has the same
    effect.
    """
    use = view.reservations.node(name)
    victims = [pods[victim.uid] for victim in proposed.pods if victim.uid in pods]
    if not victims or len(victims) < len(proposed.pods) or pod_requests(pod, view.gpu_resources).fits(use.free):
        return proposed
    used_uids = {candidate.metadata.uid for candidate in victims}
    chosen: list[MetaPod] = []
    for victim in victims:
        similar = [
            candidate
            for candidate in _pods_on(name, view)
            if candidate.metadata.uid not in used_uids and _are_interchangeable(candidate, victim, view)
        ]
        best = min(similar, key=lambda candidate: (*loss(candidate, view, now), candidate.metadata.uid), default=victim)
        if loss(best, view, now) < loss(victim, view, now):
            used_uids.add(best.metadata.uid)
            victim = best
        chosen.append(MetaPod(victim.metadata.uid))
    return MetaVictims(chosen, proposed.pdb_violations)


def _are_interchangeable(pod: Pod, other: Pod, view: View) -> bool:
    """Return whether both are workers with the same namespace, priority and requests."""
    identity, other_identity = controlled_identity(pod), controlled_identity(other)
    are_workers = (
        identity is not None and other_identity is not None and identity.role == other_identity.role == ROLE_WORKER
    )
    same = pod.metadata.namespace == other.metadata.namespace and pod.spec.priority == other.spec.priority
    return are_workers and same and pod_requests(pod, view.gpu_resources) == pod_requests(other, view.gpu_resources)


def _pods_on(name: str, view: View) -> Iterable[Pod]:
    return (pod for key in view.reservations.node(name).pods if (pod := view.pods.get(key)) is not None)
