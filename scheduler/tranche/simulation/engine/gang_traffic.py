"""Contention between gangs in virtual time: gangs whose members communicate over the same links slow each other down.

A gang whose members share topology level t crosses the uplinks of the groups of its members at all narrower levels: of
its nodes, of its racks, and so on. The uplink of a group has the capacity of the next wider level. [I] Each gang sends
in a part of its time only, so it counts for others with that part, as it is alone: a gang beside one that sends a
quarter of the time has k = 1.25 transfers on the link. While it sends, it counts in full for itself.
Model and worked numbers: `tranche.estimate.link_contention`, docs/reference/systems/lwf.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tranche.estimate import LevelNetwork
from tranche.estimate.link_contention import LinkLoads
from tranche.model import Node
from tranche.model.topology import Domain
from tranche.state.topology_fit import TopologyIndex

Uplink = tuple[int, Domain]
"""Topology level of a group of nodes, and the group whose link to its surroundings it is."""


@dataclass(slots=True, eq=False)
class Traffic:
    """Communication of one gang."""

    uplinks: tuple[Uplink, ...]
    alone: float
    """Time of communication in a mini-batch without contention, in seconds."""
    slowest: float
    """Capacity of its slowest link, in bit/s."""
    share: float
    """Part of a mini-batch in which the gang sends if it is alone, 0 … 1."""
    extra: float = 0.0
    """Time that contention adds to a mini-batch now, in seconds."""


@dataclass(slots=True, eq=False)
class GangTraffic:
    """All gangs that communicate between nodes."""

    network: LevelNetwork
    places: TopologyIndex
    loads: LinkLoads[Uplink] = field(init=False)
    _traffic: dict[str, Traffic] = field(default_factory=dict)
    """Traffic of each gang that trains, by job."""
    _crossing: dict[Uplink, dict[str, None]] = field(default_factory=dict)
    """Jobs on each uplink."""

    def __post_init__(self) -> None:
        self.loads = LinkLoads(lambda uplink: 1 / self.network.bits_per_second[uplink[0] + 1])

    def begin(self, job: str, nodes: Iterable[Node], alone: float, batch_seconds: float) -> dict[str, float]:
        """Let a gang communicate.

        Args:
            job: Key of the job.
            nodes: Nodes of its members.
            alone: Time of communication in a mini-batch without contention, in seconds.
            batch_seconds: Time of a mini-batch without contention, in seconds.

        Returns:
            Time that contention adds to a mini-batch from now on, in seconds, by job for which it has changed.
        """
        uplinks, level = self._uplinks(nodes)
        if not uplinks or not alone:
            return {}
        share = alone / batch_seconds
        self._traffic[job] = Traffic(uplinks, alone, self.network.slowest(level), share)
        for uplink in uplinks:
            self._crossing.setdefault(uplink, {})[job] = None
        self.loads.change(uplinks, share)
        return self._changes(uplinks)

    def end(self, job: str) -> dict[str, float]:
        """Let a gang that may communicate stop; returns the same as `begin`."""
        traffic = self._traffic.pop(job, None)
        if traffic is None:
            return {}
        for uplink in traffic.uplinks:
            del self._crossing[uplink][job]
        self.loads.change(traffic.uplinks, -traffic.share)
        return self._changes(traffic.uplinks)

    def _changes(self, uplinks: Iterable[Uplink]) -> dict[str, float]:
        changes = {}
        for job in dict.fromkeys(job for uplink in uplinks for job in self._crossing[uplink]):
            traffic = self._traffic[job]
            slowdown = max(1.0, self.loads.unit_seconds(traffic.uplinks, traffic.share) * traffic.slowest)
            extra = traffic.alone * (slowdown - 1)
            if abs(extra - traffic.extra) > 1e-12 * traffic.alone:
                traffic.extra = changes[job] = extra
        return changes

    def _uplinks(self, nodes: Iterable[Node]) -> tuple[tuple[Uplink, ...], int]:
        """Return the uplinks between the nodes, narrowest first, and the topology level that the nodes share."""
        domains = dict.fromkeys(self.places.domain(node) for node in nodes)
        level = self.places.topology.level_of(domains)
        found = dict.fromkeys((at, domain[at:]) for at in range(level) for domain in domains)
        return tuple(found), level
