"""The planner API and its client over real HTTP; the Lease and TokenReview are stand-ins."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from support.waiting import WAIT_SECONDS
from tranche.auth.review_cache import REFUSALS_BURST, BusyError, TooManyRefusalsError
from tranche.kube.client.errors import ApiError
from tranche.model import (
    ChunkGrant,
    ChunkRequest,
    ChunkState,
    ChunkWindow,
    Delay,
    PlannedWindow,
    Report,
    Timings,
    WhatIf,
)
from tranche.planner_api.app import PlannerViews, create_planner_app
from tranche.planner_api.client import PlannerClient
from tranche.planner_api.leader_address import ANNOTATION, LeaderAddress
from tranche.planner_api.messages import KEY_VARIABLE, OUTLOOK, ExpectedPlace, Outlook, Trained
from tranche.planner_api.peer_token import AUDIENCE, BOUNDS, PeerGate, PeerToken
from tranche.planner_api.receiver import NotLeadingError, PlannerReceiver
from tranche.runtime.http_server import serve

ACCOUNT = "tranche-system:tranche-scheduler"
REPORT = Report("ns/cats", 7, {0: 12.0}, {0: 10.0}, Timings(0.5))


class Replica:
    """Inbox and granter of one planner."""

    def __init__(self, *, leading: bool = True) -> None:
        self.leading = leading
        self.taken: list[Report] = []
        self.superseded: set[int] = set()
        self.given: ChunkGrant | None = ChunkGrant((1, 2), 9, {1: 0.5})
        self.slow = False
        self.url = ""

    def take(self, report: Report) -> bool:
        self.taken.append(report)
        return report.attempt not in self.superseded

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        if self.slow:
            raise TimeoutError
        return self.given


class Api:
    """API server with a Lease and the token of one account."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {}
        self.user = f"system:serviceaccount:{ACCOUNT}"
        self.audience = AUDIENCE
        self.reads = self.reviews = 0

    def lead(self, replica: Replica, renewed: str = "1") -> None:
        spec = {"holderIdentity": replica.url, "renewTime": renewed, "leaseDurationSeconds": 8}
        self.lease = {"metadata": {"annotations": {ANNOTATION: replica.url}}, "spec": spec}

    async def request(self, method: str, path: str, *, body: Any = None, timeout: float = 30.0) -> dict[str, Any]:
        if path.endswith("tokenreviews"):
            self.reviews += 1
            for _ in range(5):  # other tasks run meanwhile
                await asyncio.sleep(0)
            known = body["spec"]["token"] == "projected" and body["spec"]["audiences"] == [self.audience]
            status = {"authenticated": known, "audiences": [self.audience], "user": {"username": self.user}}
            return {"status": status if known else {}}
        self.reads += 1
        if not self.lease:
            raise ApiError(404, "NotFound", "")
        return self.lease


class Pair:
    """Two replicas, and the client of an API process."""

    def __init__(self, api: Api, replicas: list[Replica], client: PlannerClient) -> None:
        self.api, self.replicas, self.client = api, replicas, client
        self.now = 0.0


@asynccontextmanager
async def served(api: Api, replica: Replica) -> AsyncIterator[None]:
    views = PlannerViews(
        lambda key: Timings(1.0) if key == "ns/cats" else None,
        lambda: (yield from _outlook()),
        lambda key: (yield from _windows(key)),
        lambda body: (yield from _what_if(body)),
    )
    gate = PeerGate(api, ACCOUNT, lambda: 0.0)  # while real time passes, more invalid tokens would be reviewed
    app = create_planner_app(PlannerReceiver(replica, replica), views, gate, list)
    ports: asyncio.Queue[int] = asyncio.Queue()
    task = asyncio.create_task(serve(app, "127.0.0.1", 0, listening=ports.put_nowait))
    replica.url = f"http://127.0.0.1:{await ports.get()}"
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _outlook() -> Any:
    yield
    ahead = PlannedWindow("ns/cats", "edge-a", "n1", 2, "0-1", 3.0, 4.0)
    return Outlook({"ns/cats": ExpectedPlace("edge-a", "n1")}, {"ns/dogs": Trained(5.0, 10.0, True)}, [ahead])


def _what_if(body: bytes) -> Any:
    for _ in range(2000 if body == b"long" else 1):
        yield
    if body == b"broken":
        raise ValueError("the job\ncannot be read")
    return WhatIf(1.0, 2.0, "edge-a", "", "runs", 3, (Delay("ns/dogs", 4.0, 5.0),), cut_short=False)


