"""The collector looks at what is new only, and what becomes garbage in rings is found all the same."""

import asyncio
import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import WAIT_SECONDS
from tranche.kube.client.client import ApiClient
from tranche.runtime import gc_tuning
from tranche_operator.app import Operator
from tranche_operator.settings import Settings


class Ring:
    """Holds itself, so that counting references does not find it."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def tended(rounds: int, held: list[Ring], let_go_after: int) -> list[bool]:
    """Return whether a ring of objects still exists at each pause, if it is released in one of them."""
    known, there = weakref.ref(held[0]), list[bool]()

    async def sleep(seconds: float) -> None:
        there.append(known() is not None)
        if len(there) == let_go_after:
            held.clear()
        if len(there) == rounds:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(gc_tuning.freeze_periodically(asyncio.sleep(0), sleep))
    return there


def test_nothing_that_is_held_is_looked_at_twice() -> None:
    counts = list[int]()

    async def sleep(seconds: float) -> None:
        counts.append(gc.get_freeze_count())
        if len(counts) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        asyncio.run(gc_tuning.freeze_periodically(asyncio.sleep(0), sleep))
    assert min(counts) > 10_000
    assert gc.get_threshold() == (gc_tuning.YOUNG, gc_tuning.MIDDLE, gc_tuning.NEVER)


def test_ring_set_aside_before_it_is_garbage_is_found_by_full_gc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc_tuning, "ROUNDS", 4)
    assert tended(6, [Ring()], let_go_after=2) == [True, True, True, True, False, False]


def test_operator_lets_python_make_no_full_collections(tmp_path: Path) -> None:
    cluster, context = {"server": "http://127.0.0.1:9"}, {"cluster": "c", "user": "u"}
    parts = {"clusters": [{"name": "c", "cluster": cluster}], "contexts": [{"name": "c", "context": context}]}
    config = tmp_path / "config"
    config.write_text(json.dumps({**parts, "users": [{"name": "u", "user": {}}], "current-context": "c"}))

    async def serve() -> None:
        async with ApiClient.connect(str(config)) as client, asyncio.timeout(WAIT_SECONDS):
            serving = asyncio.create_task(Operator(client, Settings(), str(config)).serve())
            while gc.get_threshold()[2] != gc_tuning.NEVER:
                await asyncio.sleep(0)
            serving.cancel()
            await asyncio.wait([serving])

    asyncio.run(serve())
