"""The digits as chunks: one file per chunk, as staged at a site.

``python -m numpy_ps.chunks DIRECTORY CHUNKS`` writes them; only this module needs scikit-learn.
"""

import sys
from pathlib import Path

import numpy as np

from numpy_ps.models import Array, Labels


def stage(directory: Path, chunks: int, seed: int = 0) -> None:
    """Write the 1,797 digits, shuffled, as ``chunk-<number>.npz`` of almost equal sizes."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(classes))
    directory.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(order, chunks)):
        np.savez(_file(directory, number), x=pixels[rows] / 16.0, y=classes[rows].astype(np.int64))


def load(directory: Path, chunk: int) -> tuple[Array, Labels]:
    """Return pixels (n × 64, from 0 to 1) and classes (n) of a chunk.

    Raises:
        FileNotFoundError: if the chunk is not staged here.
    """
    with np.load(_file(directory, chunk)) as file:
        return file["x"], file["y"]


def rows_of_batch(size: int, chunk: int, batch: int, batches_per_epoch: int) -> Labels:
    """Return the row numbers of a mini-batch in a chunk of `size` rows; each epoch has its own order."""
    epoch, place = divmod(batch, batches_per_epoch)
    order = np.random.default_rng((chunk, epoch)).permutation(size)
    return np.array_split(order, batches_per_epoch)[place]


def _file(directory: Path, chunk: int) -> Path:
    return directory / f"chunk-{chunk}.npz"


if __name__ == "__main__":
    stage(Path(sys.argv[1]), int(sys.argv[2]))