def _windows(key: str) -> Any:
    yield
    return (ChunkWindow(0, ChunkState.RUNNING, "edge-a", "n1", (0,), 1.0, 2.0),)


def run(scene: Callable[[Pair], Awaitable[None]], token: str = "projected") -> None:
    async def whole() -> None:
        api, first, second = Api(), Replica(), Replica(leading=False)
        async with served(api, first), served(api, second), aiohttp.ClientSession() as session:
            peer = PeerToken(None)
            peer._text = token
            client = PlannerClient(session, LeaderAddress(api, "x", lambda: pair.now), peer, lambda: pair.now)
            pair = Pair(api, [first, second], client)
            api.lead(first)
            sending = asyncio.create_task(client.run())
            async with asyncio.timeout(WAIT_SECONDS):
                await scene(pair)
            sending.cancel()
            await asyncio.wait([sending])

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_reports_reach_the_leader_unchanged() -> None:
    async def scene(pair: Pair) -> None:
        leader = pair.replicas[0]
        leader.superseded = {3}
        many = [pair.client.take(Report("ns/cats", attempt)) for attempt in range(500)]
        assert await pair.client.take(REPORT)
        results = await asyncio.gather(*many)
        assert leader.taken[0] == REPORT
        assert [n for n, taken in enumerate(results) if not taken] == [3]
        assert pair.replicas[1].taken == []

    run(scene)


def test_a_new_leader_receives_the_next_reports() -> None:
    async def scene(pair: Pair) -> None:
        first, second = pair.replicas
        assert await pair.client.take(REPORT)
        first.leading, second.leading = False, True
        pair.api.lead(second, "2")
        with pytest.raises(NotLeadingError):
            await pair.client.take(REPORT)
        pair.now += 0.5  # after the shortest pause, although the address is fresh
        assert await pair.client.take(REPORT)
        assert len(second.taken) == 1

    run(scene)


def test_a_lease_that_is_not_renewed_has_no_leader() -> None:
    async def scene(pair: Pair) -> None:
        assert await pair.client.take(REPORT)
        for _ in range(5):
            pair.now += 2.0
            if pair.now >= 8.0:
                with pytest.raises(NotLeadingError, match="no replica"):
                    await pair.client.take(REPORT)
            else:
                assert await pair.client.take(REPORT)
        pair.api.lead(pair.replicas[0], "2")
        pair.now += 2.0
        assert await pair.client.take(REPORT)

    run(scene)


def test_a_leader_that_is_gone_is_no_leader() -> None:
    async def scene(pair: Pair) -> None:
        pair.replicas[0].url = "http://127.0.0.1:9"
        pair.api.lead(pair.replicas[0])
        with pytest.raises(NotLeadingError, match="does not answer"):
            await pair.client.take(REPORT)

    run(scene)


def test_chunk_requests_are_granted_by_the_leader() -> None:
    async def scene(pair: Pair) -> None:
        leader, request = pair.replicas[0], ChunkRequest("ns/cats", 7, 8, {0: 10.0})
        assert await pair.client.ask(request) == ChunkGrant((1, 2), 9, {1: 0.5})
        leader.given = None
        assert await pair.client.ask(request) is None
        leader.slow = True
        with pytest.raises(TimeoutError):
            await pair.client.ask(request)
        leader.leading = False
        with pytest.raises(NotLeadingError):
            await pair.client.ask(request)

    run(scene)


def test_views_come_from_the_leader() -> None:
    async def scene(pair: Pair) -> None:
        client = pair.client
        assert (await client.progress("ns/cats") or {})["batch_seconds"] == 1.0
        assert await client.progress("ns/dogs") is None
        (window,) = await client.chunk_windows("ns/cats") or ()
        assert (window.node, window.state) == ("n1", ChunkState.RUNNING)
        await client.refresh()
        assert client.responds
        assert client.expected("ns/cats") == ExpectedPlace("edge-a", "n1")
        assert client.trained("ns/dogs") == Trained(5.0, 10.0, True)
        assert [(one.job, one.workers) for one in client.planned_windows("edge-a")] == [("ns/cats", 2)]
        assert list(client.planned_windows("edge-b")) == []
        pair.replicas[0].leading = False
        pair.now += 3.0
        await client.refresh()
        assert not client.responds
        assert client.expected("ns/cats") is None
        assert list(client.planned_windows("edge-a")) == []
        assert await client.chunk_windows("ns/cats") is None

    run(scene)


