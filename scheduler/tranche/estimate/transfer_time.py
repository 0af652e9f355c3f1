"""Arrival of data that are sent between sites: uploads share links, and measurements correct the declared bandwidth."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from math import exp, log, nan

from tranche.estimate.link_contention import PENALTY_RATIO, unit_seconds
from tranche.model import Link

LEARNING_RATE = 0.3
"""Weight of the newest measurement."""
MAX_LOG_CORRECTION = log(1000.0)
"""Largest absolute logarithm of a correction of a link's declared time: without a limit, one jump of the clock could
make a link unusable permanently."""

NO_LOADS: tuple[float, Counter[str]] = (nan, Counter())
"""Value of `Uploads._loads` before the links are counted."""

Ends = tuple[str, str]
"""Source site and destination site."""


@dataclass(slots=True)
class Uploads:
    """Uploads in progress on every link, and measured corrections of their times."""

    busy: dict[Ends, float] = field(default_factory=dict)
    """Time until which a link is busy with earlier uploads."""
    corrections: dict[Ends, float] = field(default_factory=dict)
    """Logarithm of measured over declared time."""
    shares_uplinks: bool = False
    """Whether uploads from one site to several others share the uplink of that site."""
    shares_targets: bool = False
    """Whether all uploads from and to a site are expected to share its uplink, if `shares_uplinks`."""
    clouds: Collection[str] = ()
    """Sites whose uplink never limits an upload, if `shares_targets`."""
    _loads: tuple[float, Counter[str]] = field(default=NO_LOADS, repr=False, compare=False)
    """Number of busy links by site, and the time for which it was counted; counted again after `begin`."""

    def seconds(self, ends: Ends, link: Link, size_bytes: float) -> float:
        """Return Δ of one upload without other traffic, in seconds."""
        return link.transfer_seconds(size_bytes) * exp(self.corrections.get(ends, 0.0))

    def slowed_seconds(self, ends: Ends, link: Link, size_bytes: float, now: float) -> float:
        """Return the time of one upload beside those in progress on other links, in seconds."""
        return self.seconds(ends, link, size_bytes) * self.slowdown(ends, link, now)

    def ready(self, ends: Ends, link: Link, size_bytes: float, now: float) -> float:
        """Return when an upload that starts now would complete: after earlier uploads, unless the link is dedicated."""
        return self._free_at(ends, link, now) + self.slowed_seconds(ends, link, size_bytes, now)

    def preview(self, ends: Ends, link: Link, size_bytes: float, now: float, count: int) -> list[float]:
        """Return the completion times of `count` uploads of that size if they started now.

        Uploads run one after the other at full bandwidth: their average completes sooner than if all shared it evenly.
        """
        seconds = self.slowed_seconds(ends, link, size_bytes, now)
        first = self._free_at(ends, link, now) + seconds
        if link.dedicated or not count:
            return [first] * count
        each_seconds = seconds - link.latency_seconds
        return [first + i * each_seconds for i in range(count)]

    def _free_at(self, ends: Ends, link: Link, now: float) -> float:
        """Return when an upload could start: after earlier uploads, unless the link is dedicated."""
        return now if link.dedicated else max(now, self.busy.get(ends, now))

    def begin(self, ends: Ends, link: Link, size_bytes: float, now: float, count: int = 1) -> list[float]:
        """Start `count` uploads of that size; return when each will complete."""
        ready = self.preview(ends, link, size_bytes, now, count)
        if count and not link.dedicated:
            self.busy[ends] = ready[-1] - link.latency_seconds
            self._loads = NO_LOADS
        return ready

    def slowdown(self, ends: Ends, link: Link, now: float) -> float:
        """Return by which factor the uploads on the same uplink make one take longer at this moment.

        [I] Uploads from one site share its uplink, whose capacity is that of each link; k of them take as long as
        `tranche.estimate.link_contention` says. The factor holds as long as k does. With `shares_targets`, the uplink
        of either site with the most uploads in both directions determines k.
        """
        if not self.shares_uplinks or link.dedicated:
            return 1.0
        if self.shares_targets:
            own, loads = self.busy.get(ends, now) > now, self._uplink_loads(now)
            others = max((loads[site] - own for site in ends if site not in self.clouds), default=0)
        else:
            others = sum(until > now for other, until in self.busy.items() if other[0] == ends[0] and other != ends)
        return unit_seconds(1 + others, 1.0, PENALTY_RATIO)

    def _uplink_loads(self, now: float) -> Counter[str]:
        """Return the number of busy links from or to each site."""
        at, loads = self._loads
        if at != now:
            loads = Counter(site for ends, until in self.busy.items() if until > now for site in ends)
            self._loads = (now, loads)
        return loads

    def measured(self, ends: Ends, link: Link, size_bytes: float, seconds: float, now: float) -> None:
        """Record the measured duration of one upload that has ended, without its wait for others on the same link."""
        expected = link.transfer_seconds(size_bytes) * self.slowdown(ends, link, now)
        if expected > 0 and seconds > 0:
            correction = self.corrections.get(ends)
            logarithm = max(-MAX_LOG_CORRECTION, min(MAX_LOG_CORRECTION, log(seconds / expected)))
            self.corrections[ends] = (
                logarithm if correction is None else correction + LEARNING_RATE * (logarithm - correction)
            )
