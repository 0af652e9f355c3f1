"""Usage of ResourceQuotas by planned pods, and whether the API server would reject more of them.

A window or a parameter server counts from its opening until its pod has ended, also while it closes: the API server
counts the pod that long, and would reject the pod that follows it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from tranche.model import Job, PodShape, Quota, QuotaLimit, Resources

Pod = tuple[str, int]
"""Job key and attempt."""


class Kind(NamedTuple):
    """Pods of a kind count against the same limits by the same amounts."""

    namespace: str
    priority: int
    requests: Resources
    best_effort: bool
    has_deadline: bool


NO_PODS: Mapping[Kind, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Shortage:
    """A limit that a request would exceed."""

    quota: Quota
    limit: QuotaLimit
    used: int
    """Present usage, that of foreign pods included."""
    asked: int

    @property
    def hopeless(self) -> bool:
        """Whether the request is larger than the limit itself."""
        return self.asked > self.limit.hard

    def limit_counts(self, job: Job) -> bool:
        """Return whether workers of the job count against the limit."""
        kind = kind_of(job, job.worker.requests)
        return is_covered(self.quota, kind) and self.limit.amount(kind.requests) > 0


@dataclass(slots=True, eq=False)
class Quotas:
    """All quotas, and the planned pods that count against them."""

    by_namespace: dict[str, dict[str, Quota]] = field(default_factory=dict)
    _taken: dict[Pod, Kind] = field(default_factory=dict)
    _counts: dict[str, dict[Kind, int]] | None = None
    """Number of pods of each kind, by namespace; None until the usage of a quota is asked for."""

    def put(self, quota: Quota) -> None:
        """Add or replace a quota."""
        self.by_namespace.setdefault(quota.namespace, {})[quota.name] = quota

    def remove(self, namespace: str, name: str) -> None:
        """Remove a quota."""
        quotas = self.by_namespace.get(namespace, {})
        quotas.pop(name, None)
        if not quotas:
            self.by_namespace.pop(namespace, None)

    def copied(self) -> "Quotas":
        """Return a copy that can be changed independently."""
        return Quotas({name: dict(quotas) for name, quotas in self.by_namespace.items()}, dict(self._taken))

    def take(self, job: Job, attempt: int, requests: Resources, shape: PodShape | None = None) -> None:
        """Count a pod of the job from now on; its shape is by default that of a worker."""
        kind = self._taken[job.key, attempt] = kind_of(job, requests, shape)
        if self._counts is not None:
            counts = self._counts.setdefault(kind.namespace, {})
            counts[kind] = counts.get(kind, 0) + 1

    def give(self, job: str, attempt: int) -> None:
        """Stop counting a pod; a pod that does not count is ignored."""
        kind = self._taken.pop((job, attempt), None)
        if kind is not None and self._counts is not None:
            counts = self._counts[kind.namespace]
            remaining = counts.pop(kind) - 1
            if remaining:
                counts[kind] = remaining

    def holds(self, job: str, attempt: int) -> bool:
        """Return whether that pod counts."""
        return (job, attempt) in self._taken

    def holders(self) -> set[Pod]:
        """Return all pods that count."""
        return set(self._taken)

    def covering(self, job: Job) -> str:
        """Return the keys of the quotas that cover the job's workers, separated by spaces; empty if there are none."""
        if not self.by_namespace:
            return ""
        quotas = self.by_namespace.get(job.namespace, {})
        return " ".join(sorted(q.key for q in quotas.values() if is_covered(q, kind_of(job, job.worker.requests))))

    def shortage(
        self, job: Job, workers: int, others: Iterable[PodShape] = (), *, besides: Mapping[Kind, int] = NO_PODS
    ) -> Shortage | None:
        """Return the first limit that more pods of the job would exceed; None if all may be created.

        The arguments are those of `shortages`.
        """
        return next(self.shortages(job, workers, others, besides=besides), None)

    def shortages(
        self, job: Job, workers: int, others: Iterable[PodShape] = (), *, besides: Mapping[Kind, int] = NO_PODS
    ) -> Iterator[Shortage]:
        """Yield the limits that more pods of the job would exceed.

        Args:
            job: The job of the pods.
            workers: Number of workers that start together.
            others: Requirements of parameter servers and chief that start with them.
            besides: Number of further pods to count, by kind (negative: fewer).
        """
        pods = [(kind_of(job, job.worker.requests), workers)]
        pods += [(kind_of(job, shape.requests, shape), 1) for shape in others]
        for _, quota in sorted(self.by_namespace.get(job.namespace, {}).items()):
            covered = [(kind.requests, count) for kind, count in pods if is_covered(quota, kind)]
            for limit in quota.limits:
                amount = sum(count * limit.amount(requests) for requests, count in covered)
                used = self.used(quota, limit, besides)
                if amount and used + amount > limit.hard:
                    yield Shortage(quota, limit, used, amount)

    def exceeded(self, job: Job) -> Shortage | None:
        """Return a limit below the present usage, of those that cover the job's workers; None if there is none."""
        return self.shortage(job, 1, besides={kind_of(job, job.worker.requests): -1})

    def most_workers(self, job: Job, wanted: int) -> int:
        """Return how many workers of the job could start now, at most `wanted`."""
        if not self.by_namespace:
            return max(0, wanted)
        kind = kind_of(job, job.worker.requests)
        for quota in self.by_namespace.get(job.namespace, {}).values():
            if is_covered(quota, kind):
                for limit in quota.limits:
                    if per_worker := limit.amount(job.worker.requests):
                        wanted = min(wanted, (limit.hard - self.used(quota, limit)) // per_worker)
        return max(0, wanted)

    def used(self, quota: Quota, limit: QuotaLimit, besides: Mapping[Kind, int] = NO_PODS) -> int:
        """Return what counts against a limit now, foreign pods included, in the unit of its measure."""
        if self._counts is None:
            self._counts = {}
            for kind, count in Counter(self._taken.values()).items():
                self._counts.setdefault(kind.namespace, {})[kind] = count
        kinds: Iterable[tuple[Kind, int]] = self._counts.get(quota.namespace, {}).items()
        ours = _sum(quota, limit, kinds) + _sum(quota, limit, besides.items())
        return limit.foreign + ours


def kind_of(job: Job, requests: Resources, shape: PodShape | None = None) -> Kind:
    """Return the kind of a pod of the job with these requests; its shape is by default that of a worker."""
    shape = shape or job.worker
    return Kind(job.namespace, job.priority, requests, shape.is_best_effort(requests), shape.has_deadline)


def is_covered(quota: Quota, kind: Kind) -> bool:
    """Return whether pods of that kind count against the quota."""
    covers = quota.covers(kind.priority, best_effort=kind.best_effort, has_deadline=kind.has_deadline)
    return covers and kind.namespace == quota.namespace


def _sum(quota: Quota, limit: QuotaLimit, kinds: Iterable[tuple[Kind, int]]) -> int:
    return sum(count * limit.amount(kind.requests) for kind, count in kinds if is_covered(quota, kind))
