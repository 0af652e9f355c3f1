"""Stop random processes for some seconds, one at a time, as a busy host does with processes of a container."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "TRANCHE_PAUSED_BY"
"""Environment variable that the processes to stop have inherited."""
SHORTEST = 0.2


@contextmanager
def process_pauses(longest: float, seed: int, log: Path) -> Iterator[dict[str, str]]:
    """Stop processes within the block, and return the environment that makes a process one of them.

    Args:
        longest: Maximum length of a pause in seconds; 0 means no pauses.
        seed: Random seed of choices and lengths.
        log: File for a line per pause: time, seconds, process and command line.
    """
    if not longest:
        yield dict(os.environ)
        return
    ended, mark = threading.Event(), f"{MARK}={os.getpid()}"
    thread = threading.Thread(target=_pause_until, args=(ended, longest, random.Random(seed), mark, log))  # noqa: S311
    thread.start()
    try:
        yield {**os.environ, MARK: str(os.getpid())}
    finally:
        ended.set()
        thread.join()


def running(mark: str) -> list[int]:
    """Return the processes whose environment contains the mark, without those that a test has stopped."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stopped = (entry / "stat").read_bytes().rpartition(b") ")[2][:1] == b"T"
            if not stopped and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return sorted(found)


def _pause_until(ended: threading.Event, longest: float, choice: random.Random, mark: str, log: Path) -> None:
    with log.open("a") as lines:
        lines.write(f"pauses of {SHORTEST} to {longest} s\n")
        while not ended.wait(choice.uniform(0.0, 1.0)):
            if not (processes := running(mark)):
                continue
            process, seconds = choice.choice(processes), choice.uniform(SHORTEST, longest)
            with suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                lines.write(f"{time.strftime('%T')} {seconds:4.1f} s {process} {words[:200]}\n")
                lines.flush()
                os.kill(process, signal.SIGSTOP)
                ended.wait(seconds)
                os.kill(process, signal.SIGCONT)
