"""Stop a process with SIGSTOP for a while."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process within the block; it continues afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
