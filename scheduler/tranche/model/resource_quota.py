"""Limits of a namespace: the part of a ResourceQuota that applies to tranche's pods."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tranche.model.cluster import Resources

Measure = Literal["cpu", "memory", "gpus", "pods"]
"""Field of `Resources`, with its unit."""


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """One hard limit."""

    resource: str
    """Resource name in the quota, such as ``requests.nvidia.com/gpu``."""
    measure: Measure
    hard: int
    foreign: int = 0
    """Amount in use that the planner has not planned."""
    gpu_resource: str = ""
    """Resource that a limit of GPUs counts, as in `Resources.gpu_resource`."""

    def amount(self, requests: Resources) -> int:
        """Return how much a pod with these requests counts against the limit."""
        if self.measure == "gpus" and requests.gpu_resource != self.gpu_resource:
            return 0
        value: int = getattr(requests, self.measure)
        return value


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: every pod of the namespace that it covers counts against all of its limits."""

    namespace: str
    name: str
    limits: tuple[QuotaLimit, ...]
    priorities: frozenset[int] | None = None
    """Tiers whose pods count; None: pods of all tiers."""
    best_effort: bool | None = None
    """Whether only pods count whose containers request neither CPU nor memory (True), only the others (False), or all
    (None)."""
    terminating: bool | None = None
    """Whether only pods with a deadline count (True), only the others (False), or all (None)."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def covers(self, priority: int, *, best_effort: bool, has_deadline: bool) -> bool:
        """Return whether a pod of that tier, QoS class and deadline counts against the quota."""
        if self.priorities is not None and priority not in self.priorities:
            return False
        if self.terminating is not None and self.terminating != has_deadline:
            return False
        return self.best_effort is None or self.best_effort == best_effort

    def with_foreign(self, foreign: Mapping[str, int]) -> "Quota":
        """Return the same quota with other use by pods that tranche does not manage, by resource."""
        limits = (replace(limit, foreign=foreign.get(limit.resource, 0)) for limit in self.limits)
        return replace(self, limits=tuple(limits))
