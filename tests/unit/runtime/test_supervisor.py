"""Supervised processes: real ones, which end in all ways."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from support.waiting import WAIT_SECONDS
from tranche.runtime import supervisor
from tranche.runtime.supervisor import ChildError, supervise

STAY = "import os, pathlib, sys, time\nopen(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\ntime.sleep(600)"


def lived(file: Path) -> list[int]:
    """Process IDs of the children that have run, in order."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def supervising(commands: dict[str, list[str]], scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        task = asyncio.create_task(supervise(commands, os.environ))
        async with asyncio.timeout(WAIT_SECONDS):
            await scene()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.02)


def test_a_killed_child_is_started_again_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_SECONDS", 0.01)
    files = {name: tmp_path / name for name in ("one", "two")}
    commands = {name: [sys.executable, "-c", STAY, str(file)] for name, file in files.items()}

    async def scene() -> None:
        await until(lambda: all(lived(file) for file in files.values()))
        os.kill(lived(files["one"])[0], signal.SIGKILL)
        await until(lambda: len(lived(files["one"])) == 2)
        assert len(lived(files["two"])) == 1

    supervising(commands, scene)


def test_children_end_with_the_supervisor(tmp_path: Path) -> None:
    file = tmp_path / "one"

    async def scene() -> None:
        await until(lambda: bool(lived(file)))

    supervising({"one": [sys.executable, "-c", STAY, str(file)]}, scene)
    with pytest.raises(ProcessLookupError):
        os.kill(lived(file)[0], 0)


def test_a_child_that_fails_at_its_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "START_SECONDS", WAIT_SECONDS)  # a child that ends later is started again
    commands = {
        "bad": [sys.executable, "-c", "raise SystemExit(3)"],
        "good": [sys.executable, "-c", "import time; time.sleep(600)"],
    }
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(supervise(commands, os.environ))
    (error,) = caught.value.exceptions
    assert isinstance(error, ChildError)
    assert (error.status, str(error)) == (3, "bad ended with status 3 at its start")
