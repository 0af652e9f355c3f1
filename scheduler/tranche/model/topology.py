"""Topology levels: how close nodes are to each other, by the values of an ordered list of node labels.

The levels go from the narrowest to the widest: by default node, rack and site. Beyond them there is one more level,
the WAN, which holds all nodes. Groups of nodes are nested: two nodes share a level only if they have the same value of
its label and of the labels of all wider levels. A node without the label is a group of its own at that level. [I] The
terms and the use of labels follow Kueue's topology-aware scheduling.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tranche.model.cluster import Node

NODE_LEVEL = "kubernetes.io/hostname"
"""Level of one node; its value is the name of the node, with or without the label."""
RACK_LEVEL = "tranche.dev/rack"
"""Default label of the racks."""
SITE_LEVEL = "tranche.dev/site"
"""Level of one site; its value is the name of the node's site, however the site selects its nodes."""
WAN_LEVEL = "tranche.dev/wan"
"""Name of the widest level, which holds all nodes and needs no label."""

Domain = tuple[str, ...]
"""Group of nodes at a level: its value there, then its values at the wider levels; empty at the widest level."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Topology levels of a cluster, narrowest first; levels are counted from 0, and the WAN is `widest`."""

    labels: tuple[str, ...] = (NODE_LEVEL, RACK_LEVEL, SITE_LEVEL)
    """Label keys of the levels below the WAN. `NODE_LEVEL` and `SITE_LEVEL` need no label on the nodes."""

    def __post_init__(self) -> None:
        if len(set(self.labels)) < len(self.labels) or not all(self.labels) or WAN_LEVEL in self.labels:
            raise ValueError(
                f"topology levels must be different label keys other than {WAN_LEVEL}, not {', '.join(self.labels)}"
            )

    @property
    def widest(self) -> int:
        """Number of the widest level, the WAN."""
        return len(self.labels)

    def name(self, level: int) -> str:
        """Return the label key of a level, or `WAN_LEVEL`."""
        return self.labels[level] if level < self.widest else WAN_LEVEL

    def level(self, name: str) -> int | None:
        """Return the number of the level with this label key; None if there is none."""
        if name == WAN_LEVEL:
            return self.widest
        return self.labels.index(name) if name in self.labels else None

    def domain(self, node: Node) -> Domain:
        """Return the node's group at the narrowest level; its group at level t is the part from position t on."""
        return tuple(_value(node, label) for label in self.labels)

    def level_of(self, domains: Iterable[Domain]) -> int:
        """Return the narrowest level at which all of these nodes are in one group; 0 without nodes.

        Args:
            domains: Groups of the nodes at the narrowest level, as `domain` returns them.
        """
        distinct = set(domains)
        return next(level for level in range(self.widest + 1) if len({domain[level:] for domain in distinct}) <= 1)

    def fresh_level(self, gpus: int, gpus_per_node: int) -> int:
        """Return the level of a gang on new nodes of one site, about which nothing else is known.

        Args:
            gpus: GPUs of the gang.
            gpus_per_node: GPUs of each new node.
        """
        label = NODE_LEVEL if gpus <= gpus_per_node else SITE_LEVEL
        level = self.level(label)
        return self.widest if level is None else level


def _value(node: Node, label: str) -> str:
    """Return the node's value of a level: one that no other node has, if the label is missing."""
    if label == NODE_LEVEL:
        return node.name
    if label == SITE_LEVEL:
        return node.site
    return node.labels.get(label) or f"node/{node.name}"
