"""State of the parameter server: parameters, applied batches and fence, saved together."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from numpy_ps.models import Array
from tranche_worker import Fence, checkpoints


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

    def apply(self, chunk: int, batch: int, gradient: Array, rate: float) -> bool:
        """Take one step if this mini-batch is the chunk's next one, so that one that is sent again counts once."""
        if batch != self.batches.get(chunk, 0):
            return False
        self.parameters -= rate * gradient
        self.batches[chunk] = batch + 1
        return True

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
    with np.load(path) as held:
        head = json.loads(str(held["head"]))
        parameters = held["parameters"]
    batches = {int(chunk): int(count) for chunk, count in head["batches"].items()}
    fence = Fence() if checkpoints.is_inherited(path, directory) else Fence.load(head["fence"])
    return State(parameters, batches, fence)
