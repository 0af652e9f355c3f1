"""Extender verbs as pure functions of a pod, node names and the view; they keep no state between calls.

A planned pod goes to its planned node. A fallback node is used only if no other plan has reserved it. Foreign pods are
unrestricted, except that pods of equal or lower priority cannot take reserved GPUs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tranche.extender.eviction_cost import least_loss
from tranche.extender.reservations import Entry, NodeUse, is_closing
from tranche.extender.view import View
from tranche.extender.wire_format import FilterResult, HostPriority, MetaVictims
from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import PLANNED_ROLES, PRIORITIES, ROLE_CHIEF, ROLE_WORKER
from tranche.kube.api.resources import Plan
from tranche.kube.convert.pod_identity import Identity, controlled_identity, plan_stamp
from tranche.kube.convert.pod_shape import pod_requests
from tranche.model import Resources

HIGHEST = 10
LOCALITY = 4
SAME_NODE = 3
SAME_SITE = 2
PACKING = 2


def filter_nodes(pod: Pod, names: Iterable[str], view: View) -> FilterResult:
    """Pass or reject every input node; each rejection has a readable reason."""
    offered = dict.fromkeys(names, "")
    try:
        requests = pod_requests(pod, view.gpu_resources)
    except ValueError as error:
        return _none(offered, f"the pod's requests cannot be read: {error}")
    who = controlled_identity(pod)
    if who is None or who.role not in PLANNED_ROLES:
        return _filter_foreign(pod, offered, requests, view)
    plan = _plan(pod, who, view)
    if plan is None:
        return FilterResult(list(offered))
    entry = view.reservations.entry(who)
    if entry is None or is_closing(entry):
        return _none(offered, f"{_name(who)} is closed in plan {plan.term}.{plan.revision}")
    if entry.node is None:
        return FilterResult(list(offered))
    if entry.node in offered:
        others = dict.fromkeys(offered, f"planned for {entry.node}")
        del others[entry.node]
        return FilterResult([entry.node], others)
    if leaving := view.reservations.leaving(entry.node):
        return _none(offered, f"waiting for {leaving} to terminate on {entry.node}")
    return _filter_fallbacks(pod, entry, offered, requests, view)


def prioritize(pod: Pod, names: Iterable[str], view: View) -> list[HostPriority]:
    """Score every input node from 0 to 10."""
    offered = list(dict.fromkeys(names))
    try:
        requests = pod_requests(pod, view.gpu_resources)
    except ValueError:
        return [HostPriority(name, 0) for name in offered]
    who = controlled_identity(pod)
    plan = _plan(pod, who, view) if who is not None else None
    entry = view.reservations.entry(who) if who is not None and plan is not None else None
    if who is None or plan is None or entry is None:
        # Pods without a plan avoid nodes with reservations.
        return [HostPriority(name, 0 if view.reservations.node(name).claims else HIGHEST) for name in offered]
    score = _scorer(who, plan, requests, view)
    return [HostPriority(name, HIGHEST if name == entry.node else score(name)) for name in offered]


def preempt(pod: Pod, victims: Mapping[str, MetaVictims], view: View, now: float) -> dict[str, MetaVictims]:
    """Keep the nodes that the filter would pass; for a foreign pod, only the one with the lowest eviction cost.

    An eviction on a node that the filter rejects would have no effect. Training pods do not preempt by themselves; the
    planner preempts for them. `now` is in seconds since the epoch.
    """
    if controlled_identity(pod) is not None:
        kept = set(filter_nodes(pod, victims, view).node_names)
        return {name: found for name, found in victims.items() if name in kept}
    try:
        requests = pod_requests(pod, view.gpu_resources)
    except ValueError:
        return {}
    priority, protection = pod.spec.priority or 0, view.reservations.protection
    possible = {
        name: found
        for name, found in victims.items()
        if not (requests.gpus and protection(name, priority, requests.gpu_resource)[0])
    }
    try:
        return least_loss(pod, possible, view, now)
    except ValueError:  # the cost is unknown without a readable template
        return possible


def _plan(pod: Pod, who: Identity, view: View) -> Plan | None:
    """Return the plan of the pod's job; None if the pod was created from a newer plan than the watch has shown."""
    job = view.jobs.get(who.job)
    plan = job.status.plan if job is not None else None
    return None if plan is None or plan_stamp(pod) > (plan.term, plan.revision) else plan


def _name(who: Identity) -> str:
    if who.role == ROLE_CHIEF:
        return f"chief (attempt {who.attempt}) of {who.job}"
    what = "window" if who.role == ROLE_WORKER else "parameter server"
    return f"{what} {who.index} (attempt {who.attempt}) of {who.job}"


def _none(offered: Iterable[str], reason: str) -> FilterResult:
    return FilterResult([], dict.fromkeys(offered, reason))


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


def _scorer(who: Identity, plan: Plan, requests: Resources, view: View) -> Callable[[str], int]:
    """Score of nodes other than the planned one: data locality, distance to peers, and packing."""
    peers: Sequence[Entry] = plan.parameter_servers if who.role == ROLE_WORKER else plan.workers
    nodes, sites = {peer.node for peer in peers}, {peer.site for peer in peers}

    homes, node_of, site_of = plan.homes, view.reservations.node, view.site_of

    def score(name: str) -> int:
        site = site_of(name)
        near = SAME_NODE if name in nodes else SAME_SITE if site in sites else 0
        return (LOCALITY if site in homes else 0) + near + _packing(node_of(name), requests)

    return score


def _packing(use: NodeUse, requests: Resources) -> int:
    """Packing score: 0 on an empty node, up to `PACKING` if the pod uses all remaining resources."""
    if use.capacity is None:
        return 0
    if requests.gpus:
        whole, left = use.capacity.gpus, use.free.gpus - requests.gpus
    else:
        whole, left = use.capacity.cpu, use.free.cpu - requests.cpu
    if left <= 0 or whole <= 0:
        return PACKING if whole > 0 else 0
    return PACKING * max(0, whole - left) // whole
