"""The books of quotas: what our planned pods ask of each namespace's quotas, and whether more would be refused.

A window or a parameter server counts from its opening until its pod is over, not only until it is told to stop: the API
server counts it as long, and would refuse the pod that is to follow it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tranche.model import Job, Quota, QuotaLimit, Resources

Pod = tuple[str, int]
"""Job key and attempt."""
Kind = tuple[str, int, Resources]
"""Namespace, tier and requests: pods of a kind count against the same limits by the same amounts."""
NOBODY: Mapping[Kind, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Shortage:
    """The limit that refuses a request."""

    quota: Quota
    limit: QuotaLimit
    used: int
    """By anybody now."""
    asked: int

    @property
    def hopeless(self) -> bool:
        """Whether the request is larger than the limit itself."""
        return self.asked > self.limit.hard


@dataclass(slots=True, eq=False)
class Quotas:
    """All quotas, and who counts against them."""

    by_namespace: dict[str, dict[str, Quota]] = field(default_factory=dict)
    _taken: dict[Pod, Kind] = field(default_factory=dict)
    _counts: dict[str, dict[Kind, int]] = field(default_factory=dict)
    """Pods of each kind, by namespace."""

    def put(self, quota: Quota) -> None:
        """A quota is new, or it changed."""
        self.by_namespace.setdefault(quota.namespace, {})[quota.name] = quota

    def remove(self, namespace: str, name: str) -> None:
        """A quota is gone."""
        left = self.by_namespace.get(namespace, {})
        left.pop(name, None)
        if not left:
            self.by_namespace.pop(namespace, None)

    def copied(self) -> "Quotas":
        """The same, to be changed on its own."""
        counts = {namespace: dict(kinds) for namespace, kinds in self._counts.items()}
        return Quotas({name: dict(quotas) for name, quotas in self.by_namespace.items()}, dict(self._taken), counts)

    def take(self, job: Job, attempt: int, requests: Resources) -> None:
        """A pod of the job counts from now on."""
        kind = self._taken[job.key, attempt] = kind_of(job, requests)
        counts = self._counts.setdefault(kind[0], {})
        counts[kind] = counts.get(kind, 0) + 1

    def give(self, job: str, attempt: int) -> None:
        """It counts no more."""
        kind = self._taken.pop((job, attempt), None)
        if kind is not None:
            counts = self._counts[kind[0]]
            counts[kind] -= 1
            if not counts[kind]:
                del counts[kind]

    def holds(self, job: str, attempt: int) -> bool:
        """Whether that pod counts."""
        return (job, attempt) in self._taken

    def holders(self) -> set[Pod]:
        """All pods that count."""
        return set(self._taken)

    def covering(self, job: Job) -> str:
        """The namespace's quotas that cover the job's workers, as a text; empty if none does."""
        quotas = self.by_namespace.get(job.namespace, {})
        return " ".join(sorted(q.key for q in quotas.values() if q.covers(job.priority, job.worker.requests)))

    def shortage(
        self, job: Job, workers: int, others: Iterable[Resources] = (), *, besides: Mapping[Kind, int] = NOBODY
    ) -> Shortage | None:
        """The first limit that would refuse so many more pods of the job; None if all may be created.

        Args:
            job: Whose pods.
            workers: That start together.
            others: Requests of parameter servers and chief that start with them.
            besides: More pods that count, by kind (negative: fewer).
        """
        pods = [(job.worker.requests, workers), *((requests, 1) for requests in others)]
        for _, quota in sorted(self.by_namespace.get(job.namespace, {}).items()):
            asked = [(requests, n) for requests, n in pods if quota.covers(job.priority, requests)]
            for limit in quota.limits:
                more = sum(n * getattr(requests, limit.measure) for requests, n in asked)
                used = self.used(quota, limit, besides)
                if more and used + more > limit.hard:
                    return Shortage(quota, limit, used, more)
        return None

    def exceeded(self, job: Job) -> Shortage | None:
        """The quota that is smaller than what its namespace has, one worker of the job included, if there is one."""
        return self.shortage(job, 1, besides={kind_of(job, job.worker.requests): -1})

    def most_workers(self, job: Job, wanted: int) -> int:
        """How many workers of the job, at most so many, could start now."""
        for quota in self.by_namespace.get(job.namespace, {}).values():
            if quota.covers(job.priority, job.worker.requests):
                for limit in quota.limits:
                    if each := getattr(job.worker.requests, limit.measure):
                        wanted = min(wanted, (limit.hard - self.used(quota, limit)) // each)
        return max(0, wanted)

    def used(self, quota: Quota, limit: QuotaLimit, besides: Mapping[Kind, int] = NOBODY) -> int:
        """What counts against a limit now, foreign pods included."""
        kinds: Iterable[tuple[Kind, int]] = self._counts.get(quota.namespace, {}).items()
        ours = _sum(quota, limit, kinds) + _sum(quota, limit, besides.items())
        return limit.foreign + ours


def kind_of(job: Job, requests: Resources) -> Kind:
    """What a pod of the job with these requests counts as."""
    return (job.namespace, job.priority, requests)


def _sum(quota: Quota, limit: QuotaLimit, kinds: Iterable[tuple[Kind, int]]) -> int:
    return sum(
        count * getattr(requests, limit.measure)
        for (namespace, priority, requests), count in kinds
        if namespace == quota.namespace and quota.covers(priority, requests)
    )
