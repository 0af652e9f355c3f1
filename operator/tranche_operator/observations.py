"""What one reconcile looks at: the job, its pods, its Service, and what this process remembers of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType

from tranche.kube.resources import SiteSpec, TrainingJob
from tranche_operator.statuses import ConditionUpdate


@dataclass(frozen=True, slots=True)
class PodView:
    """What reconcile needs to know of a pod that carries the job's label."""

    name: str
    uid: str
    owner: str | None
    """UID of the TrainingJob that controls it; None if no TrainingJob does: such a pod is not ours to stop."""
    role: str
    attempt: int
    phase: str
    over: bool
    """It has ended, or it is being deleted and no kubelet runs it any more."""
    terminating: bool
    finalizers: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    """Scheduling gates."""
    grace_seconds: int = 30
    plan: tuple[int, int] = (0, 0)
    """Term and revision of the plan that it was created from."""
    version: int = field(default=0, compare=False)
    """Its resourceVersion: rises with each change."""


class ServiceState(Enum):
    """What is there under the name of the job's Service."""

    ABSENT = "absent"
    OWN = "own"
    STALE = "stale"
    """Of a deleted job of the same name; garbage collection removes it."""
    FOREIGN = "foreign"
    """Somebody else's."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The API server refused to create a pod, or to evict one."""

    pod: str
    reason: str
    """CamelCase."""
    message: str
    until: datetime
    """Not to be tried again before."""
    count: int = 1
    """Refusals in a row."""


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """What the dry run of one generation's pods came to."""

    generation: int
    update: ConditionUpdate


@dataclass(frozen=True, slots=True)
class Wait:
    """What the users of a job that waits have been told, and when they may be told more."""

    last_message: str = ""
    """The sentence of the last event; "" if there was none since the job last had workers."""
    not_before: datetime | None = None
    """Of the next event."""
    has_event_slot: bool = False
    """The next event has its place among those of all jobs, at that time."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that reconcile decides from."""

    key: str
    """``namespace/name``."""
    job: TrainingJob | None
    """None if there is no such job (any more)."""
    pods: tuple[PodView, ...] = ()
    service: ServiceState = ServiceState.OWN
    sites: Mapping[str, SiteSpec] = field(default_factory=lambda: MappingProxyType({}))
    """Those where pods are to be created, as far as they are declared."""
    verdict: TemplateVerdict | None = None
    rejection: Rejection | None = None
    staging_rejection: Rejection | None = None
    """Of a pod that brings data: the others do not wait for it."""
    refusals: Mapping[str, Rejection] = field(default_factory=lambda: MappingProxyType({}))
    """Pods that a disruption budget kept from being evicted, by name."""
    wait: Wait = Wait()
