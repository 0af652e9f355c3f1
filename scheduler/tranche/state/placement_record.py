"""Record of a job's pods that could not be placed, and what it permits the job to do to others.

Ours [I]. The planner does not know everything that kube-scheduler, admission and kubelets check. A job preempts others
for the promise that its pod then runs. A preemption succeeds when the pods that were planned then have started, and it
has failed when one of them finds no place or does not start. After that, the job preempts no other for a pause that
doubles with each failed preemption, and then for one window at a time, until a preemption succeeds. A pod that is
placed in free capacity proves nothing about the next one. A job whose pods have constraints that the planner does not
plan with always preempts for one window at a time.

kube-scheduler also knows constraints that hold for a whole site, such as the zone of a volume. Sites where pods of a
job find no place come last, and are remembered when a pod is placed at another site. Then the job stops no worker at
them either. Each such site is tried again after an hour, which doubles each time.

An unlimited site where a pod finds no place refuses the job at once, since windows there have no node that could be
excluded. It is skipped while nodes or another unlimited site could take the job. This failure says nothing about
nodes, so that the job preempts on them as before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

COUNTED_SECONDS = 3600.0
"""Time for which a failed preemption counts against its namespace."""


class PreemptionScope(IntEnum):
    """Number of windows for which a job may preempt other jobs at a time."""

    NONE = 0
    """The job uses free capacity only."""
    ONE = 1
    """One window (of a gang: all of them), whose pod must be placed before the next."""
    ALL = 2
    """As many as its policy gives it."""


@dataclass(frozen=True, slots=True)
class SiteRefusal:
    """A site where pods of a job found no place while others of its pods found one elsewhere, or an unlimited site."""

    node: str
    """The last node there on which a pod found no place; empty at an unlimited site."""
    count: int
    """Number of such times in a row."""
    until: float
    """Time from which the site is like any other, in seconds."""
    at: float = 0.0
    """Time of the last failure at an unlimited site, in seconds."""


@dataclass(slots=True, eq=False)
class PlacementRecord:
    """Failed attempts of a job to have a pod placed, and its failed preemptions."""

    placed: bool = False
    """Whether kube-scheduler has placed a pod of this specification, and none has failed to be placed since."""
    preempted_at: float | None = None
    """Time at which the job last stopped a window of another job or moved a worker of its own, in seconds; None after
    the pods that were planned then, or later, have started or have found no place."""
    failed_preemptions: int = 0
    """Number of failed preemptions since one succeeded."""
    failures: int = 0
    """Number of pods that found no place, that the API server rejected or that did not start, since one was placed."""
    unstarted: bool = False
    """Whether a pod that had a place ended before it started, so that only a start says that the next one is better."""
    nodes: dict[str, None] = field(default_factory=dict)
    """Nodes on which these pods found no place."""
    refusals: Mapping[str, SiteRefusal] = field(default_factory=lambda: MappingProxyType({}))
    """Sites where earlier pods of this specification found no place, and where none has been placed since."""
    message: str = ""
    """Last message of kube-scheduler or the API server."""
    failed_at: float = 0.0
    """Time of the last failure, in seconds on the planner's clock."""
    paused_until: float = 0.0
    """Time before which the job preempts no other; 0: it is not paused."""

    @property
    def paused(self) -> bool:
        """Whether the job preempts no other for now; a timer ends the pause."""
        return self.paused_until > 0

    def refusing_sites(self, now: float) -> set[str]:
        """Return the sites where earlier pods found no place, as long as that counts."""
        return {site for site, refusal in self.refusals.items() if refusal.until > now}


@dataclass(slots=True, eq=False)
class FailedPreemptions:
    """Failed preemptions by namespace.

    A job that is deleted and created again has an empty record. Therefore, where a namespace has had many failed
    preemptions lately, those of its jobs of which no pod has been placed preempt no other.
    """

    times: dict[str, list[float]] = field(default_factory=dict)
    """Times of the last failed preemptions, in seconds."""
    restrained: dict[str, float] = field(default_factory=dict)
    """Namespaces that have reached the limit, with the time at which their oldest preemption no longer counts."""

    def note(self, namespace: str, now: float, most: int) -> float | None:
        """Record a failed preemption; return until when the namespace is restrained, or None if it is not.

        Args:
            namespace: Namespace of the job.
            now: Current time in seconds.
            most: Number of failed preemptions at which a namespace is restrained.
        """
        since = now - COUNTED_SECONDS
        self.times = {name: times for name, times in self.times.items() if times[-1] > since}
        times = [at for at in self.times.get(namespace, ()) if at > since]
        times = self.times[namespace] = [*times[-most:], now]
        if len(times) < most:
            return None
        self.restrained[namespace] = times[-most] + COUNTED_SECONDS
        return self.restrained[namespace]

    def end_restraints(self, now: float) -> list[str]:
        """End the restraints whose time is over; return their namespaces."""
        ended = [namespace for namespace, until in self.restrained.items() if until <= now]
        for namespace in ended:
            del self.restrained[namespace]
        return ended

    def copied(self) -> "FailedPreemptions":
        """Return a copy that can change on its own."""
        return FailedPreemptions({name: list(times) for name, times in self.times.items()}, dict(self.restrained))
