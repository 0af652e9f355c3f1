"""Handlers for nodes, sites and quotas that are added, changed or removed, and the effects on plans."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf

from tranche.estimate import link_between
from tranche.model import Node, Resources, Site, Taint, Tier
from tranche.planner import node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import (
    KubeSchedulerChanged,
    NodeChanged,
    NodeJoined,
    NodeRemoved,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
)
from tranche.planner.job_actions import (
    NOT_TAKEN,
    close_window,
    close_without_site,
    displace,
    has_fallback,
    readmit_node,
    unbind_chunks,
)
from tranche.planner.scheduling.slot_scheduler import bind_window
from tranche.planner.unplaced_pods import forget_refusals, shorten_pauses
from tranche.policies import BindingPolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.phases import WindowPhase
from tranche.state.staging import expected_copies
from tranche.state.window import TrackedWindow


def node_changed(context: PlannerContext, event: NodeChanged) -> None:
    """Update a new or changed node; unbind chunks and close windows that it cannot hold any more."""
    cluster, node = context.cluster, with_kind(context, event.node)
    known = cluster.nodes.get(node.name)
    is_new = known is None
    if known is None:
        known = NodeState(node)
        cluster.add_node(known)
    moved = known.node.site != node.site
    before = known.node
    known.set_node(node)
    if cluster.weighs_gpu_kinds:
        known.learn(cluster.speed_model.node_factor(node.name, node.gpu_kind))
    if moved or (before.unschedulable and not node.unschedulable):
        node_exclusion.repaired(context, node.name)
    if replace(before, foreign=node.foreign) != node or not before.foreign.fits(node.foreign):
        readmit_node(context, node.name)  # more use by foreign pods alone is no reason to try the node again
    if is_new or _offers(before) != _offers(node):
        shorten_pauses(context)
    cluster.nodes_changed()
    gone = {id(entry): entry for queue in known.queues[known.slots :] for entry in queue}
    known.queues += [[] for _ in range(len(known.queues), known.slots)]
    unfit = [e for e in known.entries() if moved or known.objection(e.state.job.worker) is not None]
    for entry in (gone | {id(e): e for e in unfit}).values():
        if id(entry) in gone or entry.chunk not in entry.state.chunk_runs:
            unbind_chunks(context, entry.state, (entry.chunk,))
    del known.queues[known.slots :]
    if context.binding is not None:
        _bind_windows_without_slots(context, context.binding, known)
    if context.queue is not None:
        displace(context, (node.name,))  # make way for foreign pods
    _leave_node(context, known, [one for one in known.runs.values() if known.misfit(one[0].job.worker) is not None])
    context.work.nodes.add(node.name)
    context.capacity_changed()


def _bind_windows_without_slots(context: PlannerContext, policy: BindingPolicy, node: NodeState) -> None:
    """Bind running windows to slots of their node that has lost their slots, has slots again or was registered again.

    They continue without slots while it has too few. The policy preempts only windows with slots.
    """
    without = [
        (state, run)
        for state, run in node.runs.values()
        if run.reserves and not any(chunk in state.entries for chunk in run.window.chunks)
    ]
    for _, run in without:
        run.home = run.home._replace(slots=())
    for state, run in without:
        bind_window(context, policy, state, run, run.window)


def _leave_node(context: PlannerContext, node: NodeState, windows: Iterable[tuple[JobState, TrackedWindow]]) -> None:
    """Close those of the windows whose pods are not bound yet, because the node does not take these pods any more.

    kube-scheduler would find no place for these pods, except on a fallback node. Pods that are bound continue.
    """
    for state, run in list(windows):
        if run.phase is WindowPhase.PENDING and not has_fallback(context, state, run):
            close_window(context, state, run, f"node {node.node.name} {NOT_TAKEN}")
            unbind_chunks(context, state, run.window.chunks)


def with_kind(context: PlannerContext, node: Node) -> Node:
    """Return the node with its GPU kind and the declared speed of this kind, if the installation defines kinds."""
    kinds = context.settings.gpu_kinds
    if kinds is None:
        return node
    kind = kinds.kind_of(node.labels)
    return replace(node, kind=kind, speed=kinds.speed_of(kind))


def _offers(node: Node) -> tuple[Resources, Mapping[str, int], Mapping[str, str], tuple[Taint, ...]]:
    """Return what decides whether a pod fits the node, except what Kubernetes changes when the node is not healthy."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith("node.kubernetes.io/"))
    return node.allocatable, node.extended, node.labels, taints


def scheduler_changed(context: PlannerContext, event: KubeSchedulerChanged) -> None:
    """Note whether kube-scheduler responds; jobs preempt no others while it does not."""
    cluster = context.cluster
    if cluster.scheduler_silent == (not event.responds):
        return
    cluster.scheduler_silent = not event.responds
    if event.responds and context.queue is not None:
        context.queue.invalidate_preemption(("",))
    if event.responds:
        context.work.nodes.update(cluster.nodes)
    for state in cluster.jobs.values():
        if state.active and not state.runs:
            context.publish(state.job.key)


def node_removed(context: PlannerContext, event: NodeRemoved) -> None:
    """Remove a node; windows whose pods are bound remain until the ends of these are reported."""
    name = event.node
    node = context.cluster.nodes.pop(name, None)
    if node is None:
        return
    context.cluster.nodes_changed()
    context.cluster.speed_model.forget_node(name)
    context.jobs_excluded_by_node.pop(name, None)
    node_exclusion.repaired(context, name)
    for entry in node.entries():
        unbind_chunks(context, entry.state, (entry.chunk,))
    _leave_node(context, node, node.runs.values())
    context.work.nodes.discard(name)
    context.capacity_changed()


