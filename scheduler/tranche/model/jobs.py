"""What a user asks for: one training job."""

from dataclasses import dataclass, field
from enum import StrEnum

from tranche.model.clusters import Resources
from tranche.model.constraints import Constraints


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

    A job without a data section is *rigid* (a gang): its chunks stand for its members, which run together or not at
    all.
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
    chunk_bytes: float = 0.0
    data_site: str | None = None
    """Where the data are at arrival; None: at every site (Δ = 0)."""
    max_workers: int = 1
    min_workers: int = 1
    rigid: bool = False
    server: PodShape | None = None
    servers: int = 0
    generation: int = 1
    weight: float = 1.0
    priority: int = -9
    """Value of the priority class: the strict tier."""
    preemption: Preemption = Preemption.IMMEDIATE
    restart_seconds: float = 0.0
    """ρ_j: lost at every pod start."""
    suspended: bool = False
    backoff_limit: int = 6
    order: int = 0
    """Among jobs submitted at the same time the smaller comes first; then the smaller key."""
    owner: str = ""
    """Who it counts for in a fair share; empty: its namespace."""

    @property
    def tenant(self) -> str:
        """Who the job counts for in a fair share."""
        return self.owner or self.key.partition("/")[0]

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
