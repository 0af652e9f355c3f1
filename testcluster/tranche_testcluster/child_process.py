"""Processes that never outlive the process that started them, even if that process is killed with SIGKILL."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_WATCHDOG = Path(__file__).with_name("parent_watchdog.py")


def tethered(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return a command line that runs ``command`` and kills it when this process ends, however it ends.

    The process that is started *is* the command (pid, signals, exit code). It must be started by this process
    itself, from any thread and by any means (``subprocess``, ``asyncio``); started by another one it refuses to run.
    """
    return [sys.executable, "-I", "-S", str(_WATCHDOG), str(os.getpid()), *(os.fspath(part) for part in command)]


def spawn(
    command: Sequence[str | os.PathLike[str]],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a tethered command in the background, with its output appended to the file ``log``.

    It gets a session of its own, so that Ctrl-C reaches only this process, which then stops things in order.
    """
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603
            tethered(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )


def stop(processes: Iterable[subprocess.Popen[bytes]], seconds: float) -> None:
    """Terminate processes, all at once, and kill those that have not ended after this many seconds."""
    stopping = list(processes)
    for process in stopping:
        process.terminate()
    for process in stopping:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
