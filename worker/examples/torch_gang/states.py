"""State of a gang: network, optimizer, and the number of times each batch was trained, saved together.

``python -m torch_gang.states DATA BATCHES`` prints a summary of the newest checkpoint as JSON.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.nn.functional import cross_entropy

from numpy_ps import chunks
from tranche_worker import checkpoints


@dataclass(slots=True)
class State:
    """The content of a checkpoint."""

    network: Any
    optimizer: Any
    counts: Any
    """Number of times each batch was trained: 1 for each if none was lost or repeated."""
    batches: int = 0
    """Number of trained batches."""

    def count(self) -> None:
        """Record that the next batch is trained."""
        self.counts[self.batches] += 1
        self.batches += 1

    def write(self, file: BinaryIO) -> None:
        """Write a checkpoint."""
        weights = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**weights, "counts": self.counts, "batches": self.batches}, file)


def load(directory: Path, batches: int, seed: int) -> State:
    """Load the newest checkpoint of a training with this number of batches, or the initial state."""
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))
    network = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    state = State(network, optimizer, torch.zeros(batches, dtype=torch.int64))
    path = checkpoints.newest(directory)
    if path is not None:
        saved = torch.load(path)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        state.counts, state.batches = saved["counts"], saved["batches"]
    return state


def main() -> None:
    """Print the loss on all data, and the counts."""
    state = load(Path(os.environ["TRANCHE_CHECKPOINT_DIR"]), int(sys.argv[2]), 0)
    x, y = (torch.from_numpy(array) for array in chunks.load(Path(sys.argv[1]), 0))
    with torch.no_grad():
        loss = float(cross_entropy(state.network(x), y))
    print(json.dumps({"loss": loss, "counts": state.counts.tolist()}))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
