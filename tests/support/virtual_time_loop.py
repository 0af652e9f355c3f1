"""Event loop in virtual time."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class JumpingLoop(asyncio.SelectorEventLoop):
    """Event loop that does not wait for its timers: when it is idle, its clock jumps to the next one."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self._loop.now += timeout
        return ready


def run(main: Callable[[JumpingLoop], Awaitable[None]]) -> None:
    loop = JumpingLoop()
    try:
        loop.run_until_complete(main(loop))
    finally:
        loop.close()
