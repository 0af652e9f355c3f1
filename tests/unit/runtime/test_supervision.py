import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.waiting import WAIT_SECONDS
from tranche.runtime.supervision import run_until_first_exit


async def _rest() -> None:
    await asyncio.Event().wait()


async def _cancelled_by_what_it_called() -> None:
    raise asyncio.CancelledError


async def _returns() -> None:
    return


async def _fails() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("ends", [_cancelled_by_what_it_called, _returns])
def test_task_that_returns_stops_the_others_and_is_named(
    ends: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(asyncio.wait_for(run_until_first_exit(lease=ends(), writer=_rest()), WAIT_SECONDS))
    assert [str(error) for error in raised.value.exceptions] == ["a task that should not end has ended: lease"]


def test_task_error_stops_the_others_and_is_raised_alone() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(asyncio.wait_for(run_until_first_exit(lease=_fails(), writer=_rest()), WAIT_SECONDS))
    assert [repr(error) for error in raised.value.exceptions] == ["ValueError('broken')"]


def test_who_is_cancelled_cancels_all() -> None:
    async def scenario() -> None:
        task = asyncio.create_task(run_until_first_exit(lease=_rest(), writer=_rest()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
