"""A member of the gang: ``torchrun -m torch_gang.train DATA``, with the environment variables that tranche sets."""

import argparse
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from numpy_ps import chunks
from torch_gang import robust
from torch_gang.states import State, load
from tranche_worker import Assignment, Session, assignment, checkpoints

PATIENCE = timedelta(minutes=10)
"""Timeout for members that do not respond: longer than their starts differ, shorter than torch's 30 minutes."""


def train(session: Session, mine: Assignment, state: State, options: argparse.Namespace) -> None:
    """Train the remaining batches until the gang stops, and save the state at the end."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x, y = (torch.from_numpy(array) for array in chunks.load(options.data, 0))
    rule = mine.communication.aggregation
    network = DistributedDataParallel(state.network) if rule == "mean" else state.network
    saved = state.batches
    while state.batches < options.batches and not _one_is_stopping(session):
        rows = chunks.rows_of_batch(len(y), 0, state.batches, options.batches_per_epoch)[rank::size]
        state.optimizer.zero_grad()
        cross_entropy(network(x[rows]), y[rows]).backward()
        if rule != "mean":
            robust.aggregate(state.network.parameters(), len(rows), rule)
        state.optimizer.step()
        state.count()
        session.advanced(state.batches / options.batches)
        if state.batches - saved >= options.checkpoint_batches:
            _save(session, mine, state)
            saved = state.batches
    _save(session, mine, state)


def _one_is_stopping(session: Session) -> bool:
    """Return whether any member must stop; called before every batch, so that all stop before the same one."""
    stopping = torch.tensor([session.stopping], dtype=torch.int32)
    distributed.all_reduce(stopping, distributed.ReduceOp.MAX)
    return bool(stopping.item())


def _save(session: Session, mine: Assignment, state: State) -> None:
    """Save the common state from rank 0; all members wait until it is durable."""
    if distributed.get_rank() == 0:
        checkpoints.save(mine.checkpoint_directory, mine.attempt, state.write)
    distributed.barrier()
    session.saved()


def main() -> None:
    """Train with the other members, and exit with the exit code of the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the digits, staged as one chunk")
    parser.add_argument("--batches", type=int, default=6000, help="total number of mini-batches of the gang")
    parser.add_argument("--batches-per-epoch", type=int, default=6)
    parser.add_argument("--checkpoint-batches", type=int, default=200, help="batches between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial parameters")
    options = parser.parse_args()
    mine = assignment()
    # Until all members have joined, SIGTERM ends a process that is not the first of its container.
    distributed.init_process_group("gloo", timeout=PATIENCE)
    state = load(mine.checkpoint_directory, options.batches, options.seed)
    session = Session(mine, gang=True)
    session.advanced(state.batches / options.batches)
    session.saved()
    with session:
        train(session, mine, state, options)
        if state.batches < options.batches and not session.stopping:
            session.wait(mine.grace_seconds)  # another member got SIGTERM first: wait for this one's
    distributed.destroy_process_group()
    sys.exit(session.exit_code)


if __name__ == "__main__":
    main()
