"""Status of Sites: numbers of nodes, GPUs and allocated GPUs, and conditions."""

from typing import Any

from tranche.kube.api.resources import API_VERSION, SiteObject
from tranche.kube.convert.node import node_allocatable
from tranche.kube.convert.node_condition import ExcludedNode, excluded_condition
from tranche.kube.convert.scheduler_condition import silence_condition
from tranche.kube.convert.site_membership import shared_condition, site_of, sites_of
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.live.informers import API, Informers
from tranche.live.status_writer import StatusWriter
from tranche.planner import Planner

PAUSE_SECONDS = 1.0
"""Minimum time between two updates, in seconds."""
MEMBERSHIP_SECONDS = 30.0
"""Minimum time between two searches for nodes that several Sites select, which looks at all nodes."""


class SiteStatuses:
    """Writes changed statuses of Sites, at most once a second."""

    def __init__(
        self, watches: Informers, planner: Planner, writer: StatusWriter, foreign_usage: ForeignNodeUsage
    ) -> None:
        self._watches = watches
        self._planner = planner
        self._writer = writer
        self._foreign_usage = foreign_usage
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}
        """UID and status of each Site as last written: a Site that replaces another has no status yet."""
        self._next = 0.0
        self._shared: dict[str, list[tuple[str, str]]] = {}
        """Nodes that the selector of a Site matches and that belong to another one, with that one."""
        self._next_search = 0.0

    def refresh(self, now: float) -> None:
        """Queue writes of the statuses that differ from the last ones. `now` is in seconds."""
        if now < self._next:
            return
        self._next = now + PAUSE_SECONDS
        statuses = self._statuses()
        self._add_conditions(statuses, now)
        for name, site in self._watches.sites.store.items():
            current = (site.metadata.uid, statuses[name])
            if self._written.get(name) != current:
                self._written[name] = current
                body = _body(site, statuses[name])
                self._writer.put(f"{API}/sites/{name}/status", lambda body=body: body)  # type: ignore[misc]
        self._written = {name: written for name, written in self._written.items() if name in statuses}

    def _statuses(self) -> dict[str, dict[str, Any]]:
        statuses = {
            name: {"nodes": 0, "gpus": 0, "allocatedGpus": 0, "connected": False} for name in self._watches.sites.store
        }
        for state in self._planner.cluster.nodes.values():
            node = state.node
            if node.site in statuses:
                status = statuses[node.site]
                status["nodes"] += 1
                status["gpus"] += node.allocatable.gpus
                status["allocatedGpus"] += node.foreign.gpus + state.reserved.gpus
                status["connected"] = bool(status["connected"] or node.ready)
        self._count_on_demand(statuses)
        return statuses

    def _add_conditions(self, statuses: dict[str, dict[str, Any]], now: float) -> None:
        """Add the conditions of sites that have one or need one."""
        self._find_shared_nodes(now)
        silent = self._planner.cluster.scheduler_silent
        excluded: dict[str, list[ExcludedNode]] = {}
        for one in sorted(self._planner.cluster.health.lasting(), key=lambda one: one.node):
            excluded.setdefault(one.site, []).append(ExcludedNode(one.node, one.until, one.reason))
        for name, site in self._watches.sites.store.items():
            known = site.status.conditions
            shared = self._shared.get(name, ())
            if silent or name in excluded or shared or known:
                found = (
                    excluded_condition(excluded.get(name, ()), known, now),
                    silence_condition(known, now, silent=silent),
                    shared_condition(shared, known, now),
                )
                statuses[name]["conditions"] = [condition for condition in found if condition is not None]

    def _find_shared_nodes(self, now: float) -> None:
        sites = self._watches.sites.store
        if now < self._next_search:
            return
        self._next_search = now + MEMBERSHIP_SECONDS
        self._shared = {}
        for name, node in sorted(self._watches.nodes.store.items()) if len(sites) > 1 else ():
            first, *others = [*sites_of(node.metadata.labels, sites)] or [""]
            for other in others:
                self._shared.setdefault(other, []).append((name, first))

    def _count_on_demand(self, statuses: dict[str, dict[str, Any]]) -> None:
        """Add the nodes of unlimited sites, which are not in the planner.

        Such a site is connected even without nodes.
        """
        sites = self._watches.sites.store
        unlimited = {name for name, site in sites.items() if site.spec.unlimited}
        if not unlimited:
            return
        for name, node in self._watches.nodes.store.items():
            if name in self._planner.cluster.nodes:  # to look for the sites of 5,000 nodes takes 50 ms or more
                continue
            site = site_of(node.metadata.labels, sites)
            if site in unlimited:
                status = statuses[site]
                status["nodes"] += 1
                offered = node_allocatable(node, self._foreign_usage.gpu_resources)
                status["gpus"] += offered.gpus
                status["allocatedGpus"] += self._foreign_usage.foreign(name, offered.gpu_resource).gpus
                status["connected"] = bool(status["connected"] or node.ready)
        for state in self._planner.cluster.jobs.values():
            for run in state.runs.values():
                if run.window.site in unlimited and run.window.node is not None:
                    statuses[run.window.site]["allocatedGpus"] += state.job.gpus
        for name in unlimited:
            statuses[name]["connected"] = statuses[name]["connected"] or not statuses[name]["nodes"]


def _body(site: SiteObject, status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": site.metadata.name, "uid": site.metadata.uid}
    return {"apiVersion": API_VERSION, "kind": "Site", "metadata": metadata, "status": status}
