"""Events: the input of the planner, from the API server or from the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tranche.model import ChunkRequest, Job, JobPlan, JobProgress, Node, PodOutcome, Quota, Report, Resources, Site
from tranche.model.tenancy import Tenancy

Outcome = PodOutcome


class JobSubmitted(NamedTuple):
    """A job exists, with the plan and ledger that an earlier planner wrote, if any."""

    job: Job
    plan: JobPlan | None = None
    progress: JobProgress | None = None
    outdated: frozenset[int] = frozenset()
    """Attempts whose pods have other requests than the specification, because it was changed since that plan."""
    revised: frozenset[int] = frozenset()
    """Attempts of all roles whose pods have not started and are from an earlier template."""
    former_attempts: int = 0
    """Highest attempt of the pods that still stop of a deleted job of the same name; 0 if there are none."""
    returns: bool = False
    """Whether the planner had this job until now (`JobRemoved.stays`), so that its use is in the totals."""


class JobChanged(NamedTuple):
    """The job's specification changed."""

    job: Job
    revised: frozenset[str] = frozenset()
    """Roles whose pod template changed."""
    unstarted: frozenset[int] = frozenset()
    """Attempts of parameter servers and chief whose containers have not started."""


class JobFailed(NamedTuple):
    """The operator ended the job, such as after its deadline, while pods of it run."""

    job: str
    message: str
    keeps_pods: bool = False
    """Whether the operator lets these pods run on."""


class JobUnreadable(NamedTuple):
    """The specification of a job has changed and cannot be read, so that nothing of the job may run."""

    job: str
    reason: str
    message: str


class JobRemoved(NamedTuple):
    """The job was deleted, or has ended and has no pods, or another plan replaces that of this planner."""

    job: str
    stays: bool = False
    """Whether the job is submitted again at once, with the other plan: its pods continue."""


class NodeChanged(NamedTuple):
    """A node is new, or its capacity, labels, taints, readiness or foreign pods changed."""

    node: Node


class NodeRemoved(NamedTuple):
    """A node was removed."""

    node: str


class NodeJoined(NamedTuple):
    """A node has joined an unlimited site. The planner does not plan with it."""

    node: str
    site: str


class SiteChanged(NamedTuple):
    """A site is new or its links, tier or limits changed."""

    site: Site


class SiteRemoved(NamedTuple):
    """A site was removed; its nodes are reported with their new site."""

    site: str


class QuotaChanged(NamedTuple):
    """A quota is new, or its limits, its scopes or the usage by foreign pods changed."""

    quota: Quota


class QuotaRemoved(NamedTuple):
    """A quota was removed."""

    namespace: str
    name: str


class KubeSchedulerChanged(NamedTuple):
    """kube-scheduler has stopped or begun to respond: to bind pods, or to say why it cannot."""

    responds: bool


class WorkerBound(NamedTuple):
    """kube-scheduler bound the pod of a window, parameter server or chief, to the planned node or to another one."""

    job: str
    attempt: int
    node: str


class WorkerStarted(NamedTuple):
    """The window's worker has been training, or the parameter server or chief has run, since `at`."""

    job: str
    attempt: int
    at: float


class ProgressReported(NamedTuple):
    """A running job reported its progress; reports of ended attempts are ignored."""

    report: Report
    at: float
    """Time of arrival, in seconds."""


class ChunksRequested(NamedTuple):
    """A worker has trained its chunks and requests more; requests of ended attempts are ignored."""

    request: ChunkRequest
    at: float
    """Time of arrival, in seconds."""


class WorkerEnded(NamedTuple):
    """The window's pod has ended."""

    job: str
    attempt: int
    outcome: Outcome
    at: float
    """When its end was seen, in seconds."""
    progress: Mapping[int, float] | None = None
    """Durably applied batches by chunk, as the worker reported at its end; None if it did not."""
    exit_code: int | None = None
    preempted_by: str = ""
    """Foreign pod for which kube-scheduler evicted it, ``pod/namespace/name``; empty if it did not."""
    reason: str = ""
    """Why it ended, in the words of the kubelet; empty if it states nothing."""
    stopped_by: str = ""
    """Why others than tranche stopped it, such as "node n1 is drained"; empty if they did not, or if it is unknown."""
    log: str = ""
    """Last lines of its log, if it failed and its termination message has them."""
    ran: float | None = None
    """Run time of its training container in whole seconds, by the clock of its node; None if that is unknown."""
    finished: float | None = None
    """When its container ended by the clock of its node, which may be long before `at`; None if that is unknown."""


