"""State of a training: parameters, and the number of times each batch was applied, saved together.

``python -m tensorflow_ps.states DATA BATCHES`` prints a summary of the newest checkpoint as JSON.
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from numpy_ps import chunks

DECAY = 1e-2


@dataclass(frozen=True, slots=True)
class State:
    """Variables of the model; a ParameterServerStrategy places them on the parameter servers."""

    weights: list[Any]
    counts: Any
    """Number of times each batch was applied: 1 for each if none was lost or repeated."""
    saver: Any

    def loss(self, x: Any, y: Any) -> Any:
        """Return the mean cross-entropy of rows `x` (n × 64) with classes `y` (n), plus the weight decay."""
        lower, hidden_bias, upper, bias = self.weights
        logits = tf.tanh(x @ lower + hidden_bias) @ upper + bias
        decay = tf.add_n([tf.nn.l2_loss(weight) for weight in self.weights])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)) + DECAY * decay

    def apply(self, batch: Any, x: Any, y: Any, rate: Any) -> None:
        """Take one step of stochastic gradient descent, and count it."""
        with tf.GradientTape() as tape:
            loss = self.loss(x, y)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(rate * gradient)
        self.counts.assign_add(tf.one_hot(batch, self.counts.shape[0], dtype=tf.int32))

    @property
    def batches(self) -> int:
        """Number of applied batches; exact while no batch is in progress."""
        return int(np.count_nonzero(self.counts.numpy()))

    def save(self, directory: Path, attempt: int) -> None:
        """Write a checkpoint into this attempt's directory, then delete those of older attempts."""
        manager = tf.train.CheckpointManager(self.saver, str(directory / str(attempt)), max_to_keep=1)
        manager.save(int(self.counts.numpy().sum()))
        for older in _attempts(directory):
            if int(older.name) < attempt:
                shutil.rmtree(older, ignore_errors=True)

    def restore(self, directory: Path) -> None:
        """Load the newest checkpoint of the highest attempt that has one; without any, change nothing.

        A job without a checkpoint continues that of the job named by checkpoint.resumeFrom.

        Raises:
            FileNotFoundError: the job names such a job, and that one has no checkpoint.
        """
        earlier = os.environ.get("TRANCHE_RESUME_DIR")
        for source in (directory, *([Path(earlier)] if earlier else [])):
            for attempt in sorted(_attempts(source), key=lambda path: -int(path.name)):
                if path := tf.train.latest_checkpoint(str(attempt)):
                    self.saver.restore(path).assert_consumed()
                    return
        if earlier:
            raise FileNotFoundError(f"checkpoint.resumeFrom: there is no checkpoint in {earlier}")


def initial(batches: int, seed: int) -> State:
    """Create small random weights and zero counts."""
    shapes, draw = ((64, 24), (24,), (24, 10), (10,)), np.random.default_rng(seed)
    drawn = [draw.standard_normal(shape) * shape[0] ** -0.5 for shape in shapes]
    weights = [tf.Variable(weight, dtype=tf.float32) for weight in drawn]
    counts = tf.Variable(tf.zeros(batches, tf.int32))
    return State(weights, counts, tf.train.Checkpoint(weights=weights, counts=counts))


def data(directory: Path) -> tuple[Any, Any]:
    """Return pixels (n × 64) and classes (n) of all digits."""
    x, y = chunks.load(directory, 0)
    return x.astype(np.float32), y


def _attempts(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.isdecimal()]


def main() -> None:
    """Print the loss on all data, and the counts."""
    state = initial(int(sys.argv[2]), 0)
    state.restore(Path(os.environ["TRANCHE_CHECKPOINT_DIR"]))
    loss = float(state.loss(*data(Path(sys.argv[1]))))
    print(json.dumps({"loss": loss, "counts": state.counts.numpy().tolist()}))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
