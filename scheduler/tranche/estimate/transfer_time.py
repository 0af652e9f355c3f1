"""Arrival of data that are sent between sites: uploads share links, and measurements correct the declared bandwidth."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from math import exp, log, nan

from tranche.estimate.link_contention import PENALTY_RATIO, unit_seconds
from tranche.estimate.link_corrections import Ends, LinkCorrections
from tranche.estimate.link_queue import LinkQueue
from tranche.model import Link

NO_LOADS: tuple[float, Counter[str]] = (nan, Counter())
"""Value of `Uploads._loads` before the links are counted."""
USUAL_BYTES = 1e9
"""Size of an upload by which the declarations of a link are compared, in bytes."""
MAX_IDLE_LINKS = 1000
"""Number of links above which idle ones are forgotten: a job may name any site as the source of its data."""


@dataclass(slots=True)
class Uploads:
    """Uploads in progress on every link, and measured corrections of their times. A tenant is a namespace."""

    queues: dict[Ends, LinkQueue] = field(default_factory=dict)
    """Uploads in progress."""
    corrections: LinkCorrections = field(default_factory=LinkCorrections)
    shares_uplinks: bool = False
    """Whether uploads from one site to several others share the uplink of that site."""
    shares_targets: bool = False
    """Whether all uploads from and to a site are expected to share its uplink, if `shares_uplinks`."""
    clouds: Collection[str] = ()
    """Sites whose uplink never limits an upload, if `shares_targets`."""
    _loads: tuple[float, Counter[str]] = field(default=NO_LOADS, repr=False, compare=False)
    """Number of busy links by site, and the time for which it was counted; counted again after `begin`."""

    def busy(self) -> dict[Ends, float]:
        """Return the time until which each link is busy with uploads that have begun."""
        return {ends: queue.busy_until for ends, queue in self.queues.items()}

    def seconds(self, ends: Ends, link: Link, size_bytes: float, tenant: str = "") -> float:
        """Return Δ of one upload without other traffic, in seconds."""
        return link.transfer_seconds(size_bytes) * exp(self.corrections.of(ends, tenant))

    def slowed_seconds(self, ends: Ends, link: Link, size_bytes: float, now: float, tenant: str = "") -> float:
        """Return the time of one upload beside those in progress on other links, in seconds."""
        return self.seconds(ends, link, size_bytes, tenant) * self.slowdown(ends, link, now)

    def ready(self, ends: Ends, link: Link, size_bytes: float, now: float, tenant: str = "") -> float:
        """Return when an upload that starts now would complete: after earlier uploads, unless the link is dedicated."""
        return self.preview(ends, link, size_bytes, now, 1, tenant)[0]

    def preview(
        self, ends: Ends, link: Link, size_bytes: float, now: float, count: int, tenant: str = ""
    ) -> list[float]:
        """Return the completion times of `count` uploads of that size if they started now.

        Uploads of a tenant run one after the other at full bandwidth: their average completes sooner than if all shared
        it evenly. Tenants share it evenly.
        """
        return self._beside_others(self._alone(ends, link, size_bytes, now, count, tenant), ends, link, now, tenant)

    def _beside_others(self, alone: list[float], ends: Ends, link: Link, now: float, tenant: str) -> list[float]:
        queue = self.queues.get(ends)
        if link.dedicated or queue is None or len(queue.ends) <= (tenant in queue.ends):
            return alone
        return [end + queue.delay(tenant, end - link.latency_seconds, now) for end in alone]

    def _alone(self, ends: Ends, link: Link, size_bytes: float, now: float, count: int, tenant: str) -> list[float]:
        """Return what `preview` does if no other tenant used the link from now on."""
        seconds, queue = self.slowed_seconds(ends, link, size_bytes, now, tenant), self.queues.get(ends)
        if link.dedicated or not count:
            return [now + seconds] * count
        first = (now if queue is None else queue.free_at(tenant, now)) + seconds
        each_seconds = seconds - link.latency_seconds
        return [first + i * each_seconds for i in range(count)]

    def begin(
        self, ends: Ends, link: Link, size_bytes: float, now: float, count: int = 1, tenant: str = ""
    ) -> list[float]:
        """Start `count` uploads of that size; return when each will complete."""
        alone = self._alone(ends, link, size_bytes, now, count, tenant)
        ready = self._beside_others(alone, ends, link, now, tenant)
        if count and not link.dedicated:
            if ends not in self.queues and len(self.queues) >= MAX_IDLE_LINKS:
                self.queues = {one: queue for one, queue in self.queues.items() if queue.busy_until > now}
            self.queues.setdefault(ends, LinkQueue()).add(tenant, alone[-1] - link.latency_seconds, now)
            self._loads = NO_LOADS
        return ready

    def cancel(self, ends: Ends, link: Link, size_bytes: float, now: float, count: int, tenant: str = "") -> None:
        """Remove `count` uploads that have begun and will not be made."""
        queue = self.queues.get(ends)
        if queue is not None and count and not link.dedicated:
            each_seconds = self.slowed_seconds(ends, link, size_bytes, now, tenant) - link.latency_seconds
            queue.cancel(tenant, count * each_seconds, now)
            self._loads = NO_LOADS

    def links(self) -> set[Ends]:
        """Return the links with uploads or measurements."""
        return {*self.queues, *self.corrections.links()}

    def change_link(self, ends: Ends, before: Link, after: Link, now: float) -> None:
        """Take another declaration of a link: its uploads go on at that speed, and its corrections are void."""
        queue, was = self.queues.get(ends), before.transfer_seconds(USUAL_BYTES)
        if queue is not None and was > 0:
            factor = after.transfer_seconds(USUAL_BYTES) / was
            queue.rescale(lambda tenant: factor / exp(self.corrections.of(ends, tenant)), now)
            self._loads = NO_LOADS
        self.corrections.forget(ends)

    def slowdown(self, ends: Ends, link: Link, now: float) -> float:
        """Return by which factor the uploads on the same uplink make one take longer at this moment.

        [I] Uploads from one site share its uplink, whose capacity is that of each link; k of them take as long as
        `tranche.estimate.link_contention` says. The factor holds as long as k does. With `shares_targets`, the uplink
        of either site with the most uploads in both directions determines k.
        """
        if not self.shares_uplinks or link.dedicated:
            return 1.0
        if self.shares_targets:
            queue = self.queues.get(ends)
            own, loads = queue is not None and queue.busy_until > now, self._uplink_loads(now)
            others = max((loads[site] - own for site in ends if site not in self.clouds), default=0)
        else:
            others = sum(
                queue.busy_until > now for other, queue in self.queues.items() if other[0] == ends[0] and other != ends
            )
        return unit_seconds(1 + others, 1.0, PENALTY_RATIO)

    def _uplink_loads(self, now: float) -> Counter[str]:
        """Return the number of busy links from or to each site."""
        at, loads = self._loads
        if at != now:
            loads = Counter(site for ends, queue in self.queues.items() if queue.busy_until > now for site in ends)
            self._loads = (now, loads)
        return loads

    def measured(self, ends: Ends, link: Link, size_bytes: float, seconds: float, now: float, tenant: str = "") -> None:
        """Record the measured duration of one upload that has ended, without its wait for others on the same link."""
        expected = link.transfer_seconds(size_bytes) * self.slowdown(ends, link, now)
        if expected > 0 and seconds > 0:
            self.corrections.add(ends, tenant, log(seconds / expected))