def node_joined(context: PlannerContext, event: NodeJoined) -> None:
    """Let jobs use an unlimited site again where their pods found no place: its autoscaler creates nodes now."""
    forget_refusals(context, event.site)


def site_changed(context: PlannerContext, event: SiteChanged) -> None:
    """Update a new or changed site."""
    site, kinds = event.site, context.settings.gpu_kinds
    if kinds is not None:
        site = replace(site, speed=kinds.speed_of(site.gpu_kind))
    _set_sites(context, {**context.cluster.sites, site.name: site})


def site_removed(context: PlannerContext, event: SiteRemoved) -> None:
    """Remove a site."""
    sites = context.cluster.sites
    _set_sites(context, {known: site for known, site in sites.items() if known != event.site})


def _set_sites(context: PlannerContext, sites: dict[str, Site]) -> None:
    cluster, uploads = context.cluster, context.cluster.uploads
    coming = [*_uploads_in_progress(cluster, context.now)]
    for ends in uploads.links():
        before, after = (link_between(cluster.network, one, *ends) for one in (cluster.sites, sites))
        if before != after:
            uploads.change_link(ends, before, after, context.now)
    cluster.sites = sites
    for state, site, seconds in coming:
        _expect_uploads_again(context, state, site, seconds)
    context.cluster.uploads.clouds = {site.name for site in sites.values() if site.tier is Tier.CLOUD}
    context.cluster.nodes_changed()
    for state in context.cluster.jobs.values():
        state.nominal_batch_seconds = context.cluster.nominal_batch_seconds(state)
        _clouds_changed(context, state)
        state.windows_changed()
    context.capacity_changed()


def _uploads_in_progress(cluster: ClusterState, now: float) -> Iterator[tuple[JobState, str, float]]:
    """Yield the jobs whose data are on the way to a site, with the site and the time of one upload, in seconds."""
    for state in cluster.jobs.values():
        known = expected_copies(state.copies, state.coming)
        sites = {site for site, times in known.items() if any(now < until < inf for until in times.values())}
        sites.update(entry.home.site for entry in state.entries.values() if entry.ready_at > now)
        for site in sorted(sites):
            yield state, site, cluster.transfer_seconds(state, site)


def _expect_uploads_again(context: PlannerContext, state: JobState, site: str, before: float) -> None:
    """Expect uploads of a job at other times if the time of one has changed: they go on at the speed of their link."""
    now, after = context.now, context.cluster.transfer_seconds(state, site)
    if after == before or not before:
        return

    def later(until: float) -> float:
        return now + (until - now) * after / before

    for chunk, until in expected_copies({site: state.copies.get(site, {})}, state.coming)[site].items():
        if now < until < inf:
            reported = (site, chunk) in state.coming
            state.copy(chunk, site, later(until), reported=reported)
            if not reported:
                context.wake(later(until), state.job.key)
    for entry in state.entries.values():
        if entry.home.site == site and entry.ready_at > now:
            entry.ready_at = later(entry.ready_at)
            context.wake(entry.ready_at, state.job.key)
    if state.uploaded_at is not None and now < state.uploaded_at < inf:
        times = (until for copies in state.copies.values() for until in copies.values())
        state.uploaded_at = max([now, *times])
    context.touch(state)
    context.publish(state.job.key)


def _clouds_changed(context: PlannerContext, state: JobState) -> None:
    """Unbind chunks that wait for a site that is not unlimited any more, and let the job be reviewed again.

    Windows there whose pods are not bound close: without the labels of the site, the operator creates no pod for them.
    """
    cluster = context.cluster
    state.cloud = {chunk: site for chunk, site in state.cloud.items() if cluster.is_unlimited(site)}
    state.burst_sites = cluster.clouds_with_copies(state)
    state.reviewed = -1
    context.rank_again(state)
    gone = [
        entry.chunk
        for entry in state.entries.values()
        if entry.home.node is None and not cluster.is_unlimited(entry.home.site)
    ]
    if gone:
        state.colocated = False
        unbind_chunks(context, state, gone)
    close_without_site(context, state)


def quota_changed(context: PlannerContext, event: QuotaChanged) -> None:
    """Update a quota: a change of limits or scopes changes demand classes; foreign usage changes only the rest."""
    quota = event.quota
    known = context.cluster.quotas.by_namespace.get(quota.namespace, {}).get(quota.name)
    context.cluster.quotas.put(quota)
    if known is None or known.with_foreign({}) != quota.with_foreign({}):
        _quotas_differ(context, quota.namespace)
    else:
        context.namespace_freed(quota.namespace)


def quota_removed(context: PlannerContext, event: QuotaRemoved) -> None:
    """Remove a quota."""
    context.cluster.quotas.remove(event.namespace, event.name)
    _quotas_differ(context, event.namespace)


def _quotas_differ(context: PlannerContext, namespace: str) -> None:
    """Reconsider all jobs of a namespace: other quotas apply to it, so its demand classes change."""
    for state in context.cluster.jobs.values():
        if state.job.namespace == namespace:
            context.touch(state)
            if not state.runs:
                context.publish(state.job.key)
    context.capacity_freed(None)
