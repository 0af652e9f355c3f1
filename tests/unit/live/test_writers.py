"""When statuses are written, and how often."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from support.virtual_time_loop import JumpingLoop, run
from tranche.kube.client.leader_election import DeposedError
from tranche.live import status_writer
from tranche.live.status_writer import StatusWriter


def test_who_waits_too_long_to_lead_again_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "LAPSE_SECONDS", 0.0)

    async def scenario() -> None:
        writer = StatusWriter(None, lambda _: None)  # type: ignore[arg-type]
        writer.put("/a", dict)
        await asyncio.wait_for(writer.run(lambda: False), 5.0)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.value.subgroup(DeposedError) is not None


class Slow:
    """An API server that takes 0.05 s for a write."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.loop = loop
        self.written: list[tuple[float, str, Any]] = []

    async def apply(self, path: str, body: Any, manager: str) -> None:
        self.written.append((round(self.loop.time(), 3), path, body["value"]))
        await asyncio.sleep(0.05)


def told(*puts: tuple[float, str, bool]) -> list[tuple[float, str, Any]]:
    """Return what is written of puts (when, path, lazy); each writes its own number."""
    written: list[tuple[float, str, Any]] = []

    async def main(loop: JumpingLoop) -> None:
        api = Slow(loop)
        writer = StatusWriter(api, lambda _: None, clock=loop.time)  # type: ignore[arg-type]
        writing = asyncio.ensure_future(writer.run())
        for number, (at, path, lazy) in enumerate(puts):
            await asyncio.sleep(max(0.0, at - loop.time()))
            writer.put(path, value(number), lazy=lazy)
        await asyncio.sleep(5.0)
        writing.cancel()
        await asyncio.wait([writing])
        written.extend(api.written)

    run(main)
    return written


def value(number: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"value": number}


def test_deferrable_writes_are_merged_for_a_tenth_of_a_second() -> None:
    assert told((1.0, "/a", True), (1.04, "/a", True), (1.05, "/b", True), (1.08, "/a", True)) == [
        (1.1, "/a", 3),
        (1.15, "/b", 2),
    ]


def test_much_that_has_time_is_spread_over_some() -> None:
    puts = [(1.0, f"/{number}", True) for number in range(4)]
    at = {path: when for when, path, _ in told(*puts, (1.12, "/now", False))}
    assert at == {"/0": 1.1, "/1": 1.13, "/2": 1.16, "/3": 1.19, "/now": 1.12}
    many = told(*((1.0, f"/{number}", True) for number in range(500)))
    assert len(many) == 500
    assert 3.0 < max(when for when, _, _ in many) < 6.0


def test_what_has_none_is_written_at_once_with_what_has_waited() -> None:
    assert told((1.0, "/a", True), (1.02, "/a", False), (1.5, "/a", True)) == [(1.02, "/a", 1), (1.6, "/a", 2)]


def test_change_during_write_is_written_after_it_or_later() -> None:
    assert told((1.0, "/a", False), (1.01, "/a", True)) == [(1.0, "/a", 0), (1.15, "/a", 1)]
    assert told((1.0, "/a", False), (1.01, "/a", True), (1.02, "/a", False)) == [(1.0, "/a", 0), (1.05, "/a", 2)]
