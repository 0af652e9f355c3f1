"""What this worker is to train, as the operator wrote it into the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assignment:
    """The chunks of this worker's window."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Fencing token: a parameter server refuses updates of an older one."""
    chunks: tuple[int, ...]
    """To be trained in this order."""
    chunk_count: int
    """Chunks of the whole job."""
    epochs: int
    batches_per_chunk: int
    resume: Mapping[int, int]
    """Batches that are durable already, by chunk."""
    checkpoint_directory: Path

    @property
    def batches(self) -> int:
        """Batches that finish one chunk."""
        return self.epochs * self.batches_per_chunk

    def remaining(self, chunk: int) -> range:
        """Numbers of the batches of the chunk that are still to be trained."""
        return range(self.resume.get(chunk, 0), self.batches)


def assignment(environment: Mapping[str, str] = os.environ) -> Assignment:
    """Read the assignment.

    Raises:
        KeyError: naming the variable that is missing: this process was not started by tranche.
    """
    pairs = (part.split(":") for part in environment.get("TRANCHE_RESUME", "").split(",") if part)
    return Assignment(
        job=environment["TRANCHE_JOB"],
        attempt=int(environment["TRANCHE_ATTEMPT"]),
        chunks=tuple(int(chunk) for chunk in environment["TRANCHE_CHUNKS"].split(",") if chunk),
        chunk_count=int(environment["TRANCHE_CHUNK_COUNT"]),
        epochs=int(environment["TRANCHE_EPOCHS"]),
        batches_per_chunk=int(environment["TRANCHE_BATCHES"]),
        resume={int(chunk): int(batches) for chunk, batches in pairs},
        checkpoint_directory=Path(environment["TRANCHE_CHECKPOINT_DIR"]),
    )
