"""Requests of the operator while those of one namespace get no answer, over real HTTP."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_api_server import FakeApi, run
from support.waiting import WAIT_SECONDS
from tranche.kube.client.client import ApiClient
from tranche_operator import api_paths, main
from tranche_operator.election import Election
from tranche_operator.execute.fair_client import PARALLEL_WRITES, FairClient, FairShare
from tranche_operator.metrics import OperatorMetrics
from tranche_operator.settings import Settings

HELD = "/api/v1/namespaces/slow/"
NAMESPACE_JOBS, BATCH = 16, 16
"""Jobs of one namespace that run at the same time, and pods that each of them creates at the same time."""


@contextmanager
def hanging(client: ApiClient, method: str, number: int) -> Iterator[None]:
    """Send requests that get no answer."""
    path = api_paths.pods("slow")
    tasks = [asyncio.ensure_future(client.request(method, path)) for _ in range(number)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def held(api: FakeApi, number: int) -> None:
    while api.held < number:
        await asyncio.sleep(0)


def test_hanging_writes_of_a_namespace_do_not_delay_others(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.unanswered = HELD
        async with FairClient.connect(config) as client:
            with hanging(client, "POST", NAMESPACE_JOBS * BATCH):
                await held(api, PARALLEL_WRITES // 2)
                async with asyncio.timeout(WAIT_SECONDS):
                    await client.request("GET", api_paths.job("lab", "cats"))
                    await client.request("POST", api_paths.pods("lab"))
                    await client.request("PATCH", f"{api_paths.job('slow', 'cats')}/status")
                assert api.held == PARALLEL_WRITES // 2

    run(tmp_path, scenario)


def test_lease_is_renewed_while_all_connections_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()

    class BusyOperator:
        obstacle = ""
        metrics = OperatorMetrics(int, bool, int)

        def __init__(self, client: ApiClient, *_: Any) -> None:
            self.client = client

        async def serve(self) -> None:
            with hanging(self.client, "GET", self.client.connections):
                await held(api, self.client.connections)
                before = len(api.bodies)
                while len(api.bodies) < before + 3:
                    await asyncio.sleep(0)
                signal.raise_signal(signal.SIGTERM)
                await asyncio.Event().wait()

    async def scenario(server: FakeApi, config: str) -> None:
        nonlocal api
        api = server
        api.unanswered = HELD
        monkeypatch.setattr(FairClient, "connections", 4)
        monkeypatch.setattr(main, "Operator", BusyOperator)
        monkeypatch.setattr(main, "Election", partial(Election, sleep=lambda _: asyncio.sleep(0)))
        async with asyncio.timeout(WAIT_SECONDS):
            await main.run(config, None, Settings(), "tranche-system")

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        (f"{api_paths.pod('lab', 'cats-worker-0-1')}/eviction", "lab/pods"),
        (f"{api_paths.job('lab', 'cats')}/status", "lab/trainingjobs"),
        (api_paths.site("edge"), api_paths.site("edge")),
    ],
)
def test_writes_share_by_namespace_and_kind(path: str, group: str) -> None:
    assert api_paths.collection_of(path) == group


@given(st.lists(st.sampled_from("aabc"), max_size=40), st.randoms(use_true_random=False))
def test_places_are_shared_and_none_is_lost(groups: list[str], random: Any) -> None:
    """Also if writes are cancelled while they wait, or when they get their turn."""

    async def scenario() -> None:
        share, places = FairShare(8), 8
        inside: list[str] = []

        async def write(group: str) -> None:
            async with share.place(group):
                inside.append(group)
                try:
                    await asyncio.Event().wait()
                finally:
                    inside.remove(group)

        tasks = []
        for group in groups:
            tasks.append(asyncio.create_task(write(group)))
            if random.random() < 0.3:
                tasks.pop(random.randrange(len(tasks))).cancel()
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)
            assert len(inside) <= places
            assert len(inside) < places or len(set(inside)) > 3
        random.shuffle(tasks)
        for task in tasks:
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not inside
        async with AsyncExitStack() as stack, asyncio.timeout(WAIT_SECONDS):
            for number in range(places):
                await stack.enter_async_context(share.place(str(number)))

    asyncio.run(scenario())
