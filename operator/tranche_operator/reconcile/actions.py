"""Actions: the values that `reconcile` returns and `ActionExecutor` executes in the given order."""

from dataclasses import dataclass
from typing import Any, Literal

from tranche.kube.api.names import LABEL_ATTEMPT, LABEL_ROLE
from tranche_operator.reconcile.status import NO_TIMES, PodTimes

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Remove the ledger finalizer: the pod's end is in the ledger, or the job no longer exists."""

    name: str
    uid: str
    finalizers: tuple[str, ...]
    """Finalizers as observed; if they have changed since, the request fails without effect."""


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Stop a pod within its grace period, if disruption budgets allow it."""

    name: str
    uid: str
    grace_seconds: int
    why: str
    """Why it stops: a relative clause about the preemptor, or empty, if there is one."""
    preempted_by: str = ""
    """Job for which the pod makes way, ``namespace/name``; empty if it stops for another reason."""
    site: str = ""
    """Site of the pod; empty if the plan has no entry for it."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod that has ended or whose job has ended, or shorten the grace period of an earlier deletion."""

    name: str
    uid: str
    grace_seconds: int
    version: int = 0
    """resourceVersion as observed, if the pod must not have changed since; 0: any."""


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the job's headless Service."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class UpdateService:
    """Let the Service of a job from an earlier release select no superseded pods."""

    former: dict[str, str]
    """Selector as observed; if it has changed since, the request fails without effect."""
    selector: dict[str, str]


@dataclass(frozen=True, slots=True)
class WithdrawPod:
    """Remove the label by which the Service selects a pod, because another one has its host name now."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a planned pod."""

    manifest: Manifest
    what: str
    """Description for users: role, attempt, place and chunks."""
    site: str
    """Site where the pod starts."""
    is_staging: bool = False
    """Whether it is a staging pod, which no other pod of the job depends on."""

    @property
    def role(self) -> str:
        """Role of the pod in its job."""
        return str(self.manifest["metadata"]["labels"][LABEL_ROLE])

    @property
    def named(self) -> tuple[str, int]:
        """Host name and attempt of the pod, which is not a staging pod."""
        return str(self.manifest["spec"]["hostname"]), int(self.manifest["metadata"]["labels"][LABEL_ATTEMPT])


@dataclass(frozen=True, slots=True)
class UngatePod:
    """Remove the scheduling gate of a gang's pod, because all members exist."""

    name: str
    uid: str
    gate: int
    """Index of our gate in the pod's scheduling gates."""


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Write a Kubernetes event. Those of one job with equal type and reason form one series, or one for each pod."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    subject: str = ""
    starts: tuple[tuple[str, int], ...] = ()
    """Number of pods that start, by site, if the event is about created pods."""
    parts: tuple[str, ...] = ()
    """Messages of the merged events, if there are several."""
    ended: tuple[str, ...] = ()
    """UIDs of the pods whose end the event reports, which no later event reports again."""


@dataclass(frozen=True, slots=True)
class CheckTemplate:
    """Check by a dry run whether the API server accepts the job's pods."""

    generation: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class CheckByCreation:
    """Take the created pods as the result of the dry run, if the API server has admitted one of each role."""

    generation: int
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Apply the operator's part of the job's status."""

    resource_version: str
    """resourceVersion of the job as read. It keeps the status from a later job of the same name: the API server ignores
    the UID when the status subresource is applied."""
    status: dict[str, Any]
    news: tuple[EmitEvent, ...] = ()
    """Events to emit once the status is written."""
    may_wait: bool = False
    """Whether the status only reports, so that pods of other jobs go first."""
    times: PodTimes = NO_TIMES
    """Times in the status, to keep if it waits."""


@dataclass(frozen=True, slots=True)
class EmitPendingEvent:
    """Emit an event that says what the job waits for, in the job's event slot."""

    sentence: str
    unplannable: str = ""
    """Reason of condition Planned=False, which makes it a warning; empty if the job can be planned."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the finished job after runPolicy.ttlSecondsAfterFinished."""

    uid: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Reconcile the job again after a delay, also without an event."""

    seconds: float


Action = (
    ReleasePod
    | EvictPod
    | DeletePod
    | CreateService
    | UpdateService
    | WithdrawPod
    | CreatePod
    | UngatePod
    | CheckTemplate
    | CheckByCreation
    | WriteStatus
    | EmitEvent
    | EmitPendingEvent
    | DeleteJob
    | RequeueAfter
)
ORDER: tuple[type[Action], ...] = (
    EvictPod,
    DeletePod,
    UpdateService,
    WithdrawPod,
    CreatePod,
    UngatePod,
    CreateService,
    CheckTemplate,
    CheckByCreation,
    WriteStatus,
    ReleasePod,
    EmitEvent,
    EmitPendingEvent,
    DeleteJob,
    RequeueAfter,
)
"""Order of execution: actions that free capacity, then those that use it, then those that nothing depends on.

The Service is created after the pods, since DNS names are first looked up when containers run. A superseded pod is
withdrawn from it before the pod with the same host name is created, so that none finds the old address.
"""


CREATIONS = (CreatePod, CreateService, CheckByCreation)
"""Actions that create the first pods of a job."""
SAFE_WITH_CACHED_JOB = (CheckTemplate, WriteStatus, EmitEvent, EmitPendingEvent, RequeueAfter)
"""Actions that an old version of the job cannot turn against its pods: a status is written only over the version that
was read, and the others change no object that the plan is about."""


def in_order(actions: list[Action]) -> list[Action]:
    """Sort actions by kind as in `ORDER`; the sort is stable."""
    ranks = {kind: rank for rank, kind in enumerate(ORDER)}
    return sorted(actions, key=lambda action: ranks[type(action)])
