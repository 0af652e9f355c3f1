"""What a running job says of itself, as the report API takes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Timings:
    """How fast a job trains, by its own clock; None: not said."""

    batch_seconds: float | None = None
    """From one mini-batch of a worker to its next."""
    fetch_seconds: float | None = None
    """Of that: waiting for parameters and data."""
    compute_seconds: float | None = None
    """Of that: computing."""


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of one job: the whole vector each time, so that one more, one less or the same one twice is harmless."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Of the pod that reports: a parameter server speaks for all chunks, a worker for those of its window."""
    applied: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mini-batches by chunk that the model has seen; of chunks that are not named, nothing is said."""
    durable: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Those of them that a checkpoint holds."""
    timings: Timings = Timings()


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A worker has trained the chunks of its window and asks for more."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Of the worker's pod."""
    fence: int
    """`Window.fence` of the chunks that it has trained: who asks again gets the same answer again."""
    durable: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mini-batches of them by chunk that outlive the worker."""


@dataclass(frozen=True, slots=True)
class ChunkGrant:
    """Chunks that a worker trains next: the answer to a `ChunkRequest`."""

    chunks: tuple[int, ...] = ()
    """Chunks in the order of training; empty: the worker has to exit."""
    fence: int = 0
    """`Window.fence` of these chunks."""
    resume: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Number of mini-batches of each chunk that are durable already, by chunk."""
