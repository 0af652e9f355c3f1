"""What reconcile wants done: values, executed by `applies` in the order in which reconcile lists them."""

from dataclasses import dataclass
from typing import Any, Literal

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Remove our finalizer: the pod's end is in the ledger, or there is no ledger any more."""

    name: str
    uid: str
    finalizers: tuple[str, ...]
    """As observed; if they are others meanwhile, nothing is changed."""


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Stop a pod within its grace period, as far as disruption budgets allow."""

    name: str
    uid: str
    grace_seconds: int
    why: str
    preempted_by: str = ""
    """Job for which the pod makes way, ``namespace/name``; empty if it stops for another reason."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove a pod that is over, or that belongs to a job that is."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless Service of the job."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a planned pod."""

    manifest: Manifest
    reason: str
    """Of the event that tells of it, in CamelCase."""
    what: str
    """For people: which window, where, with which chunks."""
    is_staging: bool = False
    """It brings data; the job's other pods do not depend on it."""


@dataclass(frozen=True, slots=True)
class UngatePod:
    """Let a gang's pod be scheduled: all members exist."""

    name: str
    uid: str
    gate: int
    """Position of our gate among the pod's."""


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell the job's users what happened; equal reason and subject count as the same event again."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class CheckTemplate:
    """Ask the API server by a dry run whether it would accept the job's pods."""

    generation: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Apply the operator's part of the status."""

    resource_version: str
    """Of the job as it was read: a status must not reach a later job of the same name, and the API server does not look
    at the UID when the status subresource is applied."""
    status: dict[str, Any]
    news: tuple[EmitEvent, ...] = ()
    """What there is to tell when it is written."""
    in_time: bool = False
    """It may change again soon, and need not be written before it has been so for a moment."""


@dataclass(frozen=True, slots=True)
class EmitPendingEvent:
    """Tell the job's users what it waits for, when it is this job's turn."""

    sentence: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the finished job, as runPolicy.ttlSecondsAfterFinished asks."""

    uid: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look again after so many seconds, whatever happens until then."""

    seconds: float


Action = (
    ReleasePod
    | EvictPod
    | DeletePod
    | CreateService
    | CreatePod
    | UngatePod
    | CheckTemplate
    | WriteStatus
    | EmitEvent
    | EmitPendingEvent
    | DeleteJob
    | RequeueAfter
)
ORDER: tuple[type[Action], ...] = (
    EvictPod,
    DeletePod,
    CreatePod,
    UngatePod,
    CreateService,
    CheckTemplate,
    WriteStatus,
    ReleasePod,
    EmitEvent,
    EmitPendingEvent,
    DeleteJob,
    RequeueAfter,
)
"""What makes room comes first, then what uses it; what nobody waits for comes last.

A pod's name is looked up when its containers run, so the Service has the time that they take to start.
"""


def in_order(actions: list[Action]) -> list[Action]:
    """Sorted by kind as in `ORDER`, otherwise as given."""
    ranks = {kind: rank for rank, kind in enumerate(ORDER)}
    return sorted(actions, key=lambda action: ranks[type(action)])
