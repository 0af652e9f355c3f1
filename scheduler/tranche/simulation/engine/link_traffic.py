"""Contention for uplinks in virtual time: gangs and uploads of data that cross the same links slow each other down.

A gang whose members share topology level t crosses the uplinks of the groups of its members at all narrower levels: of
its nodes, of its racks, and so on. The uplink of a group has the capacity of the next wider level. [I] Each gang sends
in a part of its time only, so it counts for others with that part, as it is alone: a gang beside one that sends a
quarter of the time has k = 1.25 transfers on the link. While it sends, it counts in full for itself. An upload between
two sites crosses the uplinks of both, beside its own link, and counts with the part of their capacity that it uses. A
worker that exchanges gradients with a parameter server counts with both parts: of time and of capacity. The uplinks of
clouds have no limit.
Model and worked numbers: `tranche.estimate.link_contention`, docs/reference/systems/lwf.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from tranche.estimate import Ends, LevelNetwork
from tranche.estimate.link_contention import LinkLoads
from tranche.model import Node
from tranche.model.topology import SITE_LEVEL, Domain
from tranche.state.topology_fit import TopologyIndex

Uplink = tuple[int, Domain]
"""Topology level of a group of nodes, and the group whose link to its surroundings it is."""
Exchange = tuple[str, int]
"""Job and attempt of a worker that exchanges gradients with parameter servers."""
Sender = str | Ends | Exchange
"""Key of the job of a gang, the two sites of an upload, or a worker with parameter servers."""


def is_upload(sender: Sender) -> TypeGuard[Ends]:
    """Return whether the sender is an upload."""
    return isinstance(sender, tuple) and isinstance(sender[1], str)


@dataclass(slots=True, eq=False)
class Traffic:
    """Communication of one gang, or one upload."""

    uplinks: tuple[Uplink, ...]
    alone: float
    """Time of communication in a mini-batch without contention, in seconds; 1 for an upload."""
    slowest: float
    """Capacity of its slowest link, in bit/s."""
    share: float
    """Part of a mini-batch in which the gang sends if it is alone, or of the capacity that the upload uses, 0 … 1."""
    batch_seconds: float
    """Time of a mini-batch without contention, in seconds; 0 for an upload."""
    extra: float = 0.0
    """Time that contention adds to `alone` now."""

    @property
    def mean_rate(self) -> float:
        """Mean rate without contention, in bit/s; 0 for an upload, which takes what the gangs leave."""
        return self.slowest * self.alone / self.batch_seconds if self.batch_seconds else 0.0


@dataclass(slots=True, eq=False)
class LinkTraffic:
    """All gangs that communicate between nodes, and all uploads between sites."""

    network: LevelNetwork
    places: TopologyIndex
    clouds: frozenset[str] = frozenset()
    """Sites whose uplink is never the slowest: each path to them is as fast as its link says."""
    loads: LinkLoads[Uplink] = field(init=False)
    _demand: dict[Uplink, float] = field(default_factory=dict)
    """Sum of the mean rates of the gangs on each uplink, in bit/s."""
    _overloads: dict[Uplink, float] = field(default_factory=dict)
    """Part of the capacity by which that sum exceeds it, of the uplinks where it does."""
    _traffic: dict[Sender, Traffic] = field(default_factory=dict)
    """Traffic of each gang that trains and of each upload."""
    _crossing: dict[Uplink, dict[Sender, None]] = field(default_factory=dict)
    """Senders on each uplink."""

    def __post_init__(self) -> None:
        self.loads = LinkLoads(lambda uplink: 1 / self.network.bits_per_second[uplink[0] + 1])

    def begin(self, job: str, nodes: Iterable[Node], alone: float, batch_seconds: float) -> dict[Sender, float]:
        """Let a gang communicate.

        Args:
            job: Key of the job.
            nodes: Nodes of its members.
            alone: Time of communication in a mini-batch without contention, in seconds.
            batch_seconds: Time of a mini-batch without contention, in seconds.

        Returns:
            What contention adds from now on, by sender for which it has changed: to a mini-batch of a gang, in seconds;
            to an upload, as a part of its time.
        """
        uplinks, level = self.uplinks(nodes)
        if not uplinks or not alone:
            return {}
        slowest = self.network.slowest(level)
        return self._add(job, Traffic(uplinks, alone, slowest, alone / batch_seconds, batch_seconds))

    def begin_upload(self, ends: Ends, hosts: Iterable[Node], bits_per_second: float) -> dict[Sender, float]:
        """Let an upload begin; returns the same as `begin`.

        Args:
            ends: Sites of the upload.
            hosts: A node of each of these sites that has one.
            bits_per_second: Capacity of the link between the sites.
        """
        level = self.places.topology.level(SITE_LEVEL)
        if level is None:
            return {}
        apart = [node for node in hosts if node.site not in self.clouds]
        uplinks = tuple(dict.fromkeys((level, self.places.domain(node)[level:]) for node in apart))
        share = min(1.0, bits_per_second / self.network.bits_per_second[level + 1])
        return self._add(ends, Traffic(uplinks, 1.0, bits_per_second, share, 0.0))

    def begin_exchange(
        self, worker: Exchange, nodes: Sequence[Node], alone: float, batch_seconds: float, bits: float, *, outside: bool
    ) -> dict[Sender, float]:
        """Let a worker exchange gradients with parameter servers; returns the same as `begin`.

        Args:
            worker: Job and attempt.
            nodes: Nodes of the worker and of the parameter servers.
            alone: Time of communication in a mini-batch without contention, in seconds.
            batch_seconds: Time of a mini-batch without contention, in seconds.
            bits: Bits sent in each mini-batch.
            outside: Whether the worker has no node of its own: it crosses all uplinks of the parameter servers.
        """
        uplinks, level = self.uplinks(nodes, outside=outside)
        if not uplinks or not alone:
            return {}
        rate = bits / alone
        used = min(1.0, rate / self.network.slowest(level))
        return self._add(worker, Traffic(uplinks, alone, rate, used * alone / batch_seconds, batch_seconds))

    def end(self, sender: Sender) -> dict[Sender, float]:
        """Let a gang or an upload stop sending, if it does; returns the same as `begin`."""
        traffic = self._traffic.pop(sender, None)
        if traffic is None:
            return {}
        for uplink in traffic.uplinks:
            del self._crossing[uplink][sender]
            self._change_demand(uplink, -traffic.mean_rate)
        self.loads.change(traffic.uplinks, -traffic.share)
        return self._changes(traffic.uplinks)

    def uplinks(self, nodes: Iterable[Node], *, outside: bool = False) -> tuple[tuple[Uplink, ...], int]:
        """Return the uplinks between the nodes or to the outside, narrowest first, and the level that they share."""
        domains = dict.fromkeys(self.places.domain(node) for node in nodes)
        level = self.places.topology.widest if outside else self.places.topology.level_of(domains)
        wide = self.places.topology.level(SITE_LEVEL)
        crossed: dict[Uplink, None] = {}
        for narrower in range(level):
            groups = dict.fromkeys(domain[narrower:] for domain in domains)
            crossed |= {(narrower, group): None for group in groups if narrower != wide or group[0] not in self.clouds}
        return tuple(crossed), level

    def _add(self, sender: Sender, traffic: Traffic) -> dict[Sender, float]:
        self._traffic[sender] = traffic
        for uplink in traffic.uplinks:
            self._crossing.setdefault(uplink, {})[sender] = None
            self._change_demand(uplink, traffic.mean_rate)
        self.loads.change(traffic.uplinks, traffic.share)
        return self._changes(traffic.uplinks)

    def _change_demand(self, uplink: Uplink, bits_per_second: float) -> None:
        demand = self._demand[uplink] = self._demand.get(uplink, 0.0) + bits_per_second
        excess = demand / self.network.bits_per_second[uplink[0] + 1] - 1
        if excess > 0:
            self._overloads[uplink] = excess
        else:
            self._overloads.pop(uplink, None)

    def _changes(self, uplinks: Iterable[Uplink]) -> dict[Sender, float]:
        changes, overloads = {}, self._overloads
        for sender in dict.fromkeys(sender for uplink in uplinks for sender in self._crossing[uplink]):
            traffic = self._traffic[sender]
            slowdown = max(1.0, self.loads.unit_seconds(traffic.uplinks, traffic.share) * traffic.slowest)
            extra = traffic.alone * (slowdown - 1)
            if overloads and traffic.batch_seconds:
                excess = max([overloads.get(uplink, 0.0) for uplink in traffic.uplinks])
                extra = max(extra, traffic.batch_seconds * excess)
            if abs(extra - traffic.extra) > 1e-12 * traffic.alone:
                traffic.extra = changes[sender] = extra
        return changes
