"""The chief: ``python -m tensorflow_ps.chief DATA``, in the environment that tranche gives its pod."""

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
    """Rounds of some batches, until all are applied or the chief is to stop: between rounds nothing is under way."""
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
    """Train with workers and parameter servers, and exit as the end demands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the digits, staged as one chunk")
    parser.add_argument("--batches", type=int, default=2340, help="to be applied in all")
    parser.add_argument("--batches-per-epoch", type=int, default=78)
    parser.add_argument("--round-batches", type=int, default=26, help="given to the workers at once")
    parser.add_argument("--checkpoint-batches", type=int, default=200, help="between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters")
    options = parser.parse_args()
    mine = assignment()
    # Until all servers are there SIGTERM ends the process at once, as there is nothing to save.
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
