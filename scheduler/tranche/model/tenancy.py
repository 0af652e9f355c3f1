"""Limits of what the jobs of a namespace may claim: weight, utility, priority class, preemption."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tranche.model.job import LONGEST_RESTART_SECONDS, Job, Preemption
from tranche.model.utility import UTILITY_OF_WEIGHT

PRIORITY_CLASSES: Mapping[str, int] = MappingProxyType({"tranche-low": -10, "tranche-normal": -9, "tranche-high": -8})
"""Values of the PriorityClasses of the strict tiers. The cluster autoscaler ignores pods with a value below −10."""
DEFAULT_CLASS = "tranche-normal"
"""Priority class of a job that names none."""
_CLASSES = {value: name for name, value in PRIORITY_CLASSES.items()}
LARGEST_WEIGHT = 1_000_000.0
"""Largest weight that the API accepts."""
SMALLEST_WEIGHT = 1e-6
"""Weight that a smaller one counts as: remaining work over a weight near 0 is infinite, so that no comparison of ranks
would let another job preempt this one."""


def class_of(priority: int) -> str:
    """Return the name of the PriorityClass with this value; the value itself if it is none of ours."""
    return _CLASSES.get(priority, str(priority))


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """Limits of one namespace; the defaults limit nothing."""

    max_weight: float = LARGEST_WEIGHT
    """Largest weight; a declared utility may be that of a job of this weight which declares none."""
    highest_class: str = "tranche-high"
    """Highest priority class that a job may have."""
    allow_never: bool = True
    """Whether a job may have each preemption policy."""
    max_restart_seconds: float = LONGEST_RESTART_SECONDS
    """Largest cost of a restart, declared or measured: a job that is too costly to preempt is never preempted."""
    allow_at_chunk_end: bool = False
    """Whether a job may have AtChunkEnd where it may not have Never. A worker then runs for as long as its chunk takes,
    which the job decides: with one chunk, until the job ends."""

    def limited(self, job: Job) -> Job:
        """Return the job with claims within the limits, and with a sentence about those that exceeded them."""
        parts: list[str] = []
        weight, utility, priority, preemption = job.weight, job.utility, job.priority, job.preemption
        if weight > self.max_weight:
            weight = self.max_weight
            parts.append(f"weight to {weight:g}")
        if utility is not None and utility.priority > UTILITY_OF_WEIGHT * self.max_weight:
            utility = replace(utility, priority=UTILITY_OF_WEIGHT * self.max_weight)
            parts.append(f"utility.priority to {utility.priority:g}")
        if priority > PRIORITY_CLASSES[self.highest_class]:
            priority = PRIORITY_CLASSES[self.highest_class]
            parts.append(f"priorityClassName to {self.highest_class}")
        if not self._allows(preemption):
            preemption = Preemption.IMMEDIATE
            parts.append("preemption.policy to Immediate")
        restart = min(job.restart_seconds, self.max_restart_seconds)
        if restart < job.restart_seconds:
            parts.append(f"preemption.restartOverhead to {restart:g} s")
        if not (parts or job.limited) and job.restart_limit_seconds == self.max_restart_seconds:
            return job
        return replace(
            job,
            weight=weight,
            utility=utility,
            priority=priority,
            preemption=preemption,
            restart_seconds=restart,
            restart_limit_seconds=self.max_restart_seconds,
            limited=f"namespace {job.namespace} limits {', '.join(parts)}" if parts else "",
        )

    def _allows(self, preemption: Preemption) -> bool:
        at_chunk_end = preemption is Preemption.AT_CHUNK_END and self.allow_at_chunk_end
        return preemption is Preemption.IMMEDIATE or self.allow_never or at_chunk_end


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Limits of all namespaces."""

    defaults: ClaimLimits = ClaimLimits()
    """Limits of namespaces that have none of their own."""
    namespaces: Mapping[str, ClaimLimits] = field(default_factory=lambda: MappingProxyType({}))

    def limited(self, job: Job) -> Job:
        """Return the job with claims within the limits of its namespace."""
        return self.namespaces.get(job.namespace, self.defaults).limited(job)
