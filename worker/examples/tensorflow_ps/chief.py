"""The chief: ``python -m tensorflow_ps.chief DATA``, with the environment variables that tranche sets."""

import argparse
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from numpy_ps import chunks
from tensorflow_ps.states import State, data, initial
from tranche_worker import Assignment, Session, assignment

RATE = 0.5


def train(session: Session, mine: Assignment, state: State, coordinator: Any, options: argparse.Namespace) -> None:
    """Train in rounds until all batches are applied or the chief stops; between rounds, no batch is in progress."""
    x, y = data(options.data)
    step = tf.function(state.apply, reduce_retracing=True)
    done = saved = state.batches
    while done < options.batches and not session.stopping:
        last = min(done + options.round_batches, options.batches)
        for batch in range(done, last):
            rows = chunks.rows_of_batch(len(y), 0, batch, options.batches_per_epoch)
            rate = RATE * 0.5 ** (6 * batch / options.batches)
            coordinator.schedule(step, args=(tf.constant(batch), x[rows], y[rows], tf.constant(rate)))
        coordinator.join()
        done = last
        session.advanced(done / options.batches)
        if done - saved >= options.checkpoint_batches:
            _save(session, mine, state)
            saved = done
    _save(session, mine, state)


def _save(session: Session, mine: Assignment, state: State) -> None:
    state.save(mine.checkpoint_directory, mine.attempt)
    session.saved()


def main() -> None:
    """Train with workers and parameter servers, and exit with the exit code of the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the digits, staged as one chunk")
    parser.add_argument("--batches", type=int, default=2340, help="total number of batches")
    parser.add_argument("--batches-per-epoch", type=int, default=78)
    parser.add_argument("--round-batches", type=int, default=26, help="batches per round")
    parser.add_argument("--checkpoint-batches", type=int, default=200, help="batches between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial parameters")
    options = parser.parse_args()
    mine = assignment()
    # Until all servers have joined, SIGTERM ends a process that is not the first of its container.
    strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        state = initial(options.batches, options.seed)
    state.restore(mine.checkpoint_directory)
    session = Session(mine, gang=True)
    session.advanced(state.batches / options.batches)
    session.saved()
    with session:
        train(session, mine, state, coordinator, options)
    os._exit(session.exit_code)  # without waiting for servers, which wait for this process to end


if __name__ == "__main__":
    main()
