"""Checkpoint files that a crash leaves whole, and that an attempt given up for lost cannot overwrite."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def newest(directory: Path) -> Path | None:
    """What the highest attempt has saved last; None if nothing was saved."""
    saved = _saved(directory)
    return saved[max(saved)] if saved else None


def save(directory: Path, attempt: int, write: Callable[[BinaryIO], None]) -> None:
    """Replace this attempt's checkpoint as a whole: a crash at any moment leaves the old one or the new one.

    Every attempt has a file of its own, and the highest counts: one that was given up for lost and goes on somewhere
    cannot overwrite what its successor has saved.

    Args:
        directory: Of the job.
        attempt: Of this pod.
        write: Writes the checkpoint into a file that is open for it.
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
    """Checkpoints by the attempt that wrote them."""
    found = (path for path in directory.glob("checkpoint-*") if not path.suffix)
    return {int(path.name.rpartition("-")[2]): path for path in found}
