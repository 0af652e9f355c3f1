"""Tasks that are to run for ever."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_until_first_exit(**works: Coroutine[Any, Any, None]) -> None:
    """Run side by side what never ends; once one of them does, however that comes, all are stopped.

    A task group alone does not notice that a task has returned, or was cancelled by something that it had called: the
    others would go on, and wait for it without a word.

    Args:
        works: By what the error calls them.

    Raises:
        ExceptionGroup: of what they raised; of a RuntimeError if one of them ended without raising anything.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work, name=name) for name, work in works.items()]
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        names = sorted(task.get_name() for task in ended)
        raise RuntimeError(f"a task that should not end has ended: {', '.join(names)}")
