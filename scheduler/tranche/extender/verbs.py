"""The extender's verbs as pure functions of a pod, node names and the view: nothing is remembered between calls.

A pod of a plan goes to its planned node; a fallback is only taken where no other plan's pod is awaited. Pods of others
may go anywhere, except that equal or lower ones do not take GPUs that a plan waits for.
"""

from collections.abc import Iterable, Mapping

from tranche.extender.reservations import Entry, is_closing
from tranche.extender.views import View
from tranche.extender.wires import FilterResult, HostPriority, MetaVictims
from tranche.kube.identities import Identity, identity, plan_stamp
from tranche.kube.names import ROLE_SERVER, ROLE_WORKER
from tranche.kube.objects import Pod, pod_requests
from tranche.kube.resources import Plan
from tranche.model import Resources

HIGHEST = 10
LOCALITY = 4
SAME_NODE = 3
SAME_SITE = 2
PACKING = 2


def filter_nodes(pod: Pod, names: Iterable[str], view: View) -> FilterResult:
    """Name every input node once: as possible, or as rejected with a reason for people."""
    offered = list(dict.fromkeys(names))
    try:
        requests = pod_requests(pod, view.gpu_resource)
    except ValueError as error:
        return _none(offered, f"the pod's requests cannot be read: {error}")
    who = identity(pod)
    if who is None or who.role not in (ROLE_WORKER, ROLE_SERVER):
        return _filter_foreign(pod, offered, requests, view)
    plan = _plan(pod, who, view)
    if plan is None:
        return FilterResult(offered)
    entry = view.reservations.entry(who)
    if entry is None or is_closing(entry):
        return _none(offered, f"{_name(who)} was closed by plan {plan.term}.{plan.revision}")
    if entry.node is None:
        return FilterResult(offered)
    if entry.node in offered:
        reason = f"planned for {entry.node}"
        return FilterResult([entry.node], {name: reason for name in offered if name != entry.node})
    if leaving := view.reservations.leaving(entry.node):
        return _none(offered, f"waits for {leaving} to leave {entry.node}")
    return _filter_fallbacks(pod, entry, offered, requests, view)


def prioritize(pod: Pod, names: Iterable[str], view: View) -> list[HostPriority]:
    """Score every input node from 0 to 10."""
    offered = list(dict.fromkeys(names))
    try:
        requests = pod_requests(pod, view.gpu_resource)
    except ValueError:
        return [HostPriority(name, 0) for name in offered]
    who = identity(pod)
    plan = _plan(pod, who, view) if who is not None else None
    entry = view.reservations.entry(who) if who is not None and plan is not None else None
    if who is None or plan is None or entry is None:
        # Whoever has no plan keeps off the nodes that plans wait for.
        return [HostPriority(name, 0 if view.reservations.node(name).claims else HIGHEST) for name in offered]
    return [
        HostPriority(name, HIGHEST if name == entry.node else _score(name, who, plan, requests, view))
        for name in offered
    ]


def preempt(pod: Pod, victims: Mapping[str, MetaVictims], view: View) -> dict[str, MetaVictims]:
    """Keep the nodes that the filter would let through: evicting anybody on another one would be in vain."""
    if identity(pod) is not None:
        kept = set(filter_nodes(pod, victims, view).node_names)
        return {name: found for name, found in victims.items() if name in kept}
    try:
        gpus = pod_requests(pod, view.gpu_resource).gpus
    except ValueError:
        return {}
    priority = pod.spec.priority or 0
    return {
        name: found for name, found in victims.items() if not (gpus and view.reservations.protection(name, priority)[0])
    }


def _plan(pod: Pod, who: Identity, view: View) -> Plan | None:
    """The plan that is to decide; None if the pod's own is newer than what we have seen."""
    job = view.jobs.get(who.job)
    plan = job.status.plan if job is not None else None
    return None if plan is None or plan_stamp(pod) > (plan.term, plan.revision) else plan


def _name(who: Identity) -> str:
    what = "window" if who.role == ROLE_WORKER else "parameter server"
    return f"{what} {who.index} (attempt {who.attempt}) of {who.job}"


def _none(offered: list[str], reason: str) -> FilterResult:
    return FilterResult([], dict.fromkeys(offered, reason))


def _filter_fallbacks(pod: Pod, entry: Entry, offered: list[str], requests: Resources, view: View) -> FilterResult:
    passed: list[str] = []
    failed: dict[str, str] = {}
    for name in offered:
        reason = f"planned for {entry.node}, which cannot take it now; {name} is no fallback"
        if name in entry.fallbacks:
            reason = view.reservations.objection(name, pod.key, requests)
        if reason:
            failed[name] = reason
        else:
            passed.append(name)
    return FilterResult(passed, failed)


def _filter_foreign(pod: Pod, offered: list[str], requests: Resources, view: View) -> FilterResult:
    if not requests.gpus:
        return FilterResult(offered)
    passed: list[str] = []
    failed: dict[str, str] = {}
    priority = pod.spec.priority or 0
    for name in offered:
        gpus, holder = view.reservations.protection(name, priority)
        if gpus and requests.gpus > view.reservations.node(name).free.gpus - gpus:
            failed[name] = f"the free GPUs of {name} are reserved for {holder}, whose priority is not lower"
        else:
            passed.append(name)
    return FilterResult(passed, failed)


def _score(name: str, who: Identity, plan: Plan, requests: Resources, view: View) -> int:
    """Below the planned node: near the data, near the pods that it talks to, and where least is left over."""
    site = view.site_of(name)
    peers: list[Entry] = [*(plan.workers if who.role == ROLE_SERVER else plan.parameter_servers)]
    near = 0
    if any(peer.node == name for peer in peers):
        near = SAME_NODE
    elif any(peer.site == site for peer in peers):
        near = SAME_SITE
    return (LOCALITY if site in plan.homes else 0) + near + _packing(name, requests, view)


def _packing(name: str, requests: Resources, view: View) -> int:
    use = view.reservations.node(name)
    if use.capacity is None:
        return 0
    whole, left = (
        (use.capacity.gpus, use.free.gpus - requests.gpus)
        if requests.gpus
        else (use.capacity.cpu, use.free.cpu - requests.cpu)
    )
    return round(PACKING * (1 - max(0, min(left, whole)) / whole)) if whole else 0
