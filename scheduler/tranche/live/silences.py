"""Nodes unreachable for longer than the disconnect tolerance of their site: their chunks are planned again.

Until then, a disconnected site keeps its chunks and its pods continue. Afterwards, pods that still run there belong to
superseded attempts, and their progress is not counted.
"""

from collections.abc import Mapping

from tranche.kube.memberships import UNDECLARED_TOLERANCE_SECONDS, site_of
from tranche.kube.objects import NodeObject
from tranche.kube.resources import SiteObject
from tranche.model.quantities import parse_duration


class UnreachableNodes:
    """Check of nodes against the disconnect tolerance of their site."""

    def __init__(self, nodes: Mapping[str, NodeObject], sites: Mapping[str, SiteObject]) -> None:
        self._nodes = nodes
        self._sites = sites

    def lost(self, name: str, now: float) -> bool:
        """Whether the node has been unreachable for longer than its site tolerates.

        Args:
            name: Name of the node; False for an unknown node, because its pods are deleted with it.
            now: Seconds since the epoch.
        """
        node = self._nodes.get(name)
        if node is None or node.ready:
            return False
        since = [c.last_transition_time for c in node.status.conditions if c.type == "Ready"]
        if not since or since[0] is None:
            return False
        return now - since[0].timestamp() >= self._tolerance(node)

    def _tolerance(self, node: NodeObject) -> float:
        site = self._sites.get(site_of(node.metadata.labels, self._sites) or "")
        if site is None:
            return UNDECLARED_TOLERANCE_SECONDS
        try:
            return parse_duration(site.spec.disconnect_tolerance)
        except ValueError:  # reported when the site was read
            return UNDECLARED_TOLERANCE_SECONDS
