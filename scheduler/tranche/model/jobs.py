"""What a user asks for: one training job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from tranche.model.clusters import Resources
from tranche.model.constraints import Constraints

UNKNOWN_DURATION_SECONDS = 3600.0
"""Assumed of a job whose user says nothing of how long it takes, on its most workers."""

OUTSIDE = "outside"
"""`Job.data_site` of data that are at no site of the cluster: every site has to be brought them."""


class Preemption(StrEnum):
    """When a running worker may be stopped for another job."""

    IMMEDIATE = "Immediate"
    AT_CHUNK_END = "AtChunkEnd"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class PodShape:
    """What one pod of a role asks of its node."""

    requests: Resources
    constraints: Constraints = field(default_factory=Constraints)


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
    """D_j."""
    epochs: int = 1
    """E_j."""
    batches_per_chunk: int = 1
    """B_j."""
    step_seconds: float = 1.0
    """m_j + G_j: one mini-batch on one worker without communication."""
    gradient_bits: float = 0.0
    """q_j."""
    bits_per_second: float = inf
    """b_j, if that is less than a link has: what a worker and its parameter server exchange at most, in bit/s."""
    chunk_bytes: float = 0.0
    data_site: str | None = None
    """Where the data are at arrival: a site, or `OUTSIDE`; None: at every site (Δ = 0)."""
    upload_seconds: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Δ_js: time to bring one chunk to each site that is not `data_site`, in seconds; uploads do not delay each other.
    A site that is not named here is reached by its links. Must not be changed."""
    staged: bool = False
    """Pods of the job bring its data to other sites; else they are believed to be there after Δ."""
    max_workers: int = 1
    min_workers: int = 1
    is_gang: bool = False
    """Whether all workers start together and depend on each other; else workers train chunks independently."""
    server: PodShape | None = None
    servers: int = 0
    chief: PodShape | None = None
    """Coordinator of a gang, whose end is the job's end."""
    generation: int = 1
    weight: float = 1.0
    priority: int = -9
    """Value of the priority class: the strict tier."""
    preemption: Preemption = Preemption.IMMEDIATE
    durable: bool | None = None
    """Whether a later pod finds what an earlier one saved, wherever it runs; None: nobody has said."""
    restart_seconds: float = 0.0
    """ρ_j: seconds lost at every pod start."""
    restart_declared: bool = True
    """Whether the specification gives `restart_seconds`; otherwise the cost of a preemption is learnt."""
    suspended: bool = False
    backoff_limit: int = 6
    order: int = 0
    """Among jobs submitted at the same time the smaller comes first; then the smaller key."""
    owner: str = ""
    """Who it counts for in a fair share; empty: its namespace."""

    size_declared: bool = True
    """Whether `step_seconds` was declared or measured; otherwise it is an assumption."""
    template: str = ""
    """Jobs of the same template train the same code; empty: nobody resembles it."""

    @property
    def namespace(self) -> str:
        """Of its pods."""
        return self.key.partition("/")[0]

    @property
    def tenant(self) -> str:
        """Who the job counts for in a fair share."""
        return self.owner or self.namespace

    @property
    def home(self) -> str | None:
        """The site of the cluster where the data are at arrival, if there is one."""
        return None if self.data_site == OUTSIDE and self.upload_seconds else self.data_site

    @property
    def is_indivisible(self) -> bool:
        """Whether no part of the job is finished before all of it is: it is a gang, or it has one chunk."""
        return self.is_gang or self.chunks == 1

    @property
    def min_available(self) -> int:
        """Number of workers that must start together (minAvailable): all members of a gang, one of a chunked job."""
        return self.chunks if self.is_gang else 1

    @property
    def helper_count(self) -> int:
        """Number of pods beside the workers that are placed on their own: parameter servers and chief."""
        return self.servers + (self.chief is not None)

    @property
    def width(self) -> int:
        """Workers that train at the same time when nothing is in the way."""
        return max(1, min(self.max_workers, self.chunks))

    @property
    def batches_per_chunk_total(self) -> int:
        """E_j·B_j: mini-batches that finish one chunk."""
        return self.epochs * self.batches_per_chunk

    @property
    def gpus(self) -> int:
        """GPUs of one worker."""
        return self.worker.requests.gpus
