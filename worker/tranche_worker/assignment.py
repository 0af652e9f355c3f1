"""The assignment of this pod, which the operator passes in environment variables."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tranche_worker.allocation import Communication, read_communication
from tranche_worker.termination_message import TERMINATION_LOG

Read = TypeVar("Read")
REQUIRED = tuple(f"TRANCHE_{name}" for name in ("JOB", "ATTEMPT", "CHUNK_COUNT", "EPOCHS", "BATCHES", "CHECKPOINT_DIR"))
"""Variables that each pod of a job has."""
GRACE_SECONDS = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The chunks of this worker's window, with job, attempt and place to resume; a parameter server has no chunks."""

    job: str
    """``namespace/name``."""
    attempt: int
    """Attempt number of this pod, and fencing token of its first chunks."""
    chunks: tuple[int, ...]
    """Chunks to train, in this order."""
    chunk_count: int
    """Number of chunks of the whole job."""
    epochs: int
    batches_per_chunk: int
    resume: Mapping[int, int]
    """Durable batches by chunk, as integers; 0 for a member of a gang, whose progress is a fraction of one batch."""
    checkpoint_directory: Path
    index: int = 0
    """Worker index within the job; the plan never runs two attempts of one index at the same time."""
    grace_seconds: float = GRACE_SECONDS
    """Seconds between SIGTERM and SIGKILL."""
    api: str = ""
    """Address of the report API; empty if this pod does not report for its job."""
    token: Path | None = None
    """File with the token for the API; the kubelet renews it."""
    termination_log: Path = TERMINATION_LOG
    next_api: str = ""
    """Address for requests for more chunks; empty if this pod makes none."""
    authority: Path | None = None
    """File with the CA certificates of the API; without one, those of the system count."""
    renewed: int = 0
    """Fencing token of chunks that this pod received on request; 0 for its first chunks."""
    communication: Communication = field(default_factory=Communication)
    """Options of the job for barriers, aggregation and overlapping."""

    @property
    def fence(self) -> int:
        """Fencing token of the chunks; a parameter server rejects updates with a smaller one.

        It also takes the place of the attempt when the state of one chunk is saved (`checkpoints.save`).
        """
        return self.renewed or self.attempt

    @property
    def batches(self) -> int:
        """Number of batches that complete one chunk."""
        return self.epochs * self.batches_per_chunk

    def remaining(self, chunk: int) -> range:
        """Return the numbers of the chunk's remaining batches."""
        return range(self.resume.get(chunk, 0), self.batches)


def assignment(environment: Mapping[str, str] = os.environ) -> Assignment:
    """Read the assignment from environment variables.

    Raises:
        KeyError: if a variable is missing, because tranche did not start this process; it names the variable.
        ValueError: if a variable cannot be read; it names the variable.
    """
    missing = [name for name in REQUIRED if name not in environment]
    if missing:
        raise KeyError(f"not set: {', '.join(missing)}; this process does not run in a pod of a TrainingJob")
    token = environment.get("TRANCHE_TOKEN")

    def read(name: str, parse: Callable[[str], Read], default: str = "") -> Read:
        text = environment.get(f"TRANCHE_{name}", default)
        try:
            return parse(text)
        except ValueError as error:
            raise ValueError(f"TRANCHE_{name}={text!r} cannot be read: {error}") from error

    return Assignment(
        job=environment["TRANCHE_JOB"],
        attempt=read("ATTEMPT", int),
        chunks=read("CHUNKS", lambda text: tuple(int(chunk) for chunk in text.split(",") if chunk)),
        chunk_count=read("CHUNK_COUNT", int),
        epochs=read("EPOCHS", int),
        batches_per_chunk=read("BATCHES", int),
        resume=read("RESUME", _read_resume),
        checkpoint_directory=Path(environment["TRANCHE_CHECKPOINT_DIR"]),
        index=read("INDEX", int, "0"),
        grace_seconds=read("GRACE_SECONDS", float, str(GRACE_SECONDS)),
        api=environment.get("TRANCHE_API", "").rstrip("/"),
        token=Path(token) if token else None,
        termination_log=Path(environment.get("TRANCHE_TERMINATION_LOG", TERMINATION_LOG)),
        next_api=environment.get("TRANCHE_NEXT", "").rstrip("/"),
        authority=Path(environment["TRANCHE_CA"]) if environment.get("TRANCHE_CA") else None,
        communication=read("COMMUNICATION", read_communication),
    )


def _read_resume(text: str) -> dict[int, int]:
    """Read TRANCHE_RESUME, such as ``5:1160,7:3``; the fraction of a gang's batch becomes 0."""
    pairs = (part.split(":") for part in text.split(",") if part)
    return {int(chunk): int(float(batches)) for chunk, batches in pairs}
