"""Barriers with a straggler in virtual time: the k-of-n barrier, bounded staleness and partial work.

``python benchmarks/worker_rounds.py`` trains the digits with six workers, of which one is five times slower. It prints
the mini-batches in the model and the loss after equal time, and the largest lag in rounds or batches.
"""

import argparse
import heapq
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "worker" / "examples")]

from numpy_ps.aggregation import mean  # noqa: E402 - the examples are no package of the environment
from numpy_ps.models import Array, Labels, Network  # noqa: E402
from numpy_ps.states import Push, State  # noqa: E402
from tranche_worker import Barrier, StalenessBound  # noqa: E402

BATCH_SECONDS = (0.05, 0.05, 0.05, 0.05, 0.05, 0.25)
SAMPLES, PARTS, RATE = 16, 4, 0.5
"""Samples of a mini-batch; mini-batches of a gradient; step size of a round; n times that of one push under ASP."""


@dataclass(slots=True)
class Worker:
    """Work of one worker on its present gradient."""

    parameters: Array
    round: int = 0
    """Round in which it began."""
    parts: list[Array] = field(default_factory=list)
    """Gradients of the mini-batches so far."""


@dataclass
class Rounds:
    """Rounds in virtual time; late gradients count, are cut to partial work, or are dropped."""

    x: Array
    y: Labels
    barrier: Barrier
    late: str
    seed: int

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        self.network = Network(decay=1e-3)
        self.state = State(self.network.initial(self.seed))
        self.lag = 0
        self.workers = [Worker(self.state.parameters) for _ in BATCH_SECONDS]
        for number in range(len(BATCH_SECONDS)):
            self.barrier.contact(number, 0.0)

    def train(self, seconds: float) -> None:
        """Train for a time."""
        events = [(batch_seconds, number) for number, batch_seconds in enumerate(BATCH_SECONDS)]
        pushes: dict[int, Push] = {}
        while events and events[0][0] <= seconds:
            now, number = heapq.heappop(events)
            worker = self.workers[number]
            rows = self.draw.choice(len(self.y), SAMPLES, replace=False)
            worker.parts.append(self.network.gradient(worker.parameters, self.x[rows], self.y[rows]))
            is_late = self.barrier.round > worker.round
            if len(worker.parts) < PARTS and not (is_late and self.late == "partial"):
                heapq.heappush(events, (now + BATCH_SECONDS[number], number))
                continue
            if is_late and self.late == "dropped":
                self.workers[number] = Worker(self.state.parameters, self.barrier.round)
                heapq.heappush(events, (now + BATCH_SECONDS[number], number))
                continue
            self.lag = max(self.lag, self.barrier.round - worker.round)
            gradient = np.mean(worker.parts, 0)
            pushes[number] = Push(number, self.state.batches.get(number, 0), gradient, count=len(worker.parts))
            self.barrier.push(number, now)
            if self.barrier.may_close(now):
                self.state.apply_round(list(pushes.values()), mean, RATE)
                self.barrier.close()
                for member in pushes:
                    self.workers[member] = Worker(self.state.parameters.copy(), self.barrier.round)
                    heapq.heappush(events, (now + BATCH_SECONDS[member], member))
                pushes.clear()

    def loss(self) -> float:
        """Return the loss on all data."""
        return self.network.loss(self.state.parameters, self.x, self.y)


def train_asynchronous(rounds: Rounds, bound: StalenessBound, seconds: float) -> None:
    """Train for a time without rounds; a worker that is too far ahead waits for the slowest one."""
    events = [(batch_seconds, number) for number, batch_seconds in enumerate(BATCH_SECONDS)]
    waiting: set[int] = set()
    trained = [0] * len(BATCH_SECONDS)
    for number in range(len(BATCH_SECONDS)):
        bound.contact(number, 0.0)
    while events and events[0][0] <= seconds:
        now, number = heapq.heappop(events)
        rows = rounds.draw.choice(len(rounds.y), SAMPLES, replace=False)
        gradient = rounds.network.gradient(rounds.workers[number].parameters, rounds.x[rows], rounds.y[rows])
        push = Push(number, rounds.state.batches.get(number, 0), gradient)
        rounds.state.apply_round([push], mean, RATE / len(BATCH_SECONDS))
        bound.trained(number, now)
        trained[number] += 1
        rounds.lag = max(rounds.lag, max(trained) - min(trained))
        waiting.add(number)
        for member in sorted(waiting):
            if bound.may_start(member, now):
                waiting.remove(member)
                rounds.workers[member] = Worker(rounds.state.parameters.copy())
                heapq.heappush(events, (now + BATCH_SECONDS[member], member))


def compare(seconds: float, seeds: Sequence[int]) -> None:
    """Train with every scheme and print the results."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    x, y = pixels / 16.0, classes.astype(np.int64)
    size = len(BATCH_SECONDS)
    schemes = {
        "BSP": ((size, 0), "counted"),
        "5 of 6, late ones dropped": ((size - 1, inf), "dropped"),
        "5 of 6, late ones count": ((size - 1, inf), "counted"),
        "5 of 6, partial work": ((size - 1, inf), "partial"),
        "5 of 6, staleness 2": ((size - 1, 2), "counted"),
        "ASP": ((1, inf), "asynchronous"),
        "SSP(3)": ((1, 3), "asynchronous"),
    }
    print(f"{seconds:g} virtual s, {size} workers, one 5 times slower, {len(seeds)} seeds")
    print(f"{'scheme':28} {'mini-batches':>12} {'of the slow one':>16} {'largest lag':>12} {'loss':>8}")
    for name, ((enough, staleness), late) in schemes.items():
        figures = []
        for seed in seeds:
            rounds = Rounds(x, y, Barrier(enough, staleness, inf), late, seed)
            if late == "asynchronous":
                train_asynchronous(rounds, StalenessBound(staleness, inf), seconds)
            else:
                rounds.train(seconds)
            slow = rounds.state.batches.get(size - 1, 0)
            figures.append((rounds.state.total, slow, rounds.lag, rounds.loss()))
        total, slow, lag, loss = np.mean(figures, 0)
        print(f"{name:28} {total:12.0f} {slow:16.0f} {lag:12.1f} {loss:8.4f}")


def main() -> None:
    """Compare the schemes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="virtual time of each training")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    compare(options.seconds, options.seeds)


if __name__ == "__main__":
    main()
