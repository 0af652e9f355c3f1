"""Uploads in progress on one link: those of a tenant one after the other, and those of several tenants side by side.

Without the second part, one job with a wrong size of its data would keep the uploads of all tenants waiting.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class LinkQueue:
    """Uploads in progress on one link. Tenants with uploads have equal shares of its bandwidth."""

    ends: dict[str, float] = field(default_factory=dict)
    """Time at which the uploads of each tenant end if it has the whole link from `at` on."""
    at: float = -inf
    """Time up to which the shares are counted; it has a meaning for several tenants only."""

    @property
    def busy_until(self) -> float:
        """Time at which the last upload ends."""
        if len(self.ends) < 2:
            return max(self.ends.values(), default=-inf)
        return self.at + sum(end - self.at for end in self.ends.values())

    def free_at(self, tenant: str, now: float) -> float:
        """Return when the next upload of the tenant could start if it has the whole link from now on."""
        self._advance(now)
        return max(now, self.ends.get(tenant, now))

    def delay(self, tenant: str, end: float, now: float) -> float:
        """Return how much later the uploads of others let one of the tenant end; call `free_at` before.

        Args:
            tenant: The tenant.
            end: Time at which the upload would end if the tenant had the whole link from now on.
            now: Present time, in seconds.
        """
        return sum(min(end, other) - now for name, other in self.ends.items() if name != tenant and other > now)

    def add(self, tenant: str, end: float, now: float) -> None:
        """Enter uploads of the tenant, the last of which ends then if it has the whole link; call `free_at` before."""
        others = {name: other for name, other in self.ends.items() if name != tenant and other > now}
        self.ends, self.at = {**others, tenant: end}, max(self.at, now) if others else now

    def cancel(self, tenant: str, seconds: float, now: float) -> None:
        """Remove `seconds` of the time that the uploads of the tenant still take."""
        if (end := self.free_at(tenant, now)) > now:
            self.ends[tenant] = max(now, end - seconds)

    def rescale(self, factors: Callable[[str], float], now: float) -> None:
        """Multiply the time that the uploads of each tenant still take: the link has another speed from now on."""
        self._advance(now)
        self.ends = {
            tenant: now + (end - now) * factors(tenant) if end > now else end for tenant, end in self.ends.items()
        }

    def _advance(self, now: float) -> None:
        """Count the shares of the tenants up to now."""
        while len(self.ends) > 1 and self.at < now:
            count, least = len(self.ends), min(self.ends.values())
            until = min(now, self.at + max(0.0, least - self.at) * count)
            later = (until - self.at) * (count - 1) / count
            gone = until < now or least <= self.at
            self.ends = {name: end + later for name, end in self.ends.items() if not (gone and end == least)}
            self.at = until