def test_what_ifs_are_computed_by_the_leader_one_at_a_time() -> None:
    async def scene(pair: Pair) -> None:
        result = await pair.client.what_if(b"{}")
        assert (result.start, result.workers, result.delays) == (1.0, 3, (Delay("ns/dogs", 4.0, 5.0),))
        with pytest.raises(ValueError, match="the job cannot be read"):
            await pair.client.what_if(b"broken")
        both = await asyncio.gather(*(pair.client.what_if(b"long") for _ in range(2)), return_exceptions=True)
        assert [type(one).__name__ for one in both] in (["WhatIf", "BusyError"], ["BusyError", "WhatIf"])
        pair.replicas[0].leading = False
        with pytest.raises(NotLeadingError):
            await pair.client.what_if(b"{}")

    run(scene)


@pytest.mark.parametrize("token", ["", "stolen", "x" * 20_000])
def test_others_than_the_api_process_are_refused(token: str) -> None:
    async def scene(pair: Pair) -> None:
        with pytest.raises(NotLeadingError, match="only the API process"):
            await pair.client.take(REPORT)
        assert pair.replicas[0].taken == []

    run(scene, token)


@pytest.mark.parametrize("field", ["user", "audience"])
def test_token_of_other_account_or_audience_is_refused(field: str) -> None:
    async def scene(pair: Pair) -> None:
        setattr(pair.api, field, "system:serviceaccount:default:default")
        with pytest.raises(NotLeadingError, match="only the API process"):
            await pair.client.take(REPORT)

    run(scene)


def test_key_of_the_machine_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "shared")

    async def scene(pair: Pair) -> None:
        assert await pair.client.take(REPORT)

    run(scene, "shared")


def test_former_leader_does_not_say_that_an_attempt_ended() -> None:
    async def scene() -> None:
        replica = Replica(leading=False)
        replica.superseded, replica.given = {7}, None
        receiver = PlannerReceiver(replica, replica)
        with pytest.raises(NotLeadingError):
            await receiver.take(REPORT)
        with pytest.raises(NotLeadingError):
            await receiver.ask(ChunkRequest("ns/cats", 7, 7))

    asyncio.run(scene())


def test_leader_deposed_during_a_request_does_not_answer() -> None:
    class Deposed(Replica):
        async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
            self.leading = False
            return None

    async def scene() -> None:
        replica = Deposed()
        with pytest.raises(NotLeadingError):
            await PlannerReceiver(replica, replica).ask(ChunkRequest("ns/cats", 7, 7))

    asyncio.run(scene())


@pytest.mark.parametrize("peer", ["10.0.0.2", "10.0.0.1"])
def test_flood_of_invalid_tokens_does_not_shut_the_api_out(peer: str) -> None:
    """Its token is renewed each minute, also if the flood seems to come from its own address."""
    now = [0.0]
    gate = PeerGate(Api(), ACCOUNT, lambda: now[0])

    async def flood(client: int) -> None:
        for number in range(10**9):
            with contextlib.suppress(BusyError, TooManyRefusalsError):
                await gate.admits(f"Bearer {client}-{number}", f"10.0.0.{1 + client // 6}")
            await asyncio.sleep(0)

    async def scene() -> None:
        assert await gate.admits("Bearer projected", peer)
        flooding = [asyncio.create_task(flood(client)) for client in range(60)]
        for _ in range(50):
            now[0] += 61.0
            await asyncio.sleep(0)
            assert await gate.admits("Bearer projected", peer)
        for one in flooding:
            one.cancel()
        await asyncio.wait(flooding)

    asyncio.run(scene())


@pytest.mark.parametrize("token", ["projected", "stolen"])
def test_many_requests_with_one_new_token_are_all_answered(token: str) -> None:
    async def scene() -> None:
        api = Api()
        gate = PeerGate(api, ACCOUNT, lambda: 0.0)
        admitted = await asyncio.gather(*(gate.admits(f"Bearer {token}", "10.0.0.1") for _ in range(200)))
        assert set(admitted) == {token == "projected"}
        assert api.reviews <= BOUNDS.parallel

    asyncio.run(scene())


def test_invalid_tokens_of_one_address_cost_few_reviews() -> None:
    async def scene(pair: Pair) -> None:
        url, before, statuses = pair.replicas[0].url + OUTLOOK, pair.api.reviews, list[int]()
        async with aiohttp.ClientSession() as session:
            for number in range(REFUSALS_BURST + 10):
                async with session.get(url, headers={"Authorization": f"Bearer {number}"}) as response:
                    statuses.append(response.status)
        assert (statuses[0], statuses[-1]) == (401, 503)
        assert pair.api.reviews - before <= REFUSALS_BURST + 5

    run(scene)
