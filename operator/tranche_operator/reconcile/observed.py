"""The input of one reconcile: the job with its plan, its pods, its Service and cached results of earlier requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType

from tranche.kube.api import names
from tranche.kube.api.resources import (
    AdmittedPods,
    PlannedChief,
    PlannedParameterServer,
    PlannedStaging,
    PlannedWindow,
    SiteSpec,
    TrainingJob,
)
from tranche.kube.convert.container_start import StartDelay
from tranche_operator.reconcile.status import NO_TIMES, ConditionUpdate, PodTimes


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
    trained: bool = False
    """Whether its training container has terminated; other containers may still run."""
    sidecars: bool = False
    """Whether other containers than the training container run or are still to start; without restartable init
    containers, which the kubelet stops by itself."""
    node: str = field(default="", compare=False)
    ends_by: datetime | None = field(default=None, compare=False)
    """End of the grace period of a terminating pod, by the clock of the API server."""
    deletion_grace_seconds: int = field(default=0, compare=False)
    """Grace period with which a terminating pod is deleted, in seconds."""
    finalizers: tuple[str, ...] = ()
    selected: bool = True
    """Whether it has the label by which the Service of its job selects it."""
    gates: tuple[str, ...] = ()
    """Names of its scheduling gates."""
    grace_seconds: int = 30
    """At least 1: with 0, a deletion would free the pod's resources while its containers still run."""
    delay: StartDelay | None = None
    """Why its containers do not start, if the kubelet reports a reason."""
    creating_since: datetime | None = field(default=None, compare=False)
    """When it got a node, if no container has started and the kubelet reports no reason."""
    creating: str = field(default="", compare=False)
    """Objects that its containers wait for then, as far as its conditions say so."""
    version: int = field(default=0, compare=False)
    """resourceVersion; increases with each change."""

    @property
    def host(self) -> str:
        """Its host name, if it is not a staging pod; every attempt has the same."""
        return self.name.removesuffix(f"-{self.attempt}")

    @property
    def ended(self) -> bool:
        """Whether it trains no more, although it may still hold its resources."""
        return self.over or self.trained

    @property
    def lingers(self) -> bool:
        """Whether another client has deleted it with a longer grace period than that of its template."""
        return self.terminating and not self.over and self.deletion_grace_seconds > self.grace_seconds


class ServiceState(Enum):
    """State of the Service with the job's name."""

    ABSENT = "absent"
    OWN = "own"
    OUTDATED = "outdated"
    """The Service is the job's own, and has the selector of an earlier release."""
    STALE = "stale"
    """The Service belongs to a deleted job of the same name; garbage collection removes it."""
    FOREIGN = "foreign"
    """The Service does not belong to a TrainingJob."""


SERVICE_REJECTED = "ServiceRejected"
"""Reason of a rejection of the Service; it names a pod that needs the Service."""


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

    @property
    def is_of_service(self) -> bool:
        """Whether the Service was refused, and not the pod, which needs it."""
        return self.reason == SERVICE_REJECTED


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """Result of the dry run of one generation's pods."""

    generation: int
    update: ConditionUpdate
    admitted: AdmittedPods | None = None
    """The pods after admission; None if the API server did not return them."""
    until: datetime | None = None
    """Time of the next dry run; None if the pods of this generation are admitted."""
    count: int = 1
    """Number of consecutive dry runs that have not admitted the pods."""


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
    mounted: str | None = None
    """Directory of the checkpoint volume that the pods mount, if the status has none; None if no pod mounts it."""
    verdict: TemplateVerdict | None = None
    rejection: Rejection | None = None
    staging_rejection: Rejection | None = None
    """Last refusal of a staging pod; it does not delay other pods."""
    refusals: Mapping[str, Rejection] = field(default_factory=lambda: MappingProxyType({}))
    """Evictions that a disruption budget refused, by pod name."""
    reported: frozenset[str] = frozenset()
    """UIDs of preempted pods whose end an event has reported."""
    wait: Wait = Wait()
    times: PodTimes = NO_TIMES
    """Times of a status that waits to be written."""
    is_forbidden: bool = False
    """Whether the API server has just refused pods of the job for a reason that is most often transient."""
    is_busy: bool = False
    """Whether many other jobs wait for a reconcile."""
    is_fresh: bool = True
    """Whether the job was read from the API server after its pods were looked up; else it is from the cache."""
    may_create: bool = True
    """Whether pods may be created by this plan; it may be from the cache if the job has no pods."""


Entry = PlannedWindow | PlannedParameterServer | PlannedStaging


def entries_of(job: TrainingJob) -> dict[str, Entry]:
    """Return all planned pods by name: chief, parameter servers, workers (by index and attempt), staging pods."""
    plan = job.status.plan
    if plan is None:
        return {}
    servers = sorted(plan.parameter_servers, key=lambda server: (server.index, server.attempt))
    windows = sorted(plan.workers, key=lambda window: (window.index, window.attempt))
    entries: dict[str, Entry] = {}
    chiefs: list[PlannedChief] = [plan.chief] if plan.chief is not None else []
    roles = ((names.ROLE_CHIEF, chiefs), (names.ROLE_SERVER, servers), (names.ROLE_WORKER, windows))
    for role, group in roles:
        for entry in group:
            entries[names.pod_name(job.metadata.name, role, entry.index, entry.attempt)] = entry
    for staging in plan.staging:
        if staging.attempt is not None:
            entries[names.staging_pod_name(job.metadata.name, staging.site, staging.attempt)] = staging
    return entries


def is_open(entry: Entry) -> bool:
    """Return whether the entry's pod should exist and run."""
    return isinstance(entry, PlannedStaging) or entry.state == "Open"


def is_current(job: TrainingJob) -> bool:
    """Return whether the plan is for the current generation of the spec; no other plan creates or evicts pods."""
    return job.status.plan is not None and job.status.plan.observed_generation == job.metadata.generation
