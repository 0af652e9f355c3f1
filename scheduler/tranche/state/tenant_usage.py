"""Usage of tenants and service of completed jobs, as the basis of fair shares and predictions."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import exp, fsum, inf, log
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from tranche.estimate import DeclaredSizes, Sizes
from tranche.model import Resources

Derived = TypeVar("Derived")
REVIEW_SECONDS = 60.0
"""Least time between two reviews of which tenants are above their shares."""
MARGIN = 0.05
"""Part of its share by which a tenant has to exceed it to rank behind; it stays behind until it is no longer above."""


def last_review(count: int, fewest: int, growth: float) -> int:
    """Return the number of completed jobs at the last review of a policy, of `count` so far.

    The first review is after `fewest`, and the next ones when their number has grown by the factor. 0: none yet.
    """
    return int(fewest * growth ** int(log(count / fewest) / log(growth) + 1e-9)) if count >= fewest else 0


@dataclass(slots=True)
class Recent:
    """GPU time of a tenant with exponential decay, as of a point in time."""

    gpu_seconds: float
    at: float


@dataclass(slots=True)
class Shares:
    """Resources that each tenant's open windows hold, and the GPU time that they held recently."""

    capacity: Resources = Resources()
    """Capacity of all nodes together."""
    held: dict[str, Resources] = field(default_factory=dict)
    counted: bool = False
    """Whether the policy uses shares, so that open windows are counted."""
    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Weight of each tenant's share in relation to the others; 1 if not given."""
    halflife_seconds: float = 0.0
    """Time after which GPU time counts half, in seconds; 0: it is not counted."""
    over: frozenset[str] = frozenset()
    """Tenants above their share of recent GPU time at the last review."""
    revision: int = 0
    """Number that rises whenever `over` changes."""
    reviewed: float = -inf
    """Time of the last review, in seconds on the planner's clock."""
    looked_at: tuple[str, ...] = ()
    """Tenants that had jobs then, by name."""
    review_at: float = -inf
    """Time for which the last timer is set."""
    _recent: dict[str, Recent] = field(default_factory=dict)

    def copied(self) -> "Shares":
        """Return a copy that can be changed independently."""
        return replace(self, held=dict(self.held), _recent=dict(self._recent))

    def change(self, tenant: str, amount: Resources, now: float) -> None:
        """Add an amount, which may be negative, to what the tenant holds from now on."""
        if self.halflife_seconds:
            self._recent[tenant] = Recent(self.recent(tenant, now), now)
        self.held[tenant] = self.held.get(tenant, Resources()) + amount

    def recent(self, tenant: str, now: float) -> float:
        """Return the tenant's recent GPU-seconds: GPU time counts fully now and half after one half-life."""
        record = self._recent.get(tenant)
        if record is None:
            return 0.0
        rate = log(2) / self.halflife_seconds
        share = exp(-rate * max(0.0, now - record.at))
        held = self.held.get(tenant)
        return record.gpu_seconds * share + (held.gpus if held else 0) * (1 - share) / rate

    def restore(self, tenant: str, gpu_seconds: float, since: float, now: float) -> None:
        """Add GPU time from before this planner, of which only the sum is known, spread evenly since `since`."""
        if self.halflife_seconds and gpu_seconds > 0:
            age = log(2) / self.halflife_seconds * max(0.0, now - since)
            share = (1 - exp(-age)) / age if age > 0 else 1.0
            self._recent[tenant] = Recent(self.recent(tenant, now) + gpu_seconds * share, now)

    def review(self, tenants: Iterable[str], now: float) -> None:
        """Determine which of the tenants, those with jobs, are above their shares."""
        self.reviewed, self.looked_at = now, tuple(sorted(tenants))
        used = {tenant: self.recent(tenant, now) for tenant in self.looked_at}
        total = fsum(used.values())
        over = frozenset(tenant for tenant, bound in self._bounds() if used[tenant] > bound * total)
        if over != self.over:
            self.over = over
            self.revision += 1

    def next_crossing(self, now: float) -> float | None:
        """Return when the next reviewed tenant passes its bound if no worker starts or stops; None if never.

        At a time when the fraction x of the present usage is left, usage is ``used·x + held·(1 − x)/rate``. It is
        linear in x, and so is the distance of a tenant from its bound.
        """
        rate = log(2) / self.halflife_seconds
        used = {tenant: self.recent(tenant, now) for tenant in self.looked_at}
        held = {tenant: self.held[tenant].gpus / rate if tenant in self.held else 0.0 for tenant in self.looked_at}
        all_used, all_held = fsum(used.values()), fsum(held.values())
        nearest = 0.0
        for tenant, bound in self._bounds():
            today, later = used[tenant] - bound * all_used, held[tenant] - bound * all_held
            if today <= 0 < later or later < 0 < today:
                nearest = max(nearest, later / (later - today))
        return now - log(nearest) / rate if nearest else None

    def _bounds(self) -> Iterator[tuple[str, float]]:
        """Yield each reviewed tenant with the part of all recent GPU time beyond which it is above its share."""
        entitled = fsum(self.weights.get(tenant, 1.0) for tenant in self.looked_at)
        for tenant in self.looked_at:
            margin = 1.0 if tenant in self.over else 1.0 + MARGIN
            yield tenant, margin * self.weights.get(tenant, 1.0) / entitled

    def dominant(self, tenant: str) -> float:
        """Return the tenant's largest share of any resource (GPUs, CPU, memory), 0 … 1."""
        held = self.held.get(tenant)
        return 0.0 if held is None else max(held.parts_of(self.capacity), default=0.0)


