"""Messages of a running job to the report API, and the answer to a request for chunks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tranche.model.job import Job


@dataclass(frozen=True, slots=True)
class Timings:
    """Training speed of a job, measured by its own clock; None: not reported."""

    batch_seconds: float | None = None
    """Time from one mini-batch of a worker to its next."""
    fetch_seconds: float | None = None
    """Part of `batch_seconds` spent waiting for parameters and data."""
    compute_seconds: float | None = None
    """Part of `batch_seconds` spent computing."""


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of one job: always the whole vector, so that lost, repeated or extra reports are harmless."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Attempt of the pod that reports: a parameter server reports all chunks, a worker those of its window."""
    applied: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mini-batches by chunk that the model has applied; only in an attempt's first report, a missing chunk has 0."""
    durable: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Part of `applied` that a checkpoint holds."""
    timings: Timings = Timings()
    job_uid: str = ""
    """UID of the job; empty if it is unknown."""

    def is_of(self, job: Job) -> bool:
        """Return whether the report is of this job, and not of a deleted one of the same name."""
        return self.job_uid in ("", job.uid)


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Request for more chunks by a worker that has trained the chunks of its window."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Attempt of the worker's pod."""
    fence: int
    """`Window.fence` of the chunks that the worker has trained: a repeated request gets the same answer."""
    durable: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mini-batches of these chunks, by chunk, that are kept if the worker ends."""
    job_uid: str = ""
    """UID of the job; empty if it is unknown."""

    def is_of(self, job: Job) -> bool:
        """Return whether the request is of this job, and not of a deleted one of the same name."""
        return self.job_uid in ("", job.uid)


@dataclass(frozen=True, slots=True)
class ChunkGrant:
    """Chunks that a worker trains next: the answer to a `ChunkRequest`."""

    chunks: tuple[int, ...] = ()
    """Chunks in the order of training; empty: the worker has to exit."""
    fence: int = 0
    """`Window.fence` of these chunks."""
    resume: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Number of mini-batches of each chunk that are durable already, by chunk."""
