"""What the planner is told; plain facts, from the API server or from the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tranche.model import ChunkRequest, Job, JobPlan, JobProgress, Node, Quota, Report, Site

Outcome = Literal["Succeeded", "Preempted", "Failed", "Lost"]


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job is there; with plan and ledger if an earlier planner left them."""

    job: Job
    plan: JobPlan | None = None
    progress: JobProgress | None = None
    outdated: frozenset[int] = frozenset()
    """Attempts whose pods ask for something else than the specification does, which was changed since that plan."""


@dataclass(frozen=True, slots=True)
class JobChanged:
    """The job's specification changed."""

    job: Job


@dataclass(frozen=True, slots=True)
class JobRemoved:
    """The job was deleted, or it ended for a reason of the operator's (deadline)."""

    job: str


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node is new, or its capacity, labels, taints, readiness or foreign pods changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node is gone."""

    node: str


@dataclass(frozen=True, slots=True)
class SiteChanged:
    """A site is new or its links, tier or limits changed."""

    site: Site


@dataclass(frozen=True, slots=True)
class SiteRemoved:
    """A site is gone; its nodes are reported with their new site."""

    site: str


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """A quota is new, or its limits, scopes or what others use of it changed."""

    quota: Quota


@dataclass(frozen=True, slots=True)
class QuotaRemoved:
    """A quota is gone."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class WorkerBound:
    """kube-scheduler bound the window's pod, to the planned node or to another."""

    job: str
    attempt: int
    node: str


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The window's worker trains since `at`."""

    job: str
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """A running job says how far it is; one of an attempt that is over says nothing any more."""

    report: Report
    at: float
    """When it arrived."""


@dataclass(frozen=True, slots=True)
class ChunksRequested:
    """A worker has trained its chunks and would go on; one of an attempt that is over asks in vain."""

    request: ChunkRequest
    at: float
    """When it arrived."""


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """The window's pod is over."""

    job: str
    attempt: int
    outcome: Outcome
    at: float
    progress: Mapping[int, float] | None = None
    """Batches applied by chunk, durably, as the worker itself said; None if it said nothing."""
    exit_code: int | None = None
    preempted_by: str = ""
    """Foreign pod for which kube-scheduler evicted it, ``pod/namespace/name``; empty if it did not."""


@dataclass(frozen=True, slots=True)
class WorkerUnschedulable:
    """The pod of a window, parameter server or chief found no node for too long."""

    job: str
    attempt: int
    message: str


@dataclass(frozen=True, slots=True)
class WorkerRejected:
    """The API server refused the job's pods (quota, webhook, invalid template)."""

    job: str
    reason: str
    message: str
    permanent: bool = False
    """Nothing but a change of the specification helps."""


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A disruption budget does not let these pods of closing windows be stopped; they go on."""

    job: str
    attempts: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class ParameterServerLost:
    """A parameter server's pod is over while the job goes on, of itself or because it was to stop."""

    job: str
    index: int
    attempt: int
    outcome: Outcome = "Lost"
    exit_code: int | None = None
    preempted_by: str = ""
    """As of `WorkerEnded`."""


@dataclass(frozen=True, slots=True)
class ChiefEnded:
    """The pod of a gang's chief is over; if it succeeded, the job is done."""

    job: str
    attempt: int
    outcome: Outcome = "Lost"
    exit_code: int | None = None
    preempted_by: str = ""
    """As of `WorkerEnded`."""


@dataclass(frozen=True, slots=True)
class ChunkStaged:
    """The data of a chunk have come to a site."""

    job: str
    chunk: int
    site: str
    seconds: float
    """That it took once it had begun."""


@dataclass(frozen=True, slots=True)
class StagingEnded:
    """A pod that brings data to a site is over."""

    job: str
    attempt: int
    outcome: Outcome
    seconds: float = 0.0
    """That it ran; 0 if that is not known."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    JobSubmitted
    | JobChanged
    | JobRemoved
    | NodeChanged
    | NodeRemoved
    | SiteChanged
    | SiteRemoved
    | QuotaChanged
    | QuotaRemoved
    | WorkerBound
    | WorkerStarted
    | ProgressReported
    | ChunksRequested
    | WorkerEnded
    | WorkerUnschedulable
    | WorkerRejected
    | EvictionRefused
    | ParameterServerLost
    | ChiefEnded
    | ChunkStaged
    | StagingEnded
    | Tick
)
