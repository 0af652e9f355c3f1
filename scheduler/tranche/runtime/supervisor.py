"""Supervisor of child processes: starts them, starts them again when they end, and stops them."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence

from tranche.runtime.parent_process import PARENT_VARIABLE

START_SECONDS = 10.0
"""Time after the first start in which a failure ends the supervisor too: a wrong option does not repair itself.

A signal, such as that of the kernel for lack of memory, is no such failure.
"""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""Pauses before a child is started again; they double."""
STEADY_SECONDS = 60.0
"""Run time after which the pause is the first one again."""
STOP_SECONDS = 10.0
"""Time for a child to end after SIGTERM."""

logger = logging.getLogger(__name__)


class ChildError(Exception):
    """A child could not be started; `status` is its exit status."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} ended with status {status} at its start")
        self.status = status


async def supervise(commands: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> None:
    """Run one child process per command until cancelled; a child that ends does not affect the others.

    Args:
        commands: Command lines by name.
        environment: Environment variables of the children.

    Raises:
        ExceptionGroup: with ChildError, if a child fails soon after its first start.
    """
    variables = {**environment, PARENT_VARIABLE: str(os.getpid())}
    async with asyncio.TaskGroup() as group:
        for name, command in commands.items():
            group.create_task(_keep_running(name, command, variables), name=name)


async def _keep_running(name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    first, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    while True:
        began = time.monotonic()
        status = await _run(command, environment)
        ended = time.monotonic()
        if status > 0 and ended - first < START_SECONDS:
            raise ChildError(name, status)
        if ended - began >= STEADY_SECONDS:
            pause = FIRST_PAUSE_SECONDS
        logger.error("the %s ended with status %d; starting it again in %g s", name, status, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a child until it ends, and return its exit status; when cancelled, stop it first."""
    child = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    try:
        return await child.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        raise
