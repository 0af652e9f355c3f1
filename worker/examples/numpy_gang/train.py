"""A member of the gang: ``python -m numpy_gang.train DATA``, with the environment variables that tranche sets."""

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from numpy_ps import chunks, states
from numpy_ps.all_reduce import Collective, connect
from numpy_ps.models import Array, Network
from numpy_ps.states import State
from tranche_worker import Allocation, Session, assignment

BATCH_SIZE = 96
"""Samples of a batch if the job declares none."""


class Member:
    """Training of one member."""

    def __init__(self, session: Session, collective: Collective, state: State, options: argparse.Namespace) -> None:
        self._session, self._collective, self.state = session, collective, state
        self._x, self._y = chunks.load(options.data, 0)
        self._steps, self._every, self._rate = options.batches, options.checkpoint_batches, options.rate
        communication = session.assignment.communication
        self._rule, self._total = communication.aggregation, communication.batch_size or BATCH_SIZE
        self._network = Network()
        self.sizes = [len(part) for part in np.array_split(np.arange(self._total), collective.size)]
        self._iteration = np.zeros(3)
        """Whether the last iteration counts, its samples, and its seconds of computation."""

    @property
    def steps(self) -> int:
        """Number of batches in the model."""
        return self.state.batches.get(0, 0)

    def train(self) -> None:
        """Train the remaining batches until the gang stops, and save the state at the end."""
        while self.steps < self._steps and not self._one_is_stopping():
            self._step()
            self._session.advanced(self.steps / self._steps)
            if self.steps % self._every == 0:
                self._save()
        self._save()

    def _one_is_stopping(self) -> bool:
        """Exchange who stops, the last iterations and the parts of the next batch, before every batch."""
        mine = np.array([self._session.stopping, *self._iteration, *self.sizes], np.float64)
        if self._collective.rank == 0:
            mine[4:] = assigned(self._session.allocations, self.sizes)
        gathered = self._collective.gather(mine)
        if self._collective.rank == 0:
            for rank, (_, counts, samples, seconds, *_) in enumerate(gathered):
                if counts:
                    self._session.iterated(rank, samples, seconds)
        self.sizes = [int(size) for size in gathered[0][4:]]
        return any(row[0] for row in gathered)

    def _step(self) -> None:
        rows = np.random.default_rng(self.steps).choice(len(self._y), self._total, replace=False)
        mine = np.split(rows, np.cumsum(self.sizes)[:-1])[self._collective.rank]
        began = time.perf_counter()
        gradient = self._network.gradient(self.state.parameters, self._x[mine], self._y[mine])
        self._iteration = np.array([1.0, len(mine), time.perf_counter() - began])
        whole: Array = self._collective.reduce(gradient, len(mine) / self._total, self._rule)
        self.state.parameters = self.state.parameters - self._rate * whole
        self.state.batches[0] = self.steps + 1

    def _save(self) -> None:
        """Save the common state from rank 0; all members wait until it is durable."""
        if self._collective.rank == 0:
            self.state.save(self._session.assignment.checkpoint_directory, self._session.assignment.attempt)
        self._collective.gather(np.zeros(1))
        self._session.saved()

    def summary(self) -> str:
        """Return loss, batches and parts as JSON."""
        loss = self._network.loss(self.state.parameters, self._x, self._y)
        return json.dumps({"loss": loss, "batches": self.steps, "sizes": self.sizes})


def assigned(allocations: Mapping[int, Allocation], sizes: list[int]) -> list[int]:
    """Return the parts that the scheduler assigns, or the present ones if it assigns none of this batch."""
    samples = [allocations[rank].samples if rank in allocations else None for rank in range(len(sizes))]
    parts = [part for part in samples if part is not None]
    return parts if len(parts) == len(sizes) and sum(parts) == sum(sizes) and min(parts) > 0 else sizes


def members(environment: Mapping[str, str] = os.environ) -> list[tuple[str, int]]:
    """Return host and port of each member: pods of a gang are named by their rank."""
    leader, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    ranks = range(int(environment["WORLD_SIZE"]))
    return [(leader.replace("-worker-0.", f"-worker-{rank}.", 1), port) for rank in ranks]


def main() -> None:
    """Train with the other members, and exit with the exit code of the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the digits, staged as one chunk")
    parser.add_argument("--batches", type=int, default=2000, help="total number of batches of the gang")
    parser.add_argument("--checkpoint-batches", type=int, default=200, help="batches between two checkpoints")
    parser.add_argument("--rate", type=float, default=0.5, help="step size")
    parser.add_argument("--addresses", help="host:port of each member, with commas; default: the pods of the gang")
    options = parser.parse_args()
    mine, rank = assignment(), int(os.environ["RANK"])
    pairs = [address.rpartition(":") for address in (options.addresses or "").split(",") if address]
    addresses = [(host, int(port)) for host, _, port in pairs] or members()
    # Until all members have joined, SIGTERM ends a process that is not the first of its container.
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", addresses[rank][1]), family=family, dualstack_ipv6=both) as listening:
        collective = connect(rank, addresses, listening)
    state = states.load(mine.checkpoint_directory) or State(Network().initial(0))
    session = Session(mine, gang=True)
    member = Member(session, collective, state, options)
    session.advanced(member.steps / options.batches)
    session.saved()
    with session:
        member.train()
        if member.steps < options.batches and not session.stopping:
            session.wait(mine.grace_seconds)  # another member got SIGTERM first: wait for this one's
    collective.close()
    print(member.summary())  # noqa: T201 - what it has trained
    sys.exit(session.exit_code)


if __name__ == "__main__":
    main()
