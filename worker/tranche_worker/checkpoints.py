"""Checkpoint files that are written atomically and that a superseded attempt cannot overwrite."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def newest(directory: Path) -> Path | None:
    """Return the checkpoint of the highest attempt; None if there is none."""
    saved = _saved(directory)
    return saved[max(saved)] if saved else None


def save(directory: Path, attempt: int, write: Callable[[BinaryIO], None]) -> None:
    """Replace this attempt's checkpoint atomically: a crash leaves either the old one or the new one.

    Every attempt has its own file, and the highest attempt is read. So an attempt that continues on an unreachable node
    cannot overwrite the checkpoint of its successor.

    Args:
        directory: Checkpoint directory of the job.
        attempt: Attempt number of this pod.
        write: Writes the checkpoint into an open binary file.
    """
    path = directory / f"checkpoint-{attempt}"
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    for number, older in _saved(directory).items():
        if number < attempt:
            older.unlink(missing_ok=True)


def _saved(directory: Path) -> dict[int, Path]:
    """Return checkpoints by attempt."""
    found = (path for path in directory.glob("checkpoint-*") if not path.suffix)
    return {int(path.name.rpartition("-")[2]): path for path in found}
