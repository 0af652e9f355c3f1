"""Extender verbs as pure functions of a pod, node names and the view; they keep no state between calls.

A planned pod goes to its planned node. A fallback node is used only if no other plan has reserved it. Foreign pods are
unrestricted, except that pods of equal or lower priority cannot take reserved GPUs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tranche.extender.eviction_cost import cheapest_eviction
from tranche.extender.reservations import Entry, NodeUse, is_closing
from tranche.extender.view import View
from tranche.extender.wire_format import FilterResult, HostPriority, MetaVictims
from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import PLANNED_ROLES, PRIORITIES, ROLE_CHIEF, ROLE_WORKER
from tranche.kube.api.resources import Plan
from tranche.kube.convert.pod_identity import Identity, controlled_identity, plan_stamp
from tranche.kube.convert.pod_shape import pod_constraints, pod_requests
from tranche.model import Resources, Taint

HIGHEST = 10
"""Score of the planned node; other nodes of a plan have the sum of the scores below, at most 9."""
LOCALITY = 4
"""Score of a node whose site has data of the job."""
SAME_NODE, SAME_SITE = 3, 2
"""Score of a node that has a parameter server of the worker or a worker of the helper, or whose site has one."""
PACKING = 2
"""Highest score of a node for having few resources left."""


def filter_nodes(pod: Pod, names: Iterable[str], view: View) -> FilterResult:
    """Pass or reject every input node; each rejection has a readable reason."""
    offered = dict.fromkeys(names, "")
    try:
        requests = pod_requests(pod, view.gpu_resources)
    except ValueError as error:
        return _none(offered, f"the pod's requests cannot be read: {error}")
    identity = controlled_identity(pod)
    if identity is None or identity.role not in PLANNED_ROLES:
        return _filter_foreign(pod, offered, requests, view)
    plan = _plan(pod, identity, view)
    if plan is None:
        return FilterResult(list(offered))
    entry = view.reservations.entry(identity)
    if entry is None or is_closing(entry):
        return _none(offered, f"{_name(identity)} is closed in plan {plan.term}.{plan.revision}")
    if entry.node is None:
        return FilterResult(list(offered))
    if entry.node in offered:
        rejected = dict.fromkeys(offered, f"planned for {entry.node}")
        del rejected[entry.node]
        return FilterResult([entry.node], rejected)
    leaving = view.reservations.leaving(entry.node)
    if leaving and _takes(pod, entry.node, view):
        return _none(offered, f"waiting for {leaving} to terminate on {entry.node}")
    return _filter_fallbacks(pod, entry, offered, requests, view)


def prioritize(pod: Pod, names: Iterable[str], view: View) -> list[HostPriority]:
    """Score every input node from 0 to 10."""
    offered = list(dict.fromkeys(names))
    try:
        requests = pod_requests(pod, view.gpu_resources)
    except ValueError:
        return [HostPriority(name, 0) for name in offered]
    identity = controlled_identity(pod)
    plan = _plan(pod, identity, view) if identity is not None else None
    entry = view.reservations.entry(identity) if identity is not None and plan is not None else None
    if identity is not None and identity.role in PLANNED_ROLES and plan is None:
        # The affinity of the pod decides: its planned node may have further reservations, its fallbacks none.
        return [HostPriority(name, 0) for name in offered]
    if identity is None or plan is None or entry is None:
        # Pods without a plan avoid nodes with reservations.
        return [HostPriority(name, 0 if view.reservations.node(name).claims else HIGHEST) for name in offered]
    score = _scorer(identity, plan, requests, view)
    return [HostPriority(name, HIGHEST if name == entry.node else score(name)) for name in offered]


def preempt(pod: Pod, victims: Mapping[str, MetaVictims], view: View, now: float) -> dict[str, MetaVictims]:
    """Keep the nodes that the filter would pass; for a foreign pod, only the one with the lowest eviction cost.

    An eviction on a node that the filter rejects would have no effect. Training pods do not preempt by themselves; the
    planner preempts for them. `now` is in seconds since the epoch.
    """
    if controlled_identity(pod) is not None:
        passed = set(filter_nodes(pod, victims, view).node_names)
        return {name: node_victims for name, node_victims in victims.items() if name in passed}
    try:
        requests = pod_requests(pod, view.gpu_resources)
    except ValueError:
        return {}
    priority, protection = pod.spec.priority or 0, view.reservations.protection
    possible = {
        name: node_victims
        for name, node_victims in victims.items()
        if not (requests.gpus and protection(name, priority, requests.gpu_resource)[0])
    }
    try:
        return cheapest_eviction(pod, possible, view, now)
    except ValueError:  # the cost is unknown without a readable template
        return possible


def _plan(pod: Pod, identity: Identity, view: View) -> Plan | None:
    """Return the plan of the pod's job; None if the pod was created from a newer plan than the watch has shown."""
    job = view.jobs.get(identity.job)
    plan = job.status.plan if job is not None else None
    return None if plan is None or plan_stamp(pod) > (plan.term, plan.revision) else plan


