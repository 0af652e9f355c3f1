"""Training job as the user specified it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from tranche.model.cluster import Resources
from tranche.model.node_constraints import Constraints
from tranche.model.utility import Utility

UNKNOWN_DURATION_SECONDS = 3600.0
"""Duration to assume for a job whose user declares none, when its maximum number of workers trains."""

LONGEST_RESTART_SECONDS = 315_360_000.0
"""Longest cost of a restart that the API accepts, 87,600 h."""

OUTSIDE = "outside"
"""Value of `Job.data_site` for data that are at no site of the cluster: they must be copied to every site."""


class Preemption(StrEnum):
    """Conditions under which a running worker may be stopped for another job."""

    IMMEDIATE = "Immediate"
    AT_CHUNK_END = "AtChunkEnd"
    NEVER = "Never"


class Admission(StrEnum):
    """Result of a dry run of the job's pods."""

    PASSED = "Passed"
    """The API server admits them, and the planner plans with all of their constraints."""
    UNPROVEN = "Unproven"
    """They have constraints that kube-scheduler alone checks, or a webhook does not support a dry run."""
    UNCHECKED = "Unchecked"
    """There is no result for this generation yet."""
    REFUSED = "Refused"
    """The API server refuses them for now; the dry run is repeated."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """Requirements of one pod of a role on its node."""

    requests: Resources
    constraints: Constraints = field(default_factory=Constraints)
    has_deadline: bool = False
    """Whether the pod template sets ``activeDeadlineSeconds``, by which scopes of a ResourceQuota select."""
    overhead: Resources = field(default_factory=Resources)
    """Part of `requests` that the RuntimeClass of the pod adds; it makes no pod other than BestEffort."""

    def is_best_effort(self, requests: Resources) -> bool:
        """Return whether the containers of a pod with these requests and this overhead ask neither CPU nor memory."""
        return requests.cpu <= self.overhead.cpu and requests.memory <= self.overhead.memory


@dataclass(frozen=True, slots=True)
class Job:
    """A training job: `chunks` equal parts of data, each trained `epochs` times in `batches_per_chunk` mini-batches.

    A job without a data section is a gang: its chunks stand for its members, which run together or not at all.
    """

    key: str
    """``namespace/name``."""
    uid: str
    submitted: float
    """Arrival r_j, in seconds of the planner's clock."""
    worker: PodShape
    chunks: int = 1
    """Number of chunks, D_j."""
    epochs: int = 1
    """Number of epochs, E_j."""
    batches_per_chunk: int = 1
    """Mini-batches per chunk and epoch, B_j."""
    step_seconds: float = 1.0
    """Time of one mini-batch on one worker without communication, m_j + G_j."""
    step_seconds_by_kind: Mapping[str, float] = field(default_factory=dict, hash=False)
    """`step_seconds` on GPU kinds for which the job declares them, in seconds. Must not be changed."""
    gradient_bits: float = 0.0
    """Size of the gradients of one mini-batch in bits, q_j."""
    bits_per_second: float = inf
    """Maximum bandwidth b_j between a worker and its parameter server in bit/s, if it is below that of the link."""
    chunk_bytes: float = 0.0
    data_site: str | None = None
    """Location of the data at arrival: a site, or `OUTSIDE`; None: at every site (Δ = 0)."""
    upload_seconds: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Δ_js: time to copy one chunk to each site that is not `data_site`, in seconds; uploads do not delay each other.
    A site that is missing here is reached by its links. Must not be changed."""
    staged: bool = False
    """Whether pods of the job copy its data to other sites; otherwise the data count as present after Δ."""
    max_workers: int = 1
    is_gang: bool = False
    """Whether all workers start together and depend on each other; otherwise workers train chunks independently."""
    required_level: str = ""
    """Topology level, by its label key, that all members of a gang must share; empty: none."""
    preferred_level: str = ""
    """Topology level that the members of a gang should share; empty: none. A gang that names one starts at the
    narrowest level that has room for it, whichever it names."""
    server: PodShape | None = None
    servers: int = 0
    chief: PodShape | None = None
    """Coordinator of a gang; the job ends when this pod ends."""
    generation: int = 1
    weight: float = 1.0
    utility: Utility | None = None
    """Utility of completing the job, for policies and metrics of utility; None: not declared."""
    priority: int = -9
    """Value of the priority class, which is the strict tier."""
    preemption: Preemption = Preemption.IMMEDIATE
    durable: bool | None = None
    """Whether a later pod finds what an earlier one saved, wherever it runs; None: not declared."""
    restart_seconds: float = 0.0
    """Time lost at every pod start, ρ_j."""
    restart_declared: bool = True
    """Whether the specification declares `restart_seconds`; otherwise the cost of a preemption is learned."""
    restart_limit_seconds: float = LONGEST_RESTART_SECONDS
    """Largest cost of a preemption that its namespace lets it have, whether declared or learned."""
    suspended: bool = False
    backoff_limit: int = 6
    gpu_problem: tuple[str, str] | None = None
    """Why its GPUs cannot be planned in this installation, as a CamelCase reason and a sentence; None if they can."""
    limited: str = ""
    """Sentence about the claims (weight, utility, tier, preemption, restarts) that its namespace limits; else empty."""
    order: int = 0
    """Rank among jobs submitted at the same time: the smaller comes first, then the smaller key."""
    owner: str = ""
    """Tenant that the job counts for in a fair share; empty: its namespace."""

    size_declared: bool = True
    """Whether `step_seconds` was declared or measured; otherwise it is an assumption."""
    template: str = ""
    """Name that jobs with the same training code share; empty: no other job is similar."""
    template_requests: Resources | None = None
    """Requests of the worker template; None: those of `worker`, to which admission has added nothing."""

    admission: Admission = Admission.PASSED
    refusal: str = ""
    """Message of the API server, if it refuses the job's pods."""
    namespace: str = field(init=False, repr=False, compare=False)
    """Namespace of the job's pods."""
    gpus: int = field(init=False, repr=False, compare=False)
    """GPUs of one worker."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespace", self.key.partition("/")[0])
        object.__setattr__(self, "gpus", self.worker.requests.gpus)

    @property
    def declared_requests(self) -> Resources:
        """Requests of a worker as the specification declares them, without those that admission adds."""
        return self.worker.requests if self.template_requests is None else self.template_requests

    @property
    def tenant(self) -> str:
        """Tenant that the job counts for in a fair share."""
        return self.owner or self.namespace

    @property
    def home(self) -> str | None:
        """Site of the cluster where the data are at arrival; None if there is none."""
        return None if self.data_site == OUTSIDE and self.upload_seconds else self.data_site

    @property
    def is_indivisible(self) -> bool:
        """Whether no part of the job completes before the whole job: it is a gang, or it has one chunk."""
        return self.is_gang or self.chunks == 1

    @property
    def min_available(self) -> int:
        """Number of workers that must start together (minAvailable): all members of a gang, one of a chunked job."""
        return self.chunks if self.is_gang else 1

    @property
    def helper_count(self) -> int:
        """Number of pods that are placed separately from the workers: parameter servers and chief."""
        return self.servers + (self.chief is not None)

    @property
    def width(self) -> int:
        """Number of workers that train at the same time when capacity allows it."""
        return max(1, min(self.max_workers, self.chunks))

    @property
    def batches_per_chunk_total(self) -> int:
        """Number of mini-batches that complete one chunk, E_j·B_j."""
        return self.epochs * self.batches_per_chunk

    def speed_on(self, kind: str, speed: float) -> float:
        """Return the speed of a GPU kind for this job: its declared one, unless the job has its own time there."""
        seconds = self.step_seconds_by_kind.get(kind) if self.step_seconds_by_kind else None
        return speed if seconds is None else self.step_seconds / seconds

    @property
    def gpu_resource(self) -> str:
        """Name of the resource of these GPUs, if the installation has several; otherwise empty."""
        return self.worker.requests.gpu_resource
