"""Topology levels of the nodes of a cluster, and the narrowest level at which the members of a gang fit.

The functions take the number of members for which each node has room, so they serve for free and for empty nodes. [I]
Of several groups with room at the narrowest level, the one with the least room is taken, and within it as few smaller
groups as possible are used: the largest first, and for the rest the smallest one with enough room.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tranche.model import Node, Resources
from tranche.model.topology import Domain, Topology


class Fit(NamedTuple):
    """Group of nodes with room for all members of a gang."""

    level: int
    """Topology level of the group."""
    domain: Domain


@dataclass(slots=True, eq=False)
class TopologyIndex:
    """Topology of a cluster, with a cache of the groups of its nodes."""

    topology: Topology = field(default_factory=Topology)
    _domains: dict[str, Domain] = field(default_factory=dict)

    def clear(self) -> None:
        """Discard the cached groups, because nodes have changed."""
        self._domains.clear()

    def domain(self, node: Node) -> Domain:
        """Return the node's group at the narrowest level."""
        domain = self._domains.get(node.name)
        if domain is None:
            domain = self._domains[node.name] = self.topology.domain(node)
        return domain

    def level_of(self, nodes: Iterable[Node]) -> int:
        """Return the narrowest level at which all of the nodes are in one group."""
        return self.topology.level_of([self.domain(node) for node in nodes])


def members_in(room: Resources, request: Resources, most: int) -> int:
    """Return how many of `most` equal requests fit into the room of one node."""
    if not request.fits(room):
        return 0
    amounts = (
        (room.gpus, request.gpus),
        (room.cpu, request.cpu),
        (room.memory, request.memory),
        (room.pods, request.pods),
    )
    return min([most, *(available // requested for available, requested in amounts if requested > 0)])


def narrowest_fit(rooms: Mapping[str, int], domains: Mapping[str, Domain], members: int, widest: int) -> Fit | None:
    """Return the group of the narrowest level with room for all members, and of these one with the least room.

    Args:
        rooms: Number of members for which each node has room, by name; nodes without room may be missing.
        domains: Group of each of these nodes at the narrowest level.
        members: Number of members of the gang.
        widest: Widest level that may be used.

    Returns:
        None if the members fit at no level up to `widest`.
    """
    if sum(rooms.values()) < members:
        return None
    for level in range(widest + 1):
        totals: dict[Domain, int] = {}
        for name, room in rooms.items():
            group = domains[name][level:]
            totals[group] = totals.get(group, 0) + room
        fitting = [(total, group) for group, total in totals.items() if total >= members]
        if fitting:
            return Fit(level, min(fitting)[1])
    return None


def largest_room(rooms: Mapping[str, int], domains: Mapping[str, Domain], level: int) -> int:
    """Return the number of members for which the largest group of a level has room."""
    totals: Counter[Domain] = Counter()
    for name, room in rooms.items():
        totals[domains[name][level:]] += room
    return max(totals.values(), default=0)


def spread(rooms: Mapping[str, int], domains: Mapping[str, Domain], fit: Fit, members: int) -> list[str]:
    """Return the node of each member within the group, which has room for all of them.

    Args:
        rooms: Number of members for which each node has room, by name.
        domains: Group of each of these nodes at the narrowest level.
        fit: The group.
        members: Number of members of the gang.
    """
    inside = [name for name in sorted(rooms) if rooms[name] and domains[name][fit.level :] == fit.domain]
    return _spread(inside, rooms, domains, fit.level, members)


def _spread(
    inside: Sequence[str], rooms: Mapping[str, int], domains: Mapping[str, Domain], level: int, members: int
) -> list[str]:
    if level == 0 and len(inside) == 1:
        return [inside[0]] * members
    groups: dict[Domain | str, list[str]] = {}
    for name in inside:
        groups.setdefault(domains[name][level - 1 :] if level else name, []).append(name)
    remaining = sorted(groups.values(), key=lambda group: (-sum(rooms[name] for name in group), group))
    chosen: list[str] = []
    while remaining and len(chosen) < members:
        missing = members - len(chosen)
        enough = [group for group in remaining if sum(rooms[name] for name in group) >= missing]
        group = enough[-1] if enough else remaining[0]
        remaining.remove(group)
        room = min(missing, sum(rooms[name] for name in group))
        chosen += _spread(group, rooms, domains, level - 1, room) if level else [group[0]] * room
    return chosen
