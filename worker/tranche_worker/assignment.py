"""What this pod is to train, as the operator wrote it into the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tranche_worker.termination_message import TERMINATION_LOG

GRACE_SECONDS = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The chunks of this worker's window; of a parameter server, those of nobody."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Of this pod; it is also the fencing token of the chunks that it begins with."""
    chunks: tuple[int, ...]
    """To be trained in this order."""
    chunk_count: int
    """Chunks of the whole job."""
    epochs: int
    batches_per_chunk: int
    resume: Mapping[int, int]
    """Batches that are durable already, by chunk; of a gang's member, which may be told a fraction of its one, none."""
    checkpoint_directory: Path
    index: int = 0
    """Slot of the worker within its job: two attempts of one slot never run together by plan."""
    grace_seconds: float = GRACE_SECONDS
    """From SIGTERM to SIGKILL."""
    api: str = ""
    """Where to report; empty: this pod does not report for its job."""
    token: Path | None = None
    """File with the token for that; it is renewed now and then."""
    termination_log: Path = TERMINATION_LOG
    next_api: str = ""
    """Where to ask for the next chunks; empty: nowhere."""
    renewed: int = 0
    """Of chunks that this pod was given when it asked: their fencing token."""

    @property
    def fence(self) -> int:
        """Fencing token of the chunks: a parameter server refuses updates of whoever comes with a smaller one."""
        return self.renewed or self.attempt

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
    token = environment.get("TRANCHE_TOKEN")
    return Assignment(
        job=environment["TRANCHE_JOB"],
        attempt=int(environment["TRANCHE_ATTEMPT"]),
        chunks=tuple(int(chunk) for chunk in environment.get("TRANCHE_CHUNKS", "").split(",") if chunk),
        chunk_count=int(environment["TRANCHE_CHUNK_COUNT"]),
        epochs=int(environment["TRANCHE_EPOCHS"]),
        batches_per_chunk=int(environment["TRANCHE_BATCHES"]),
        resume={int(chunk): int(float(batches)) for chunk, batches in pairs},
        checkpoint_directory=Path(environment["TRANCHE_CHECKPOINT_DIR"]),
        index=int(environment.get("TRANCHE_INDEX", "0")),
        grace_seconds=float(environment.get("TRANCHE_GRACE_SECONDS", GRACE_SECONDS)),
        api=environment.get("TRANCHE_API", "").rstrip("/"),
        token=Path(token) if token else None,
        termination_log=Path(environment.get("TRANCHE_TERMINATION_LOG", TERMINATION_LOG)),
        next_api=environment.get("TRANCHE_NEXT", "").rstrip("/"),
    )
