"""Checkpoint files that are written atomically and that neither a superseded attempt nor another job can overwrite.

A checkpoint is named ``checkpoint-<job UID>-<attempt>``. Attempts start at 1 with every TrainingJob, and a volume may
outlive its jobs, so the attempt alone does not identify the newest checkpoint of a job. The UID is in TRANCHE_JOB_UID.

One pod of a job at a time may save. If several do, such as two parameter servers, or workers that save their own
chunks, each names the part of the state that it saves, as in ``checkpoint-<job UID>-<attempt>+ps-1``. Otherwise it
would delete and read the checkpoints of the others, because each pod of a job has another attempt number.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

_UNFINISHED = ".new"
"""Suffix of a checkpoint that is being written."""
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS})
"""Errors of file systems that cannot sync a directory, such as some network file systems."""
_NAME = re.compile(r"checkpoint-(?:(?P<uid>[^+]+)-)?(?P<attempt>[0-9]+)(?:\+(?P<part>.+))?")
_PART_NAME = re.compile(r"[A-Za-z0-9_-]*")


def newest(directory: Path, environment: Mapping[str, str] = os.environ, *, part: str = "") -> Path | None:
    """Return the checkpoint to resume from; None if there is none.

    It is the checkpoint of the job's highest attempt. A file without a UID, of an earlier release of this library, is
    used only as long as there is none with the job's UID. Files of other jobs are ignored. If the job has no checkpoint
    of its own, it is that in TRANCHE_RESUME_DIR, the directory of the job that checkpoint.resumeFrom names: of each UID
    the highest attempt, and of these files the newest one.

    Args:
        directory: Checkpoint directory of the job.
        environment: Environment variables.
        part: Part of the state, as in `save`.

    Raises:
        FileNotFoundError: the directory does not exist, so that nothing could be saved; or the job names a directory to
            resume from, and there is no checkpoint of this part in it.
        OSError: the directory cannot be listed, so that it is unknown whether there is a checkpoint.
        ValueError: the part cannot be in a file name.
    """
    _require(directory)
    saved, job = _saved(directory, part), environment.get("TRANCHE_JOB_UID", "")
    for uid in (job, ""):
        if own := saved.get(uid):
            return own[max(own)]
    if not (source := environment.get("TRANCHE_RESUME_DIR")):
        return None
    inherited = _saved(Path(source), part) if os.path.lexists(source) else {}
    earlier = [attempts[max(attempts)] for attempts in inherited.values()]
    if not earlier:
        of_part = f" of the part {part}" if part else ""
        raise FileNotFoundError(f"checkpoint.resumeFrom: there is no checkpoint{of_part} in {source}")
    return max(earlier, key=lambda path: (path.stat().st_mtime_ns, path.name))


def is_inherited(path: Path, directory: Path) -> bool:
    """Return whether a checkpoint is of the job that checkpoint.resumeFrom names.

    Its attempts are not those of this job, so a fence in it must not be used.
    """
    return path.parent != directory


def save(
    directory: Path,
    attempt: int,
    write: Callable[[BinaryIO], None],
    environment: Mapping[str, str] = os.environ,
    *,
    part: str = "",
) -> None:
    """Replace this attempt's checkpoint atomically: a crash leaves either the old one or the new one.

    When it returns, the checkpoint outlasts a power failure of the node, as far as the volume keeps what is synced.

    Every attempt has its own file, and the highest attempt is read. So an attempt that continues on an unreachable node
    cannot overwrite the checkpoint of its successor. Earlier attempts' checkpoints of the same part are deleted, and so
    are unfinished ones, of attempts that ended while they saved or whose volume was full: they take no room.

    Args:
        directory: Checkpoint directory of the job.
        attempt: Attempt number of this pod. For a part that belongs to one chunk, it is the fencing token of the chunk
            (`Assignment.fence`), because the chunk may come back to a pod with a smaller attempt number.
        write: Writes the checkpoint into an open binary file.
        environment: Environment variables.
        part: Part of the state that this pod saves, if several pods of the job save: letters, digits, "-" and "_", such
            as ``ps-1`` or ``chunk-7``. The pod that continues this part has to name it again.

    Raises:
        ValueError: the part cannot be in a file name, or nothing was written.
        OSError: the volume is full or read-only, or the directory does not exist, because the job declares no volume.
            The checkpoint that was saved before is still there.
    """
    _require(directory)
    uid = environment.get("TRANCHE_JOB_UID", "")
    _delete_earlier(directory, uid, attempt, part, _UNFINISHED)
    name = f"checkpoint-{uid}-{attempt}" if uid else f"checkpoint-{attempt}"
    path = directory / (f"{name}+{part}" if part else name)
    unfinished = path.with_suffix(_UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if not os.fstat(file.fileno()).st_size:
                raise ValueError(f"the checkpoint {path} is empty: write into the file that `write` receives")
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(path)
    _sync(directory)  # the name of this checkpoint must be durable before those of earlier ones are deleted
    _delete_earlier(directory, uid, attempt, part)


def _sync(directory: Path) -> None:
    """Make the names in a directory durable, if the file system can."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(opened)


def _require(directory: Path) -> None:
    """Raise FileNotFoundError if the directory does not exist, because the job declares no volume for checkpoints."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} does not exist: declare spec.checkpoint.volume in the TrainingJob")


def _delete_earlier(directory: Path, uid: str, attempt: int, part: str, suffix: str = "") -> None:
    for number, older in _saved(directory, part, suffix).get(uid, {}).items():
        if number < attempt:
            older.unlink(missing_ok=True)


def _saved(directory: Path, part: str, suffix: str = "") -> dict[str, dict[int, Path]]:
    """Return checkpoints of a part, or unfinished ones, by job UID, or "" for none, and attempt."""
    if not _PART_NAME.fullmatch(part):
        raise ValueError(f"part {part!r} of a checkpoint: only letters, digits, - and _ may be in it")
    by_uid: dict[str, dict[int, Path]] = {}
    for file in os.listdir(directory):  # Path.glob hides errors, so that the directory would seem to be empty
        name = _NAME.fullmatch(file.removesuffix(suffix)) if file.endswith(suffix) else None
        if name and (name["part"] or "") == part:
            by_uid.setdefault(name["uid"] or "", {})[int(name["attempt"])] = directory / file
    return by_uid
