from pathlib import Path
from typing import BinaryIO

import pytest

from tranche_worker import checkpoints


def save(directory: Path, attempt: int, text: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(text)

    checkpoints.save(directory, attempt, write)


def newest(directory: Path) -> bytes | None:
    path = checkpoints.newest(directory)
    return None if path is None else path.read_bytes()


def test_without_any_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) is None


def test_checkpoint_of_highest_attempt_counts_and_others_go(tmp_path: Path) -> None:
    save(tmp_path, 9, b"first")
    save(tmp_path, 10, b"second")
    save(tmp_path, 10, b"third")
    assert newest(tmp_path) == b"third"
    assert len(list(tmp_path.iterdir())) == 1


def test_checkpoint_of_lost_attempt_does_not_replace_successor(tmp_path: Path) -> None:
    save(tmp_path, 12, b"successor")
    save(tmp_path, 4, b"lost")
    assert newest(tmp_path) == b"successor"


def test_a_crash_while_saving_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 3, b"whole")

    def crash(file: BinaryIO) -> None:
        file.write(b"ha")
        raise MemoryError

    with pytest.raises(MemoryError):
        checkpoints.save(tmp_path, 3, crash)
    assert newest(tmp_path) == b"whole"
    save(tmp_path, 5, b"next")
    assert newest(tmp_path) == b"next"
