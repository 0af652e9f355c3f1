"""Nodes that could take pods of one shape, indexed by name and by site.

This module knows only that an item belongs to a node: `JobState` keeps the result of `ClusterState.hosts`, and
`NodeState`, of which the items are, refers to the jobs on the node.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from tranche.model import Node


class OfNode(Protocol):
    """An object that belongs to one node."""

    @property
    def node(self) -> Node:
        """The node."""


Item = TypeVar("Item", bound=OfNode)


class Hosts(list[Item]):
    """Nodes that could take pods of one shape if they ran none of our pods, in order of their names."""

    def __init__(self, nodes: Iterable[Item]) -> None:
        super().__init__(nodes)
        self.by_name = {node.node.name: node for node in self}
        self.by_site: dict[str, list[Item]] = {}
        for node in self:
            self.by_site.setdefault(node.node.site, []).append(node)

    def at(self, site: str) -> list[Item]:
        """Return the nodes of one site, or all nodes for ""."""
        return self.by_site.get(site, []) if site else self
