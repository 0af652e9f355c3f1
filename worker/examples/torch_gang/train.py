"""A member of the gang: ``torchrun -m torch_gang.train DATA``, in the environment that tranche gives its pod."""

import argparse
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from numpy_ps import chunks
from torch_gang.states import State, load
from tranche_worker import Assignment, Session, assignment, checkpoints

PATIENCE = timedelta(minutes=10)
"""For members that do not answer: longer than they may start apart, shorter than torch's half an hour."""


def train(session: Session, mine: Assignment, state: State, options: argparse.Namespace) -> None:
    """All batches that are left, until the gang is to stop; what is saved at the end is what was trained."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x, y = (torch.from_numpy(held) for held in chunks.load(options.data, 0))
    network = DistributedDataParallel(state.network)
    saved = state.batches
    while state.batches < options.batches and not _one_is_stopping(session):
        rows = chunks.rows_of_batch(len(y), 0, state.batches, options.batches_per_epoch)[rank::size]
        state.optimizer.zero_grad()
        cross_entropy(network(x[rows]), y[rows]).backward()
        state.optimizer.step()
        state.count()
        session.advanced(state.batches / options.batches)
        if state.batches - saved >= options.checkpoint_batches:
            _save(session, mine, state)
            saved = state.batches
    _save(session, mine, state)


def _one_is_stopping(session: Session) -> bool:
    """Whether any member is to stop: asked at every batch, so that all stop before the same one."""
    stopping = torch.tensor([session.stopping], dtype=torch.int32)
    distributed.all_reduce(stopping, distributed.ReduceOp.MAX)
    return bool(stopping.item())


def _save(session: Session, mine: Assignment, state: State) -> None:
    """Write the common state on rank 0; all members wait until it is durable."""
    if distributed.get_rank() == 0:
        checkpoints.save(mine.checkpoint_directory, mine.attempt, state.write)
    distributed.barrier()
    session.saved()


def main() -> None:
    """Train with the others, and exit as the end demands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the digits, staged as one chunk")
    parser.add_argument("--batches", type=int, default=6000, help="mini-batches of the whole gang in all")
    parser.add_argument("--batches-per-epoch", type=int, default=6)
    parser.add_argument("--checkpoint-batches", type=int, default=200, help="between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters")
    options = parser.parse_args()
    mine = assignment()
    # Until all are there SIGTERM ends the process at once, as there is nothing to save.
    distributed.init_process_group("gloo", timeout=PATIENCE)
    state = load(mine.checkpoint_directory, options.batches, options.seed)
    session = Session(mine, gang=True)
    session.advanced(state.batches / options.batches)
    session.saved()
    with session:
        train(session, mine, state, options)
        if state.batches < options.batches and not session.stopping:
            session.wait(mine.grace_seconds)  # another member was told first: this one's SIGTERM is on its way
    distributed.destroy_process_group()
    sys.exit(session.exit_code)


if __name__ == "__main__":
    main()
