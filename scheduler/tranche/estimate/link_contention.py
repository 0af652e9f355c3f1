"""Contention for links: the time of a transfer that shares its most loaded link with others.

Source: the simulator of the authors of Communication Contention Aware Scheduling of Multiple Deep Learning Training
Jobs, Wang, Shi, Wang, Chu, arXiv 2002.10105 [C]; of the paper, only the abstract was read. k transfers that share a
link take ``k β + (k - 1) η`` per unit each, with β the time of a unit alone and η a penalty; η = 0 is fair sharing. The
shares are computed again whenever k changes, and what was sent before stays sent. [I] Links may differ in capacity: the
most loaded link of a transfer is that with the longest time per unit.
Worked numbers: docs/reference/systems/lwf.md, "Contention".
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

PENALTY_RATIO = 0.235 / 0.856
"""η/β of 10 Gbit/s Ethernet in the authors' simulator [C]."""

LinkName = TypeVar("LinkName", bound=Hashable)
TransferName = TypeVar("TransferName", bound=Hashable)


def unit_seconds(transfers: float, alone: float, penalty: float) -> float:
    """Return the time of a unit of each of `transfers` transfers on one link.

    Args:
        transfers: Number k of transfers, at least 1; a fraction counts a transfer that is only active at times [I].
        alone: β, the time of a unit of a transfer alone.
        penalty: η, the time that each further transfer adds to a unit.
    """
    return transfers * alone + (transfers - 1) * penalty


@dataclass(slots=True)
class LinkLoads(Generic[LinkName]):
    """Number of transfers on each link, and the time per unit that follows."""

    alone: Callable[[LinkName], float]
    """Returns β of a link, which is constant: the time of a unit of a transfer alone."""
    penalty_ratio: float = PENALTY_RATIO
    """η/β of every link."""
    loads: dict[LinkName, float] = field(default_factory=dict)
    """Transfers on each link, weighted by the share of time in which they are active."""
    _costs: dict[LinkName, tuple[float, float]] = field(default_factory=dict)
    """β and η of each link."""

    def change(self, links: Iterable[LinkName], transfers: float) -> None:
        """Add this number of transfers to each of the links, or remove it if it is negative."""
        for link in links:
            rest = self.loads.get(link, 0.0) + transfers
            if rest > 1e-12:
                self.loads[link] = rest
            else:
                self.loads.pop(link, None)

    def unit_seconds(self, links: Iterable[LinkName], own: float = 1.0) -> float:
        """Return the time per unit of a transfer that crosses the links: that on the most loaded one.

        Args:
            links: Links that the transfer crosses; without any, it takes no time.
            own: What the transfer itself has added to the loads; while it is active, it counts in full.
        """
        slowest = 0.0
        for link in links:
            cost = self._costs.get(link)
            if cost is None:
                alone = self.alone(link)
                cost = self._costs[link] = (alone, self.penalty_ratio * alone)
            transfers = 1.0 + self.loads.get(link, 0.0) - own
            seconds = unit_seconds(transfers, *cost) if transfers > 1.0 else cost[0]
            if seconds > slowest:
                slowest = seconds
        return slowest


@dataclass(slots=True, eq=False)
class Transfer(Generic[LinkName]):
    """A transfer in progress, linear in time between two changes."""

    links: tuple[LinkName, ...]
    left: float
    """Units that are not sent at time `at`."""
    at: float
    unit_seconds: float

    def left_at(self, now: float) -> float:
        """Return the units that are not sent at time `now`."""
        return max(0.0, self.left - (now - self.at) / self.unit_seconds) if self.unit_seconds else 0.0

    @property
    def end(self) -> float:
        """Time of completion if nothing changes."""
        return self.at + self.left * self.unit_seconds


@dataclass(slots=True)
class SharedLinks(Generic[LinkName, TransferName]):
    """Transfers that share links, in virtual time."""

    loads: LinkLoads[LinkName]
    transfers: dict[TransferName, Transfer[LinkName]] = field(default_factory=dict)
    _on_link: dict[LinkName, dict[TransferName, None]] = field(default_factory=dict)

    def start(self, name: TransferName, units: float, links: Iterable[LinkName], now: float) -> None:
        """Start a transfer; those that share a link with it become slower."""
        path = tuple(dict.fromkeys(links))
        for link in path:
            self._on_link.setdefault(link, {})[name] = None
        self.loads.change(path, 1.0)
        self.transfers[name] = Transfer(path, units, now, self.loads.unit_seconds(path))
        self._share_again(path, now)

    def end(self, name: TransferName, now: float) -> float:
        """Remove a transfer, and return the units that it has not sent."""
        transfer = self.transfers.pop(name)
        for link in transfer.links:
            del self._on_link[link][name]
        self.loads.change(transfer.links, -1.0)
        self._share_again(transfer.links, now)
        return transfer.left_at(now)

    def on(self, links: Iterable[LinkName]) -> Iterator[Transfer[LinkName]]:
        """Yield the transfers on any of the links, each once."""
        names = dict.fromkeys(name for link in links for name in self._on_link.get(link, ()))
        return (self.transfers[name] for name in names)

    def most(self, links: Iterable[LinkName]) -> int:
        """Return the largest number of transfers on any of the links."""
        return max((len(self._on_link.get(link, ())) for link in links), default=0)

    def next_end(self) -> tuple[float, TransferName | None]:
        """Return when the next transfer completes if nothing changes, and its name; (inf, None) without transfers."""
        first: tuple[float, TransferName | None] = (inf, None)
        for name, transfer in self.transfers.items():
            if transfer.end < first[0]:
                first = (transfer.end, name)
        return first

    def _share_again(self, links: tuple[LinkName, ...], now: float) -> None:
        for transfer in self.on(links):
            transfer.left, transfer.at = transfer.left_at(now), now
            transfer.unit_seconds = self.loads.unit_seconds(transfer.links)
