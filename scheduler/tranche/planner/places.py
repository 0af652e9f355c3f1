"""Nodes and sites that come, change and go, and what that means for what is planned there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tranche.estimate import link_between
from tranche.model import Node, Site
from tranche.planner import arrivals, changes, refusals
from tranche.planner.events import NodeChanged, NodeRemoved, SiteChanged, SiteRemoved
from tranche.state.entities import JobState, NodeState, TrackedWindow

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def change(planner: Planner, event: NodeChanged | NodeRemoved | SiteChanged | SiteRemoved) -> None:
    """Note one of these facts."""
    sites = planner.cluster.sites
    match event:
        case NodeChanged(node=node):
            _node_changed(planner, node)
        case NodeRemoved(node=name):
            _node_removed(planner, name)
        case SiteChanged(site=site):
            _sites_changed(planner, {**sites, site.name: site})
        case SiteRemoved(site=name):
            _sites_changed(planner, {known: site for known, site in sites.items() if known != name})


def _node_changed(planner: Planner, node: Node) -> None:
    cluster = planner.cluster
    known = cluster.nodes.get(node.name)
    if known is None:
        known = cluster.nodes[node.name] = NodeState(node)
        _readopt(planner, known)
    moved = known.node.site != node.site
    before = known.node
    known.set_node(node)
    if replace(before, foreign=node.foreign) != node or not before.foreign.fits(node.foreign):
        refusals.forgive(planner, node.name)  # it has not just become fuller
    cluster.nodes_changed()
    gone = {id(entry): entry for queue in known.queues[known.slots :] for entry in queue}
    known.queues += [[] for _ in range(len(known.queues), known.slots)]
    unfit = [e for e in known.entries() if moved or known.objection(e.state.job.worker) is not None]
    displaced: dict[int, tuple[JobState, TrackedWindow]] = {}
    for entry in (gone | {id(e): e for e in unfit}).values():
        run = entry.state.chunk_runs.get(entry.chunk)
        if run is None or id(entry) in gone:
            changes.unbind(planner, entry.state, (entry.chunk,))
        if run is not None and id(entry) in gone:
            displaced[id(run)] = (entry.state, run)
    del known.queues[known.slots :]
    for state, run in displaced.values():  # what runs goes on, on the slots that are left
        run.home = run.home._replace(slots=())
        if planner.binding is not None:
            arrivals.bind_window(planner, planner.binding, state, run, run.window)
    if planner.queue is not None:
        refusals.displace(planner, (node.name,))  # what foreign pods have taken
    planner.dirty_nodes.add(node.name)
    planner.reconsider_unbound()


def _readopt(planner: Planner, node: NodeState) -> None:
    """A node (re)appears: windows and servers that were planned for it reserve there again."""
    name = node.node.name
    for state in planner.cluster.jobs.values():
        for server in state.servers:
            if server.planned.node == name:
                node.reserved = node.reserved + server.requests
        for run in state.runs.values():
            if run.home.node == name:
                node.runs[(state.job.key, run.window.attempt)] = (state, run)
                if run.closing:
                    node.leaving[(state.job.key, run.window.attempt)] = run
                else:
                    node.reserved = node.reserved + state.job.worker.requests


def _node_removed(planner: Planner, name: str) -> None:
    node = planner.cluster.nodes.pop(name, None)
    if node is None:
        return
    planner.cluster.nodes_changed()
    planner.cluster.lessons.forget_node(name)
    for entry in node.entries():
        changes.unbind(planner, entry.state, (entry.chunk,))
    planner.dirty_nodes.discard(name)
    planner.reconsider_unbound()


def _sites_changed(planner: Planner, sites: dict[str, Site]) -> None:
    network, before, learnt = planner.cluster.network, planner.cluster.sites, planner.cluster.uploads.corrections
    for ends in list(learnt):
        if link_between(network, before, *ends) != link_between(network, sites, *ends):
            del learnt[ends]  # it was relative to what was promised
    planner.cluster.sites = sites
    planner.cluster.nodes_changed()
    for state in planner.cluster.jobs.values():
        state.nominal_batch_seconds = planner.cluster.nominal_batch_seconds(state)
        _clouds_changed(planner, state)
        state.windows_changed()
    planner.reconsider_unbound()


def _clouds_changed(planner: Planner, state: JobState) -> None:
    """Release chunks that were to train at a site that is not unlimited any more, and have the job compared again."""
    cluster = planner.cluster
    state.cloud = {chunk: site for chunk, site in state.cloud.items() if cluster.is_unlimited(site)}
    state.burst_sites = {site for site in state.copies if cluster.is_unlimited(site)}
    state.reviewed = -1
    if planner.queue is not None:
        planner.queue.stale[state.job.key] = None
    gone = [
        entry.chunk
        for entry in state.entries.values()
        if entry.home.node is None and not cluster.is_unlimited(entry.home.site)
    ]
    if gone:
        state.colocated = False
        changes.unbind(planner, state, gone)