def _name(identity: Identity) -> str:
    if identity.role == ROLE_CHIEF:
        return f"chief (attempt {identity.attempt}) of {identity.job}"
    role = "window" if identity.role == ROLE_WORKER else "parameter server"
    return f"{role} {identity.index} (attempt {identity.attempt}) of {identity.job}"


def _none(offered: Iterable[str], reason: str) -> FilterResult:
    return FilterResult([], dict.fromkeys(offered, reason))


def _takes(pod: Pod, name: str, view: View) -> bool:
    """Return whether a node takes such pods, so that the room of a pod that leaves it is room for this one."""
    node = view.nodes.get(name)
    if node is None or node.spec.unschedulable or not node.ready:
        return False
    taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints)
    return pod_constraints(pod).objection(name, node.metadata.labels, taints) is None


def _filter_fallbacks(pod: Pod, entry: Entry, offered: Iterable[str], requests: Resources, view: View) -> FilterResult:
    passed: list[str] = []
    failed = dict.fromkeys(
        offered, f"planned for {entry.node}, which is not available now; this node is not a fallback"
    )
    for name in dict.fromkeys(entry.fallbacks):
        if name in failed:
            failed[name] = view.reservations.objection(name, pod.key, requests)
            if not failed[name]:
                del failed[name]
                passed.append(name)
    return FilterResult(passed, failed)


def _filter_foreign(pod: Pod, offered: Iterable[str], requests: Resources, view: View) -> FilterResult:
    priority = pod.spec.priority or 0
    if not requests.gpus or priority > max(PRIORITIES.values()):
        return FilterResult(list(offered))
    refused = view.reservations.refusals(priority, requests.gpus, requests.gpu_resource)
    failed = {name: refused[name] for name in offered if name in refused} if refused else {}
    return FilterResult([name for name in offered if name not in failed] if failed else list(offered), failed)


def _scorer(identity: Identity, plan: Plan, requests: Resources, view: View) -> Callable[[str], int]:
    """Return the function from a node other than the planned one to its score: locality, distance to peers, packing."""
    peers: Sequence[Entry] = plan.parameter_servers if identity.role == ROLE_WORKER else plan.workers
    nodes, sites = {peer.node for peer in peers}, {peer.site for peer in peers}
    homes, node_of, site_of = plan.homes, view.reservations.node, view.site_of

    def score(name: str) -> int:
        site = site_of(name)
        near = SAME_NODE if name in nodes else SAME_SITE if site in sites else 0
        return (LOCALITY if site in homes else 0) + near + _packing(node_of(name), requests)

    return score


def _packing(use: NodeUse, requests: Resources) -> int:
    """Return the packing score: 0 on an empty node, up to `PACKING` if the pod uses all remaining resources."""
    if use.capacity is None:
        return 0
    if requests.gpus:
        capacity, remaining = use.capacity.gpus, use.free.gpus - requests.gpus
    else:
        capacity, remaining = use.capacity.cpu, use.free.cpu - requests.cpu
    if remaining <= 0 or capacity <= 0:
        return PACKING if capacity > 0 else 0
    return PACKING * max(0, capacity - remaining) // capacity
