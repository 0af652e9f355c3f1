"""The input of one reconcile: the job, its pods, its Service and cached results of earlier requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType

from tranche.kube.resources import SiteSpec, TrainingJob
from tranche_operator.statuses import ConditionUpdate


@dataclass(frozen=True, slots=True)
class PodView:
    """The part of a pod with the job's label that reconcile reads."""

    name: str
    uid: str
    owner: str | None
    """UID of the TrainingJob that controls it. None if no TrainingJob does; the operator never stops such a pod."""
    role: str
    attempt: int
    phase: str
    over: bool
    """Whether it has ended, or is being deleted without a kubelet that runs it."""
    terminating: bool
    finalizers: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    """Names of its scheduling gates."""
    grace_seconds: int = 30
    plan: tuple[int, int] = (0, 0)
    """Term and revision of the plan from which it was created."""
    version: int = field(default=0, compare=False)
    """resourceVersion; increases with each change."""


class ServiceState(Enum):
    """State of the Service with the job's name."""

    ABSENT = "absent"
    OWN = "own"
    STALE = "stale"
    """The Service belongs to a deleted job of the same name; garbage collection removes it."""
    FOREIGN = "foreign"
    """The Service does not belong to a TrainingJob."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refusal by the API server to create or evict a pod."""

    pod: str
    reason: str
    """CamelCase."""
    message: str
    until: datetime
    """Earliest time of the next try."""
    count: int = 1
    """Number of consecutive refusals."""


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """Result of the dry run of one generation's pods."""

    generation: int
    update: ConditionUpdate


@dataclass(frozen=True, slots=True)
class Wait:
    """The last Pending event of a waiting job, and the time of the next one."""

    last_message: str = ""
    """Message of the last event; empty if there was none since the job last had workers."""
    not_before: datetime | None = None
    """Earliest time of the next event."""
    has_event_slot: bool = False
    """Whether the next event has a reserved slot at that time."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Complete input of `reconcile`."""

    key: str
    """``namespace/name``."""
    job: TrainingJob | None
    """None if the job does not exist."""
    pods: tuple[PodView, ...] = ()
    service: ServiceState = ServiceState.OWN
    sites: Mapping[str, SiteSpec] = field(default_factory=lambda: MappingProxyType({}))
    """Declared sites where pods are to be created, by name."""
    verdict: TemplateVerdict | None = None
    rejection: Rejection | None = None
    staging_rejection: Rejection | None = None
    """Last refusal of a staging pod; it does not delay other pods."""
    refusals: Mapping[str, Rejection] = field(default_factory=lambda: MappingProxyType({}))
    """Evictions that a disruption budget refused, by pod name."""
    wait: Wait = Wait()