class PodStartFailed(NamedTuple):
    """The containers of a window's, parameter server's or chief's pod have not started on its node for too long."""

    job: str
    attempt: int
    reason: str
    """Reason of the kubelet, in CamelCase."""
    message: str = ""
    kind: str = "Creation"
    """Kind of reason: Configuration, ImagePull or Creation."""


class PodAdmitted(NamedTuple):
    """The API server admitted a pod of a window, parameter server or chief with larger requests than planned."""

    job: str
    attempt: int
    requests: Resources


class PodOverdue(NamedTuple):
    """A pod that is being deleted has not stopped within its grace period, and holds its resources."""

    job: str
    attempt: int


class WorkerUnschedulable(NamedTuple):
    """The pod of a window, parameter server or chief has been unschedulable for too long."""

    job: str
    attempt: int
    message: str


class WorkerRejected(NamedTuple):
    """The API server rejected the job's pods (quota, webhook, invalid template)."""

    job: str
    reason: str
    message: str
    permanent: bool = False
    """Whether the pods will be rejected until `JobChanged`: their template is not valid, at least not as admitted."""


class PlanRejected(NamedTuple):
    """The API server rejected the job's status (webhook, policy, size); the plan in it was not written."""

    job: str
    message: str


class EvictionRefused(NamedTuple):
    """A disruption budget blocked the eviction of these pods of closing windows; they continue."""

    job: str
    attempts: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class ParameterServerEnded:
    """A parameter server's pod has ended while the job continues, by itself or because it was closing."""

    job: str
    index: int
    attempt: int
    outcome: Outcome = "Lost"
    exit_code: int | None = None
    preempted_by: str = ""
    """As in `WorkerEnded`."""
    reason: str = ""
    """As in `WorkerEnded`."""
    stopped_by: str = ""
    """As in `WorkerEnded`."""
    log: str = ""
    """As in `WorkerEnded`."""
    started: float | None = None
    """Start of its container, in seconds; None if it did not start, or if that is unknown."""


@dataclass(frozen=True, slots=True)
class ChiefEnded:
    """The pod of a gang's chief has ended; if it succeeded, the job is done."""

    job: str
    attempt: int
    outcome: Outcome = "Lost"
    exit_code: int | None = None
    preempted_by: str = ""
    """As in `WorkerEnded`."""
    reason: str = ""
    """As in `WorkerEnded`."""
    stopped_by: str = ""
    """As in `WorkerEnded`."""
    log: str = ""
    """As in `WorkerEnded`."""
    started: float | None = None
    """Start of its container, in seconds; None if it did not start, or if that is unknown."""


class ChunkStaged(NamedTuple):
    """The data of a chunk have arrived at a site."""

    job: str
    chunk: int
    site: str
    seconds: float
    """Duration of the copy once it had begun."""


class StagingEnded(NamedTuple):
    """A pod that copies data to a site has ended."""

    job: str
    attempt: int
    outcome: Outcome
    seconds: float = 0.0
    """Run time of the pod; 0 if that is unknown."""
    node: str = ""
    """Node that refused the pod or did not start its containers; empty for other ends."""
    reason: str = ""
    """Why it did not succeed, in the words of the kubelet or kube-scheduler; empty if they state nothing."""


class TenancyChanged(NamedTuple):
    """The limits of namespaces have changed; a `JobChanged` of each job follows, with the claims as declared."""

    tenancy: Tenancy


class Tick(NamedTuple):
    """Time has passed."""


Event = (
    JobSubmitted
    | JobChanged
    | JobFailed
    | JobUnreadable
    | JobRemoved
    | NodeChanged
    | NodeRemoved
    | NodeJoined
    | SiteChanged
    | SiteRemoved
    | QuotaChanged
    | QuotaRemoved
    | KubeSchedulerChanged
    | WorkerBound
    | WorkerStarted
    | ProgressReported
    | ChunksRequested
    | WorkerEnded
    | PodAdmitted
    | PodOverdue
    | PodStartFailed
    | WorkerUnschedulable
    | WorkerRejected
    | PlanRejected
    | EvictionRefused
    | ParameterServerEnded
    | ChiefEnded
    | ChunkStaged
    | StagingEnded
    | TenancyChanged
    | Tick
)
