"""What evicting pods for a foreign pod would lose, and which victims lose least.

kube-scheduler proposes victims by priority and age, node by node. Our pods of one tier have equal priorities, but lose
very different amounts of work: the GPU-seconds since the worker's last durable progress, and the restart; of the whole
gang, if it is a member of one.
"""

from collections.abc import Iterable, Mapping

from tranche.extender.view import View
from tranche.extender.wire_format import MetaPod, MetaVictims
from tranche.kube.api.names import ROLE_SERVER, ROLE_WORKER
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pod_identity import identity
from tranche.kube.convert.pods_and_nodes import Pod, pod_requests, started_at, template_shape
from tranche.model.quantity import parse_duration

Cost = tuple[int, int, float]
"""Budgets violated, victims whose jobs are never to be stopped, GPU-seconds lost; the smaller is better."""


def least_loss(pod: Pod, victims: Mapping[str, MetaVictims], view: View, now: float) -> dict[str, MetaVictims]:
    """The node where evicting loses least, with the victims that lose least there; all nodes if nobody loses.

    Args:
        pod: Who wants to preempt; not one of ours.
        victims: By node, as kube-scheduler proposes.
        view: Pods, jobs, nodes.
        now: Seconds since the epoch.
    """
    by_uid = {found.metadata.uid: found for name in victims for found in _pods_on(name, view)}
    chosen = {name: _swapped(pod, name, proposed, by_uid, view, now) for name, proposed in victims.items()}
    costs = {name: _cost(one, by_uid, view, now) for name, one in chosen.items()}
    if all(cost == (0, 0, 0.0) for cost in costs.values()):
        return dict(victims)
    best = min(costs, key=lambda name: (costs[name], name))
    return {best: chosen[best]}


def loss(pod: Pod, view: View, now: float) -> tuple[int, float]:
    """What evicting one pod costs: 1 if its job forbids it, and GPU-seconds; of foreign pods nothing is known.

    A worker with a parameter server has pushed its work there; one without has finished nothing until it ends; a member
    of a gang, and a parameter server, take the others with them.
    """
    who = identity(pod)
    job = view.jobs.get(who.job) if who is not None else None
    if who is None or job is None or pod.metadata.deletion_timestamp is not None:
        return 0, 0.0
    began = started_at(pod)
    trained = max(0.0, now - began) if began is not None else 0.0
    restart = _restart_seconds(job)
    never, workers = int(job.spec.preemption.policy == "Never"), _open_windows(job)
    if job.spec.data is None or who.role == ROLE_SERVER:
        gpus = template_shape(job.spec.workers.template, view.gpu_resource).requests.gpus
        return never, max(1, gpus * workers) * (trained + restart)
    pushed = job.spec.parameter_servers is not None
    return never, max(1, pod_requests(pod, view.gpu_resource).gpus) * (restart + (0.0 if pushed else trained))


def _restart_seconds(job: TrainingJob) -> float:
    """What the planner reckons with; what the user says until it has told."""
    reckoned = job.status.progress.restart_seconds if job.status.progress is not None else None
    return parse_duration(job.spec.preemption.restart_overhead or "0s") if reckoned is None else reckoned


def _open_windows(job: TrainingJob) -> int:
    plan = job.status.plan
    return sum(window.state == "Open" for window in plan.workers) if plan is not None else 0


def _cost(victims: MetaVictims, pods: Mapping[str, Pod], view: View, now: float) -> Cost:
    losses = [loss(pods[victim.uid], view, now) for victim in victims.pods if victim.uid in pods]
    return victims.pdb_violations, sum(never for never, _ in losses), sum(seconds for _, seconds in losses)


def _swapped(
    pod: Pod, name: str, proposed: MetaVictims, pods: Mapping[str, Pod], view: View, now: float
) -> MetaVictims:
    """The same number of victims of the same size and priority, those that lose least.

    Only where it is room that the pod lacks: then it fits in as well when others of the same size go.
    """
    use = view.reservations.node(name)
    known = [pods[victim.uid] for victim in proposed.pods if victim.uid in pods]
    if not known or len(known) < len(proposed.pods) or pod_requests(pod, view.gpu_resource).fits(use.free):
        return proposed
    taken = {one.metadata.uid for one in known}
    chosen: list[MetaPod] = []
    for victim in known:
        alike = [one for one in _pods_on(name, view) if one.metadata.uid not in taken and _alike(one, victim, view)]
        best = min(alike, key=lambda one: (*loss(one, view, now), one.metadata.uid), default=victim)
        if loss(best, view, now) < loss(victim, view, now):
            taken.add(best.metadata.uid)
            victim = best
        chosen.append(MetaPod(victim.metadata.uid))
    return MetaVictims(chosen, proposed.pdb_violations)


def _alike(one: Pod, other: Pod, view: View) -> bool:
    """Whether both are training pods that ask for the same and rank alike with kube-scheduler."""
    who, whose = identity(one), identity(other)
    ours = who is not None and whose is not None and who.role == whose.role == ROLE_WORKER
    same = one.metadata.namespace == other.metadata.namespace and one.spec.priority == other.spec.priority
    return ours and same and pod_requests(one, view.gpu_resource) == pod_requests(other, view.gpu_resource)


def _pods_on(name: str, view: View) -> Iterable[Pod]:
    return (pod for key in view.reservations.node(name).pods if (pod := view.pods.get(key)) is not None)
