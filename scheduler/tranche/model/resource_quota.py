"""What a namespace may use at most: the part of a ResourceQuota that concerns our pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tranche.model.cluster import Resources

Measure = Literal["cpu", "memory", "gpus", "pods"]
"""Field of `Resources`, with its unit."""


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """One hard limit."""

    resource: str
    """As the quota names it, such as ``requests.nvidia.com/gpu``."""
    measure: Measure
    hard: int
    foreign: int = 0
    """In use by what the planner has not planned."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: every pod of the namespace that it covers counts against all of its limits."""

    namespace: str
    name: str
    limits: tuple[QuotaLimit, ...]
    priorities: frozenset[int] | None = None
    """Only pods of these tiers count; None: of all."""
    best_effort: bool | None = None
    """Only pods that ask for neither CPU nor memory count (True), only the others (False), or all (None)."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def covers(self, priority: int, requests: Resources) -> bool:
        """Whether a pod of that tier with these requests counts."""
        if self.priorities is not None and priority not in self.priorities:
            return False
        return self.best_effort is None or self.best_effort == (not requests.cpu and not requests.memory)

    def with_foreign(self, foreign: Mapping[str, int]) -> "Quota":
        """The same quota with other use by what is not ours, by resource."""
        limits = (QuotaLimit(one.resource, one.measure, one.hard, foreign.get(one.resource, 0)) for one in self.limits)
        return Quota(self.namespace, self.name, tuple(limits), self.priorities, self.best_effort)
