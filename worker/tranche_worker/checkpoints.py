"""Checkpoint files that are written atomically and that neither a superseded attempt nor another job can overwrite.

A checkpoint is named ``checkpoint-<job UID>-<attempt>``. Attempts start at 1 with every TrainingJob, and a volume may
outlive its jobs, so the attempt alone does not identify the newest checkpoint of a job. The UID is in TRANCHE_JOB_UID.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

_PART = ".new"
"""Suffix of a checkpoint that is being written."""
_NAME = re.compile(r"checkpoint-(?:(?P<uid>.+)-)?(?P<attempt>[0-9]+)")


def newest(directory: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the checkpoint to resume from; None if there is none.

    It is the checkpoint of the job's highest attempt. A file without a UID, of an earlier release of this library, is
    used only as long as there is none with the job's UID. Files of other jobs are ignored. If the job has no checkpoint
    of its own, it is the newest one in TRANCHE_RESUME_DIR, the directory of the job that checkpoint.resumeFrom names.

    Args:
        directory: Checkpoint directory of the job.
        environment: Environment variables.

    Raises:
        FileNotFoundError: the directory does not exist, so that nothing could be saved; or the job names a directory to
            resume from, and there is no checkpoint in it.
    """
    _require(directory)
    saved, job = _saved(directory), environment.get("TRANCHE_JOB_UID", "")
    for uid in (job, ""):
        if own := saved.get(uid):
            return own[max(own)]
    if not (source := environment.get("TRANCHE_RESUME_DIR")):
        return None
    earlier = [path for attempts in _saved(Path(source)).values() for path in attempts.values()]
    if not earlier:
        raise FileNotFoundError(f"checkpoint.resumeFrom: there is no checkpoint in {source}")
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
) -> None:
    """Replace this attempt's checkpoint atomically: a crash leaves either the old one or the new one.

    Every attempt has its own file, and the highest attempt is read. So an attempt that continues on an unreachable node
    cannot overwrite the checkpoint of its successor. Parts of checkpoints, of attempts that ended while they saved or
    whose volume was full, are deleted, so that they take no room of later ones.

    Args:
        directory: Checkpoint directory of the job.
        attempt: Attempt number of this pod.
        write: Writes the checkpoint into an open binary file.
        environment: Environment variables.

    Raises:
        OSError: the volume is full or read-only, or the directory does not exist, because the job declares no volume.
            The checkpoint that was saved before is still there.
    """
    _require(directory)
    uid = environment.get("TRANCHE_JOB_UID", "")
    path = directory / (f"checkpoint-{uid}-{attempt}" if uid else f"checkpoint-{attempt}")
    unfinished = path.with_suffix(_PART)
    _delete_earlier(directory, uid, attempt, _PART)
    try:
        with unfinished.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(path)
    _delete_earlier(directory, uid, attempt)


def _require(directory: Path) -> None:
    """Raise FileNotFoundError if the directory does not exist, because the job declares no volume for checkpoints."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} does not exist: declare spec.checkpoint.volume in the TrainingJob")


def _delete_earlier(directory: Path, uid: str, attempt: int, suffix: str = "") -> None:
    for number, older in _saved(directory, suffix).get(uid, {}).items():
        if number < attempt:
            older.unlink(missing_ok=True)


def _saved(directory: Path, suffix: str = "") -> dict[str, dict[int, Path]]:
    """Return checkpoints, or parts of them, by job UID, or "" for none, and attempt."""
    by_uid: dict[str, dict[int, Path]] = {}
    for path in directory.glob(f"checkpoint-*{suffix}"):
        if name := _NAME.fullmatch(path.name.removesuffix(suffix)):
            by_uid.setdefault(name["uid"] or "", {})[int(name["attempt"])] = path
    return by_uid
