"""What one reconcile looks at: the job, its pods, its Service, and what this process remembers of it.

Reading status.plan: which pod belongs to which entry, and whether the plan counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType

from tranche.kube.api import names
from tranche.kube.api.resources import (
    PlannedChief,
    PlannedParameterServer,
    PlannedStaging,
    PlannedWindow,
    SiteSpec,
    TrainingJob,
)
from tranche_operator.reconcile.status import Finding


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
    finding: Finding


@dataclass(frozen=True, slots=True)
class Wait:
    """What the users of a job that waits have been told, and when they may be told more."""

    told: str = ""
    """The sentence of the last event; "" if there was none since the job last had workers."""
    not_before: datetime | None = None
    """Of the next event."""
    has_turn: bool = False
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


Entry = PlannedWindow | PlannedParameterServer | PlannedStaging


def entries_of(job: TrainingJob) -> dict[str, Entry]:
    """All planned pods by name: chief and parameter servers first, then workers, by index and attempt, then staging."""
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
    """Whether the entry's pod should exist and run."""
    return isinstance(entry, PlannedStaging) or entry.state == "Open"


def is_current(job: TrainingJob) -> bool:
    """Whether there is a plan for the spec as it is now; another one creates and evicts nothing."""
    return job.status.plan is not None and job.status.plan.observed_generation == job.metadata.generation


def is_newer(pod: PodView, job: TrainingJob) -> bool:
    """Whether the pod was created from a later plan than the one that was read with the job.

    Only another operator process can have done that; its pods are then judged when the later plan has been read.
    """
    plan = job.status.plan
    return plan is not None and pod.plan > (plan.term, plan.revision)
