"""State of the parameter server: parameters, applied batches and fence, saved together."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from numpy_ps.aggregation import Rule
from numpy_ps.models import Array
from tranche_worker import Fence, checkpoints


@dataclass(frozen=True, slots=True)
class Push:
    """Gradient of consecutive mini-batches of one chunk."""

    chunk: int
    batch: int
    """Number of the first one."""
    gradient: Array
    attempt: int = 0
    count: int = 1
    """Number of mini-batches, of whose gradients this is the mean."""


@dataclass(slots=True)
class State:
    """The content of a checkpoint."""

    parameters: Array
    batches: dict[int, int] = field(default_factory=dict)
    """Number of applied mini-batches by chunk."""
    fence: Fence = field(default_factory=Fence)

    @property
    def total(self) -> int:
        """Total number of applied mini-batches."""
        return sum(self.batches.values())

    def apply_round(self, pushes: Sequence[Push], rule: Rule, rate: float) -> list[Push]:
        """Take one step along the aggregate of these pushes; return those that are in it.

        A push counts if it has the chunk's next mini-batch, so that one that is sent again counts once. Of two pushes
        for one chunk, the later one counts: its worker has taken over the chunk.
        """
        latest = {push.chunk: push for push in pushes}.values()
        applied = [push for push in latest if push.batch == self.batches.get(push.chunk, 0)]
        if applied:
            weights = np.array([push.count for push in applied], np.float64)
            self.parameters -= rate * rule(np.stack([push.gradient for push in applied]), weights / weights.sum())
            self.batches.update({push.chunk: push.batch + push.count for push in applied})
        return applied

    def save(self, directory: Path, attempt: int) -> None:
        """Replace this server's checkpoint."""
        head = json.dumps({"batches": self.batches, "fence": self.fence.dump()})
        checkpoints.save(
            directory, attempt, lambda file: np.savez(file, parameters=self.parameters, head=np.array(head))
        )


def load(directory: Path, environment: Mapping[str, str] = os.environ) -> State | None:
    """Load the newest checkpoint; None if there is none.

    The fence of another job's checkpoint (checkpoint.resumeFrom) is left out: its attempts are not those of this job.
    """
    path = checkpoints.newest(directory, environment)
    if path is None:
        return None
    with np.load(path) as file:
        head = json.loads(str(file["head"]))
        parameters = file["parameters"]
    batches = {int(chunk): int(count) for chunk, count in head["batches"].items()}
    fence = Fence() if checkpoints.is_inherited(path, directory) else Fence.load(head["fence"])
    return State(parameters, batches, fence)
