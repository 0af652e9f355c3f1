import errno
import os
import resource
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from tranche_worker import checkpoints


def save(directory: Path, attempt: int, text: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(text)

    checkpoints.save(directory, attempt, write)


def newest(directory: Path, environment: Mapping[str, str] = os.environ) -> bytes | None:
    path = checkpoints.newest(directory, environment)
    return None if path is None else path.read_bytes()


def test_without_any_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) is None


def test_missing_directory_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    message = r"none does not exist: declare spec\.checkpoint\.volume in the TrainingJob"
    with pytest.raises(FileNotFoundError, match=message):
        checkpoints.newest(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=message):
        save(tmp_path / "none", 1, b"")


def test_directory_that_cannot_be_listed_is_not_empty() -> None:
    """A worker that starts at zero would report that, and its first save would delete the checkpoint."""
    with tempfile.TemporaryDirectory() as parent:  # of pytest's directories, only their owner may enter
        os.chmod(parent, 0o711)
        directory = Path(parent) / "job"
        directory.mkdir()
        save(directory, 3, b"whole")
        directory.chmod(0o333)
        own = os.geteuid()
        if own == 0:
            os.seteuid(65534)  # root may list any directory
        try:
            with pytest.raises(PermissionError):
                checkpoints.newest(directory)
            with pytest.raises(PermissionError):
                save(directory, 4, b"from the beginning")
        finally:
            os.seteuid(own)
            directory.chmod(0o755)
        assert newest(directory) == b"whole"


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


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Refuse writes beyond this number of bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_checkpoint_that_cannot_be_written_takes_no_room(tmp_path: Path) -> None:
    save(tmp_path, 3, b"whole")
    with largest_file(1 << 20), pytest.raises(OSError, match="File too large"):
        save(tmp_path, 4, bytes(2 << 20))
    assert newest(tmp_path) == b"whole"
    assert len(list(tmp_path.iterdir())) == 1


