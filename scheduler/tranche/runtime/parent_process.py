"""End of a process when the process that started it ends, however it ends."""

import asyncio
import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "TRANCHE_PARENT"
"""Environment variable with the process ID of the supervisor."""
PAUSE_SECONDS = 1.0
_SET_PARENT_DEATH_SIGNAL = 1


def end_with_parent() -> None:
    """Have the kernel kill this process when its supervisor ends (Linux). Without effect without a supervisor.

    Raises:
        SystemExit: the supervisor has already ended.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(parent):
        raise SystemExit("the supervisor has ended")


async def parent_ended() -> None:
    """Return when the supervisor has ended; never without a supervisor."""
    parent = os.environ.get(PARENT_VARIABLE)
    while parent is None or os.getppid() == int(parent):
        await asyncio.sleep(PAUSE_SECONDS)
