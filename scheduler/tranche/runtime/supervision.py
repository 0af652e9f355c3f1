"""Supervision of long-running coroutines."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_first_exit(**works: Coroutine[Any, Any, None]) -> None:
    """Run long-lived coroutines concurrently until the first one ends; then cancel the rest and raise.

    A task group alone does not react when a task returns, or is cancelled by something that it called: the other tasks
    would continue without it, and nothing would be logged.

    Args:
        works: Coroutines, by the names that the error uses.

    Raises:
        ExceptionGroup: with the exceptions of the coroutines, or a RuntimeError if one ended without an exception.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work, name=name) for name, work in works.items()]
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        names = sorted(task.get_name() for task in ended)
        raise RuntimeError(f"a task that should not end has ended: {', '.join(names)}")