def test_part_of_an_attempt_that_was_killed_is_deleted(tmp_path: Path) -> None:
    for attempt in (3, 5):
        (tmp_path / f"checkpoint-{attempt}.new").write_bytes(b"part")
    (tmp_path / "checkpoint-0a-1-3.new").write_bytes(b"part of another job")
    save(tmp_path, 4, b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-4", "checkpoint-5.new", "checkpoint-0a-1-3.new"}


def save_as(directory: Path, uid: str, attempt: int, text: bytes) -> None:
    environment = {"TRANCHE_JOB_UID": uid} if uid else {}

    def write(file: BinaryIO) -> None:
        file.write(text)

    checkpoints.save(directory, attempt, write, environment)


def is_inherited(directory: Path, environment: Mapping[str, str]) -> bool:
    path = checkpoints.newest(directory, environment)
    assert path is not None
    return checkpoints.is_inherited(path, directory)


def test_checkpoint_of_another_job_is_ignored(tmp_path: Path) -> None:
    save_as(tmp_path, "0a-1", 12, b"old job")
    assert checkpoints.newest(tmp_path, {"TRANCHE_JOB_UID": "0b-2"}) is None
    save_as(tmp_path, "0b-2", 1, b"new job")
    save_as(tmp_path, "0b-2", 2, b"new job, second attempt")
    assert newest(tmp_path, {"TRANCHE_JOB_UID": "0b-2"}) == b"new job, second attempt"
    assert newest(tmp_path, {"TRANCHE_JOB_UID": "0a-1"}) == b"old job"


def test_file_without_uid_counts_until_the_first_save(tmp_path: Path) -> None:
    save_as(tmp_path, "", 12, b"before the upgrade")
    environment = {"TRANCHE_JOB_UID": "0b-2"}
    assert newest(tmp_path, environment) == b"before the upgrade"
    save_as(tmp_path, "0b-2", 13, b"after it")
    assert newest(tmp_path, environment) == b"after it"


def test_resume_directory_counts_until_the_first_save(tmp_path: Path) -> None:
    earlier, own = tmp_path / "earlier", tmp_path / "own"
    earlier.mkdir()
    own.mkdir()
    save_as(earlier, "0a-1", 12, b"old job")
    environment = {"TRANCHE_JOB_UID": "0b-2", "TRANCHE_RESUME_DIR": str(earlier)}
    assert newest(own, environment) == b"old job"
    assert is_inherited(own, environment)
    save_as(own, "0b-2", 1, b"new job")
    assert newest(own, environment) == b"new job"
    assert not is_inherited(own, environment)


def save_part(directory: Path, part: str, attempt: int, text: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(text)

    checkpoints.save(directory, attempt, write, {"TRANCHE_JOB_UID": "0a-1"}, part=part)


def newest_part(directory: Path, part: str, environment: Mapping[str, str] | None = None) -> bytes | None:
    path = checkpoints.newest(directory, environment or {"TRANCHE_JOB_UID": "0a-1"}, part=part)
    return None if path is None else path.read_bytes()


def test_parts_of_two_servers_are_kept_and_read_apart(tmp_path: Path) -> None:
    save_part(tmp_path, "ps-0", 1, b"server 0")
    save_part(tmp_path, "ps-1", 2, b"server 1")
    save_part(tmp_path, "ps-1", 4, b"server 1, second attempt")
    (tmp_path / "checkpoint-0a-1-3+ps-1.new").write_bytes(b"unfinished")
    save_part(tmp_path, "ps-0", 5, b"server 0, second attempt")
    save_part(tmp_path, "ps-1", 6, b"server 1, third attempt")
    assert newest_part(tmp_path, "ps-0") == b"server 0, second attempt"
    assert newest_part(tmp_path, "ps-1") == b"server 1, third attempt"
    assert newest_part(tmp_path, "ps-2") is None
    assert newest_part(tmp_path, "") is None
    assert len(list(tmp_path.iterdir())) == 2


def test_resume_directory_has_the_same_part_or_is_an_error(tmp_path: Path) -> None:
    earlier, own = tmp_path / "earlier", tmp_path / "own"
    earlier.mkdir()
    own.mkdir()
    save_part(earlier, "ps-0", 7, b"server 0")
    save_part(earlier, "ps-1", 8, b"server 1")
    environment = {"TRANCHE_JOB_UID": "0b-2", "TRANCHE_RESUME_DIR": str(earlier)}
    assert newest_part(own, "ps-0", environment) == b"server 0"
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of the part ps-2 in"):
        newest_part(own, "ps-2", environment)


@pytest.mark.parametrize("part", ["a+b", "../a", "a.new", " "])
def test_part_that_cannot_be_in_a_file_name_is_an_error(tmp_path: Path, part: str) -> None:
    with pytest.raises(ValueError, match="part"):
        save_part(tmp_path, part, 1, b"")
    with pytest.raises(ValueError, match="part"):
        newest_part(tmp_path, part)


@pytest.mark.parametrize("source", ["", "none"])
def test_resume_directory_without_checkpoint_is_an_error(tmp_path: Path, source: str) -> None:
    with pytest.raises(FileNotFoundError, match="resumeFrom"):
        checkpoints.newest(tmp_path, {"TRANCHE_RESUME_DIR": str(tmp_path / source)})


def test_checkpoint_is_durable_before_the_earlier_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that loses power may lose a name that was not synced, and keep the deletion of the earlier file."""
    save(tmp_path, 3, b"earlier")
    synced: list[set[str]] = []
    sync = os.fsync

    def fsync(file: int) -> None:
        sync(file)
        if stat.S_ISDIR(os.fstat(file).st_mode):
            synced.append({path.name for path in tmp_path.iterdir()})

    monkeypatch.setattr(os, "fsync", fsync)
    save(tmp_path, 4, b"later")
    assert synced == [{"checkpoint-3", "checkpoint-4"}]


def test_directory_that_cannot_be_synced_keeps_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems refuse to sync directories."""
    sync = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    save(tmp_path, 3, b"whole")
    assert newest(tmp_path) == b"whole"


def test_empty_checkpoint_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    """A program may write to a path of its own, and not into the file that it receives."""
    save(tmp_path, 3, b"whole")
    with pytest.raises(ValueError, match="is empty: write into the file that `write` receives"):
        save(tmp_path, 4, b"")
    assert newest(tmp_path) == b"whole"
    assert len(list(tmp_path.iterdir())) == 1


def test_late_save_of_a_lost_attempt_is_not_resumed_from(tmp_path: Path) -> None:
    own, earlier = tmp_path / "own", tmp_path / "earlier"
    own.mkdir()
    earlier.mkdir()
    save_as(earlier, "0a-1", 12, b"successor")
    save_as(earlier, "0a-1", 4, b"lost")
    os.utime(earlier / "checkpoint-0a-1-12", (1000, 1000))
    assert newest(own, {"TRANCHE_JOB_UID": "0b-2", "TRANCHE_RESUME_DIR": str(earlier)}) == b"successor"
