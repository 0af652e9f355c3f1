"""Folders and ports of running clusters: each belongs to one cluster, and none is left behind permanently.

Both are held by file locks, which the kernel releases with the process: so the files of a killed process are
recognized and removed when the next cluster starts.
"""

import atexit
import fcntl
import os
import secrets
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from typing import TextIO

from .errors import ClusterError

HOST = "127.0.0.1"
_FIRST_PORT, _PORTS = 20_000, 10_000  # below the ranges that kernels give to outgoing connections
_OWNER = "owner.lock"


class Workspace:
    """Folder and ports that belong to this process until ``close``."""

    def __init__(self, keep: Path | None = None) -> None:
        """Create a temporary folder, or use ``keep``, which is emptied first and kept afterwards.

        Raises:
            ClusterError: ``keep`` contains foreign files, or belongs to a running cluster.
        """
        self._kept = keep is not None
        self._locks: list[TextIO] = []
        base = base_folder()
        with _open_locked(base / "sweep.lock", wait=True):  # so that no process sweeps a folder before it is locked
            _sweep(base / "clusters")
            if keep is None:
                self.path = Path(tempfile.mkdtemp(dir=base / "clusters", prefix=""))
            else:
                self.path = keep.absolute()
                _empty(self.path)
            self._locks.append(_open_locked(self.path / _OWNER))
        self._port_locks = base / "ports"

    def port(self) -> int:
        """Reserve a port that is free on all addresses."""
        port, lock = _reserve_port(self._port_locks)
        self._locks.append(lock)
        return port

    def close(self) -> None:
        """Remove the folder, unless it is to be kept, and release the ports."""
        if not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)
        for lock in self._locks:
            lock.close()
        self._locks.clear()


def free_port() -> int:
    """Reserve a port, free on all addresses, until this process ends.

    Raises:
        ClusterError: all ports of the range are in use.
    """
    port, lock = _reserve_port(base_folder() / "ports")
    atexit.register(lock.close)
    return port


def _reserve_port(folder: Path) -> tuple[int, TextIO]:
    """Return a free port and the lock that holds it: servers may be started long after their ports are chosen."""
    start = secrets.randbelow(_PORTS)
    for step in range(_PORTS):
        port = _FIRST_PORT + (start + step) % _PORTS
        try:
            lock = _open_locked(folder / str(port))
        except BlockingIOError:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                lock.close()
                continue
        return port, lock
    raise ClusterError(f"no free port from {_FIRST_PORT} to {_FIRST_PORT + _PORTS - 1}")


def base_folder() -> Path:
    """Return the folder of this user that contains the files of all test clusters.

    Raises:
        ClusterError: It belongs to another user.
    """
    base = Path(tempfile.gettempdir()) / f"tranche-testcluster-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ClusterError(f"{base} belongs to another user; set TMPDIR to a folder of your own")
    for name in ("clusters", "ports"):
        (base / name).mkdir(exist_ok=True)
    return base


def _open_locked(path: Path, *, wait: bool = False) -> TextIO:
    """Return the opened and locked file; without ``wait``, raise BlockingIOError if another process holds it."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        file.close()
        raise
    return file


def _abandoned(folder: Path) -> bool:
    """Return whether no living process holds the folder (called under the sweep lock)."""
    try:
        _open_locked(folder / _OWNER).close()
    except OSError:  # held, or gone meanwhile
        return False
    return True


def _sweep(folder: Path) -> None:
    for entry in folder.iterdir():
        if _abandoned(entry):
            shutil.rmtree(entry, ignore_errors=True)


def _empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        return
    if not (folder / _OWNER).exists():
        raise ClusterError(f"{folder} is not empty and not from a test cluster; name another folder")
    if not _abandoned(folder):
        raise ClusterError(f"{folder} belongs to a test cluster that runs; name another folder")
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
