"""Nodes that are unreachable for longer than the disconnect tolerance of their site.

Until then, a disconnected site keeps its chunks and its pods continue.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from math import inf

from tranche.kube.api.condition import find_condition
from tranche.kube.api.core_types import NodeObject
from tranche.kube.api.resources import SiteObject
from tranche.kube.convert.site_membership import UNDECLARED_TOLERANCE_SECONDS, site_of
from tranche.model.quantity import parse_duration

OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
"""Taint by which an administrator states that a node is shut down, so that its pods are deleted by force."""


class UnreachableNodes:
    """Check of nodes against the disconnect tolerance of their site."""

    def __init__(self, nodes: Mapping[str, NodeObject], sites: Mapping[str, SiteObject]) -> None:
        self._nodes = nodes
        self._sites = sites
        self._seen: dict[str, float] = {}
        """Time at which each node was first seen not ready, by our own clock."""
        self._silent_before: set[str] = set()
        """Names of the nodes that have been seen not ready at any time."""
        self._ready: Counter[tuple[str | None, bool]] | None = None
        """Number of nodes by site and whether they are ready, counted at most once between two calls of `refresh`."""

    def node(self, name: str) -> NodeObject | None:
        """Return the node of a name; None for an unknown node."""
        return self._nodes.get(name)

    def refresh(self) -> frozenset[str]:
        """Forget since when nodes were not ready that are ready now; return the names of those that are not ready."""
        silent = frozenset(name for name, node in self._nodes.items() if not node.ready)
        self._seen = {name: since for name, since in self._seen.items() if name in silent}
        self._silent_before = {name for name in self._silent_before if name in self._nodes} | silent
        self._ready = None
        return silent

    def is_silent(self, name: str) -> bool:
        """Return whether the node exists and is not ready."""
        node = self._nodes.get(name)
        return node is not None and not node.ready

    def ready_since(self, name: str) -> float:
        """Return since when a ready node has been so, in seconds since the epoch; 0 if unknown.

        A planner that has not seen the node silent relies on the node's clock. One that has returns infinity, because
        it measures the time from then by its own clock.
        """
        if name in self._silent_before:
            return inf
        node = self._nodes.get(name)
        ready = find_condition(node.status.conditions, "Ready") if node is not None else None
        return ready.last_transition_time.timestamp() if ready is not None and ready.last_transition_time else 0.0

    def is_site_silent(self, name: str) -> bool:
        """Return whether all nodes of the node's site exist and are not ready, as when the site is disconnected."""
        node = self._nodes.get(name)
        return not self._counts()[self._site_of(node) if node is not None else None, True]

    def are_cut_off(self, names: Collection[str]) -> bool:
        """Return whether the sites of these nodes are disconnected: each has several nodes, and none of them is ready.

        A site with one node that is not ready counts as one whose node is dead.
        """
        if not all(self.is_silent(name) for name in names):
            return False
        counts = self._counts()
        sites = {self._site_of(self._nodes[name]) for name in names}
        return all(counts[site, False] > 1 and not counts[site, True] for site in sites)

    def _site_of(self, node: NodeObject) -> str | None:
        return site_of(node.metadata.labels, self._sites)

    def _counts(self) -> Counter[tuple[str | None, bool]]:
        if self._ready is None:
            self._ready = Counter((self._site_of(node), node.ready) for node in self._nodes.values())
        return self._ready

    def lost(self, name: str, now: float, limit: float = inf) -> bool:
        """Return whether the node was unreachable for longer than its site tolerates, or an administrator gave it up.

        Args:
            name: Name of the node; False for an unknown node, because its pods are deleted with it.
            now: Seconds since the epoch.
            limit: Most seconds to tolerate, whatever the site tolerates.
        """
        node = self._nodes.get(name)
        if node is None or node.ready:
            return False
        if any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints):
            return True
        since = self.silent_since(name, now)
        return since is not None and now - since >= min(limit, self._tolerance(node))

    def silent_since(self, name: str, now: float) -> float | None:
        """Return since when a node that is not ready is so, in seconds since the epoch; None if that is unknown.

        A node that is not ready by its own report counts from when it was first seen so, since its clock may differ
        from ours; a condition Unknown has the time of the control plane, which also covers the time before a restart.
        """
        node = self._nodes.get(name)
        ready = find_condition(node.status.conditions, "Ready") if node is not None else None
        if ready is None or ready.last_transition_time is None:
            return None
        since = self.seen_silent(name, now)
        return min(since, ready.last_transition_time.timestamp()) if ready.status == "Unknown" else since

    def seen_silent(self, name: str, now: float) -> float:
        """Return when this planner first saw that a node is not ready: now, if it had not seen so."""
        return self._seen.setdefault(name, now)

    def _tolerance(self, node: NodeObject) -> float:
        site = self._sites.get(self._site_of(node) or "")
        if site is None:
            return UNDECLARED_TOLERANCE_SECONDS
        try:
            return parse_duration(site.spec.disconnect_tolerance)
        except ValueError:  # reported when the site was read
            return UNDECLARED_TOLERANCE_SECONDS
