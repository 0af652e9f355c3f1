"""What tenants hold, and what completed jobs needed: the memory that fairness and prediction draw on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from types import MappingProxyType
from typing import Any, TypeVar

from tranche.estimate import Sizes
from tranche.model import Resources

Derived = TypeVar("Derived")
REVIEW_SECONDS = 60.0
"""Least time between two looks at who is above its share."""
MARGIN = 0.05
"""Who is above its share by more than this part of it ranks behind, until it is no more above it at all."""


@dataclass(slots=True)
class Recent:
    """GPU time of a tenant with exponential forgetting."""

    gpu_seconds: float
    at: float


@dataclass(slots=True)
class Shares:
    """Resources that each tenant's open windows hold, and the GPU time that they held lately."""

    capacity: Resources = Resources()
    """Of all nodes together."""
    held: dict[str, Resources] = field(default_factory=dict)
    counted: bool = False
    """Whether the policy uses shares, so that open windows are counted."""
    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """What a tenant is entitled to, relative to others; 1 if not given."""
    halflife_seconds: float = 0.0
    """0: GPU time is not counted."""
    over: frozenset[str] = frozenset()
    """Tenants above their share of recent GPU time when last looked at."""
    revision: int = 0
    """Rises whenever `over` changes."""
    reviewed: float = -inf
    """When that was looked at."""
    looked_at: tuple[str, ...] = ()
    """Tenants that had jobs then."""
    review_at: float = -inf
    """For when the last timer is set."""
    _recent: dict[str, Recent] = field(default_factory=dict)

    def copied(self) -> "Shares":
        """The same, to be changed on its own."""
        return replace(self, held=dict(self.held), _recent=dict(self._recent))

    def change(self, tenant: str, more: Resources, now: float) -> None:
        """Count more (or, if negative, less) for a tenant from now on."""
        if self.halflife_seconds:
            self._recent[tenant] = Recent(self.recent(tenant, now), now)
        self.held[tenant] = self.held.get(tenant, Resources()) + more

    def recent(self, tenant: str, now: float) -> float:
        """The tenant's recent GPU time in GPU-seconds: what it holds counts fully now, and half a half-life later."""
        known = self._recent.get(tenant)
        if known is None:
            return 0.0
        rate = log(2) / self.halflife_seconds
        kept = exp(-rate * max(0.0, now - known.at))
        held = self.held.get(tenant)
        return known.gpu_seconds * kept + (held.gpus if held else 0) * (1 - kept) / rate

    def restore(self, tenant: str, gpu_seconds: float, since: float, now: float) -> None:
        """Count GPU time of before this planner, of which only the sum is known: as if spread evenly since then."""
        if self.halflife_seconds and gpu_seconds > 0:
            age = log(2) / self.halflife_seconds * max(0.0, now - since)
            kept = (1 - exp(-age)) / age if age > 0 else 1.0
            self._recent[tenant] = Recent(self.recent(tenant, now) + gpu_seconds * kept, now)

    def review(self, tenants: Iterable[str], now: float) -> None:
        """Look again at who of the tenants, those with jobs, is above its share."""
        self.reviewed, self.looked_at = now, tuple(sorted(tenants))
        used = {tenant: self.recent(tenant, now) for tenant in self.looked_at}
        total = sum(used.values())
        over = frozenset(tenant for tenant, bound in self._bounds() if used[tenant] > bound * total)
        if over != self.over:
            self.over = over
            self.revision += 1

    def next_crossing(self, now: float) -> float | None:
        """When the next of the tenants looked at passes its bound if nobody starts or stops; None if nobody will.

        Use at a time with the fraction x of today's left is ``used·x + held·(1 − x)/rate``: linear in x, so the
        distance of a tenant from its bound is, too.
        """
        rate = log(2) / self.halflife_seconds
        used = {tenant: self.recent(tenant, now) for tenant in self.looked_at}
        held = {tenant: self.held[tenant].gpus / rate if tenant in self.held else 0.0 for tenant in self.looked_at}
        all_used, all_held = sum(used.values()), sum(held.values())
        nearest = 0.0
        for tenant, bound in self._bounds():
            today, later = used[tenant] - bound * all_used, held[tenant] - bound * all_held
            if today <= 0 < later or later < 0 < today:
                nearest = max(nearest, later / (later - today))
        return now - log(nearest) / rate if nearest else None

    def _bounds(self) -> Iterator[tuple[str, float]]:
        """The part of all recent GPU time beyond which a tenant is above its share."""
        entitled = sum(self.weights.get(tenant, 1.0) for tenant in self.looked_at)
        for tenant in self.looked_at:
            margin = 1.0 if tenant in self.over else 1.0 + MARGIN
            yield tenant, margin * self.weights.get(tenant, 1.0) / entitled

    def dominant(self, tenant: str) -> float:
        """The tenant's largest share of any resource (GPUs, CPU, memory), 0 … 1."""
        held = self.held.get(tenant)
        if held is None:
            return 0.0
        whole = self.capacity
        pairs = ((held.gpus, whole.gpus), (held.cpu, whole.cpu), (held.memory, whole.memory))
        return max((part / total for part, total in pairs if total), default=0.0)


@dataclass(slots=True)
class History:
    """Service of completed jobs in GPU-seconds, in order of completion."""

    services: list[float] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    _derived: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.services)

    def add(self, gpu_seconds: float) -> None:
        """A job has completed."""
        self.services.append(gpu_seconds)

    def derive(self, name: str, count: int, function: Callable[[Sequence[float]], Derived]) -> Derived:
        """What a function says of the first `count` services, sorted; computed once while name and count stay."""
        known = self._derived.get(name)
        if known is None or known[0] != count:
            known = self._derived[name] = (count, function(sorted(self.services[:count])))
        found: Derived = known[1]
        return found
