"""Nodes by what they could take: those that a shape of pods fits, by name and by site, kept until a node changes."""

from collections.abc import Iterable

from tranche.policies.nodes import NodeState


class Hosts(list[NodeState]):
    """Nodes that could take pods of one shape if they ran nothing of ours, by name."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        super().__init__(nodes)
        self.by_name = {node.node.name: node for node in self}
        self.by_site: dict[str, list[NodeState]] = {}
        for node in self:
            self.by_site.setdefault(node.node.site, []).append(node)

    def at(self, site: str) -> list[NodeState]:
        """Those of one site; all with ""."""
        return self.by_site.get(site, []) if site else self


class FreeNodes:
    """Nodes with GPUs that nobody has reserved, by site; the nodes themselves keep it up to date."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self._at: dict[str, dict[str, NodeState]] = {}
        self._nodes: dict[str, list[NodeState]] = {}
        for node in nodes:
            self._nodes.setdefault(node.node.site, []).append(node)
            node.free_nodes = self._at.setdefault(node.node.site, {})
            node.note_room()

    def any_at(self, site: str) -> bool:
        """Whether there is one at the site (anywhere, with "")."""
        return bool(self._at.get(site)) if site else any(self._at.values())

    def nodes_at(self, site: str) -> list[NodeState]:
        """All nodes of the site, full ones too."""
        return self._nodes.get(site, [])

    def gpus(self) -> dict[str, int]:
        """How many GPUs are free at each site with nodes."""
        return {site: sum([node.free_gpus for node in free.values()]) for site, free in self._at.items()}

    def of(self, hosts: Hosts, site: str) -> list[NodeState]:
        """Those among the hosts at the site (anywhere, with ""), by name."""
        places = (self._at.get(site, {}),) if site else tuple(self._at.values())
        all_there = hosts.at(site)
        if 4 * sum(map(len, places)) > len(all_there):
            return [node for node in all_there if node.free_gpus > 0]
        names = sorted(name for free in places for name in free if name in hosts.by_name)
        return [hosts.by_name[name] for name in names]