class CompletedJob(NamedTuple):
    """Size of a completed job, as expected and as it was."""

    gpu_seconds: float
    """Service that it needed."""
    submitted: float = 0.0
    """Time of its submission, in seconds on the planner's clock."""
    gpus: int = 1
    """Number of GPUs of all workers that trained at the same time."""
    nominal_gpu_seconds: float = 0.0
    """Service by its specification, or by the assumption for jobs that do not declare their size."""
    size_declared: bool = True
    """Whether the specification declares it."""
    restart_seconds: float = 0.0
    """Time that each start of its workers took, by the specification."""


KEPT_JOBS = 50_000
"""Number of completed jobs that are kept when twice as many are known, so that the memory of a planner is limited."""


@dataclass(slots=True)
class History:
    """Completed jobs in order of completion, and the sizes learned from them."""

    completed: list[CompletedJob] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    declared: DeclaredSizes = field(default_factory=DeclaredSizes)
    observed: int = 0
    """Number of completed jobs without those that a rollout expects to complete."""
    _expected: bool = False
    """Whether further completions are those of a rollout."""
    _derived: dict[str, tuple[tuple[Hashable, ...], Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.completed)

    def add(self, job: CompletedJob) -> None:
        """Add a completed job; of very many, the earliest are forgotten."""
        self.completed.append(job)
        self.observed += not self._expected
        if len(self.completed) == 2 * KEPT_JOBS:
            del self.completed[:KEPT_JOBS]
            self.observed = max(0, self.observed - KEPT_JOBS)

    def copied(self) -> "History":
        """Return a copy for a rollout, without what was learned about sizes."""
        return History(list(self.completed), observed=self.observed, _expected=True, _derived=dict(self._derived))

    def derive(self, name: str, count: int, function: Callable[..., Derived], *others: Hashable) -> Derived:
        """Return the function of the first `count` completed jobs and of other values; kept while all these stay."""
        cached, arguments = self._derived.get(name), (count, *others)
        if cached is None or cached[0] != arguments:
            cached = self._derived[name] = (arguments, function(self.completed[:count], *others))
        value: Derived = cached[1]
        return value
