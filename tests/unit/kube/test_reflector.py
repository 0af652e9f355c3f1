import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.fake_api_server import FakeApi, run
from tranche.kube.api.core_types import Pod
from tranche.kube.client.client import ApiClient
from tranche.kube.client.reflector import LONGEST_PAUSE_SECONDS, LONGEST_RETRY_AFTER_SECONDS, Reflector

PATH = "/api/v1/pods"
DECODER = msgspec.json.Decoder(Pod)
Change = tuple[str, str, str]
"""Key, uid before, uid after."""


class Watched:
    """A running reflector, and everything that a subscriber received from it."""

    def __init__(self, reflector: Reflector[Pod], pauses: list[float]) -> None:
        self.reflector = reflector
        self.pauses = pauses
        self.changes: list[Change] = []
        self.changed = asyncio.Event()
        reflector.subscribe(self._note)

    def _note(self, key: str, old: Pod | None, new: Pod | None) -> None:
        self.changes.append((key, old.metadata.uid if old else "", new.metadata.uid if new else ""))
        self.changed.set()

    async def until(self, reached: Callable[[], object]) -> None:
        while not reached():
            self.changed.clear()
            waiting = asyncio.ensure_future(self.changed.wait())
            await asyncio.wait({waiting}, timeout=0.01)
            waiting.cancel()

    @property
    def names(self) -> set[str]:
        return {key.removeprefix("ns/") for key in self.reflector.store}


@asynccontextmanager
async def watching(config: str, decode: Callable[[bytes], Pod] = DECODER.decode, **more: Any) -> AsyncIterator[Watched]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async with ApiClient.connect(config) as client:
        options: dict[str, Any] = {"jitter": lambda: 0.5, "sleep": sleep, **more}
        reflector: Reflector[Pod] = Reflector(client, PATH, decode, **options)
        watched = Watched(reflector, pauses)
        task = asyncio.create_task(reflector.run())
        try:
            yield watched
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


Scene = Callable[[FakeApi, Watched], Awaitable[None]]


def play(folder: Path, scene: Scene, before: Callable[[FakeApi], None] = lambda api: None, **more: Any) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        before(api)
        async with watching(config, **more) as watched:
            await watched.reflector.synced()
            await scene(api, watched)

    run(folder, scenario)


def three(api: FakeApi) -> None:
    for name in "abc":
        api.put(name)


def test_the_first_list_is_read_in_pages(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        assert watched.names == {"a", "b", "c"}
        assert [r.get("limit") for r in api.requests[:2]] == ["2", "2"]
        assert "continue" in api.requests[1]
        assert watched.reflector.stats.relists == 1

    play(tmp_path, scene, three, page_size=2)


def test_nothing_counts_as_synced_before_the_last_page(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        three(api)
        states: list[bool] = []
        async with watching(config, page_size=1) as watched:
            api.between_pages = lambda: states.append(watched.reflector.has_synced)
            assert watched.reflector.age == float("inf")
            await watched.reflector.synced()
            assert watched.reflector.age < 20
        assert states == [False, False]

    run(tmp_path, scenario)


def test_changes_reach_the_store_and_the_subscribers_in_order(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.put("b", nodeName="n1")
        api.put("d")
        api.remove("a")
        await watched.until(lambda: watched.names == {"b", "c", "d"})
        assert watched.reflector.store["ns/b"].spec.node_name == "n1"
        assert watched.changes[3:] == [("ns/b", "uid-b", "uid-b"), ("ns/d", "", "uid-d"), ("ns/a", "uid-a", "")]
        assert watched.reflector.stats.events == 6

    play(tmp_path, scene, three)


def test_late_subscriber_gets_existing_objects(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        late: list[str] = []
        watched.reflector.subscribe(lambda key, old, new: late.append(key))
        assert sorted(late) == ["ns/a", "ns/b", "ns/c"]

    play(tmp_path, scene, three)


def test_a_cut_connection_is_resumed_where_it_was_without_a_list(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.put("d")
        await watched.until(lambda: "d" in watched.names)
        await api.cut()
        api.put("e")
        await watched.until(lambda: "e" in watched.names)
        assert watched.reflector.stats.relists == 1
        assert [request["resourceVersion"] for request in api.requests if "watch" in request] == ["3", "4"]
        assert watched.changes.count(("ns/d", "", "uid-d")) == 1

    play(tmp_path, scene, three)


def test_resumed_watch_does_not_wait_for_the_check_of_versions(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.answers_lists.clear()
        await api.cut()
        api.put("d")
        await watched.until(lambda: "d" in watched.names)
        api.answers_lists.set()
        assert watched.reflector.stats.relists == 1

    play(tmp_path, scene, three)


def test_resumed_watch_goes_on_if_the_check_of_versions_fails(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.refused_lists = 3
        await api.cut()
        api.put("d")
        await watched.until(lambda: "d" in watched.names and not api.refused_lists)
        api.put("e")
        await watched.until(lambda: "e" in watched.names)
        assert len([request for request in api.requests if "watch" in request]) == 2

    play(tmp_path, scene, three)


@pytest.mark.parametrize("refused", [0, 2])
def test_objects_of_a_restored_etcd_are_listed(tmp_path: Path, refused: int) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.refused_lists = refused
        backup = api.version
        api.remove("a")
        for number in range(9):
            api.put("later", number=number)
        await watched.until(lambda: watched.names == {"b", "c", "later"})
        api.restore(backup)
        await api.cut()
        await watched.until(lambda: watched.names == {"a", "b", "c"})
        api.put("d")
        await watched.until(lambda: watched.names == {"a", "b", "c", "d"})

    play(tmp_path, scene, three)


def test_a_bookmark_moves_the_place_to_resume_at(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.bookmark()
        await watched.until(lambda: watched.reflector._version == "4")
        api.forget()
        api.oldest = 4
        await api.cut()
        api.put("d")
        await watched.until(lambda: "d" in watched.names)
        assert watched.reflector.stats.relists == 1

    play(tmp_path, scene, three)


def test_a_silent_connection_is_given_up_and_resumed(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.silent = True
        api.put("d")
        await watched.until(lambda: watched.reflector.stats.errors)
        api.silent = False
        await watched.until(lambda: "d" in watched.names)

    play(tmp_path, scene, three, inactivity_seconds=0.05)


def test_after_410_a_new_list_reports_what_was_missed(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.silent = True
        api.remove("a")
        api.put("b", nodeName="n1")
        api.remove("c")
        api.put("c", uid="successor")
        api.put("d")
        api.forget()
        api.silent = False
        await api.cut()
        await watched.until(lambda: watched.reflector.stats.relists == 2)
        assert watched.names == {"b", "c", "d"}
        assert sorted(watched.changes[3:]) == sorted(
            [
                ("ns/a", "uid-a", ""),
                ("ns/b", "uid-b", "uid-b"),
                ("ns/c", "uid-c", ""),
                ("ns/c", "", "successor"),
                ("ns/d", "", "uid-d"),
            ]
        )
        assert watched.changes.index(("ns/c", "uid-c", "")) < watched.changes.index(("ns/c", "", "successor"))

    play(tmp_path, scene, three)


def test_an_http_410_of_the_watch_leads_to_a_list_too(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.answers.append((410, {"reason": "Expired", "message": "gone"}, {}))
        await api.cut()
        await watched.until(lambda: watched.reflector.stats.relists == 2)
        assert watched.names == {"a", "b", "c"}

    play(tmp_path, scene, three)


def test_a_list_whose_pages_expire_is_taken_in_one(tmp_path: Path) -> None:
    def before(api: FakeApi) -> None:
        three(api)
        api.between_pages = api.forget

    async def scene(api: FakeApi, watched: Watched) -> None:
        assert watched.names == {"a", "b", "c"}
        assert [r.get("limit") for r in api.requests if "watch" not in r] == ["1", "1", None]

    play(tmp_path, scene, before, page_size=1)


def test_relist_does_not_decode_or_report_unchanged_objects(tmp_path: Path) -> None:
    decoded: list[bytes] = []

    def decode(raw: bytes) -> Pod:
        decoded.append(raw)
        return DECODER.decode(raw)

    async def scene(api: FakeApi, watched: Watched) -> None:
        api.forget()
        await api.cut()
        await watched.until(lambda: watched.reflector.stats.relists == 2)
        assert len(decoded) == len(watched.changes) == 3

    play(tmp_path, scene, three, decode=decode)


def test_undecodable_object_is_skipped_until_a_good_version(tmp_path: Path) -> None:
    def before(api: FakeApi) -> None:
        three(api)
        api.put("bad", nodeName=5)

    async def scene(api: FakeApi, watched: Watched) -> None:
        assert watched.names == {"a", "b", "c"}
        assert watched.reflector.stats.errors == 1
        api.put("a", nodeName=5)
        api.put("d")
        await watched.until(lambda: "d" in watched.names)
        assert watched.reflector.store["ns/a"].spec.node_name == ""
        api.put("bad", nodeName="n1")
        await watched.until(lambda: "bad" in watched.names)
        assert watched.reflector.stats.relists == 1

    play(tmp_path, scene, before)


def test_undecodable_object_survives_relist_in_last_good_version(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.put("a", nodeName=5)
        api.forget()
        await api.cut()
        await watched.until(lambda: watched.reflector.stats.relists == 2)
        assert watched.names == {"a", "b", "c"}
        api.remove("a")
        await watched.until(lambda: watched.names == {"b", "c"})

    play(tmp_path, scene, three)


def test_new_undecodable_object_is_stored_as_far_as_readable(tmp_path: Path) -> None:
    def what_can_be_read(raw: bytes) -> Pod:
        found = msgspec.json.decode(raw)
        return msgspec.convert({"metadata": found["metadata"]}, Pod)

    def before(api: FakeApi) -> None:
        three(api)
        api.put("bad", nodeName=5)

    async def scene(api: FakeApi, watched: Watched) -> None:
        store = watched.reflector.store
        assert watched.names == {"a", "b", "c", "bad"}
        api.put("a", nodeName=5)
        api.put("bad", nodeName=6)
        api.put("d")
        await watched.until(lambda: "d" in watched.names)
        assert store["ns/a"].spec.node_name == "", "the last version that could be read"
        assert [key for key, _, _ in watched.changes].count("ns/bad") == 2
        api.put("bad", nodeName="n1")
        api.put("bad", nodeName=7)
        api.put("e")
        await watched.until(lambda: "e" in watched.names)
        assert store["ns/bad"].spec.node_name == "n1"

    play(tmp_path, scene, before, decode_new=what_can_be_read)


def test_undecodable_successor_removes_its_predecessor(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.put("a", uid="successor", nodeName=5)
        await watched.until(lambda: watched.names == {"b", "c"})

    play(tmp_path, scene, three)


@pytest.mark.parametrize("line", ["not JSON", '{"type": "ADDED"}', '{"type": "ADDED", "object": {}}', "[]"])
def test_a_line_that_is_no_event_leads_to_a_new_list(tmp_path: Path, line: str) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        api.version += 1
        api.say(line)
        await watched.until(lambda: watched.reflector.stats.relists == 2)
        api.put("d")
        await watched.until(lambda: "d" in watched.names)

    play(tmp_path, scene, three)


def test_failing_subscriber_does_not_stop_watch_or_others(tmp_path: Path) -> None:
    def fail(key: str, old: Pod | None, new: Pod | None) -> None:
        raise RuntimeError(key)

    async def scenario(api: FakeApi, config: str) -> None:
        three(api)
        async with watching(config) as watched:
            watched.reflector._callbacks.insert(0, fail)
            await watched.reflector.synced()
            api.put("d")
            await watched.until(lambda: len(watched.changes) == 4)
            assert watched.reflector.stats.errors == 4

    run(tmp_path, scenario)


def test_backoff_grows_while_refused_and_resets_on_success(tmp_path: Path) -> None:
    def before(api: FakeApi) -> None:
        three(api)
        api.answers += [(500, {"message": "down"}, {})] * 8

    async def scene(api: FakeApi, watched: Watched) -> None:
        assert watched.pauses == [0.5, 1, 2, 4, 8, *[LONGEST_PAUSE_SECONDS] * 3]
        await api.cut()
        await watched.until(lambda: len(watched.pauses) == 9)
        assert watched.pauses[-1] == 0.5

    play(tmp_path, scene, before)


def test_a_server_that_names_a_time_is_given_it(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        assert watched.pauses == [17]

    def before(api: FakeApi) -> None:
        api.answers.append((429, {"details": {"retryAfterSeconds": 17}}, {}))

    play(tmp_path, scene, before)


def test_time_that_a_proxy_names_is_bounded(tmp_path: Path) -> None:
    """Otherwise the planner would see nothing for a day after a minute of maintenance."""

    async def scenario(api: FakeApi, config: str) -> None:
        three(api)
        api.answers = [(503, "maintenance", {"Retry-After": "86400"})]
        async with watching(config) as watched:
            await watched.reflector.synced()
            assert watched.pauses == [LONGEST_RETRY_AFTER_SECONDS]

    run(tmp_path, scenario)


def test_a_watch_that_ends_at_once_is_not_opened_in_a_tight_loop(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        await api.cut()
        api.is_brief = True
        await watched.until(lambda: len(watched.pauses) >= 4)
        assert watched.pauses[:4] == [0.5, 1, 2, 4]

    play(tmp_path, scene, three)


def test_the_server_is_asked_to_end_watches_at_scattered_times(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        await watched.until(lambda: any("watch" in request for request in api.requests))
        watch = next(request for request in api.requests if "watch" in request)
        assert watch["timeoutSeconds"] == "360"
        assert watch["allowWatchBookmarks"] == "true"
        assert watch["fieldSelector"] == "spec.nodeName!="

    play(tmp_path, scene, three, params={"fieldSelector": "spec.nodeName!="})


def test_a_burst_leaves_the_loop_to_others(tmp_path: Path) -> None:
    async def scene(api: FakeApi, watched: Watched) -> None:
        rounds = 0
        for number in range(3000):
            api.put(f"p{number}")

        async def others() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        await watched.until(lambda: len(watched.names) == 3000)
        task.cancel()
        assert rounds > 100

    ticks = itertools.count()
    play(tmp_path, scene, clock=lambda: next(ticks) / 1000)


def test_cluster_scoped_objects_go_by_name(tmp_path: Path) -> None:
    def before(api: FakeApi) -> None:
        meta: dict[str, Any] = {"name": "n1", "uid": "u", "resourceVersion": "1"}
        api.objects["n1"] = {"metadata": meta}

    async def scene(api: FakeApi, watched: Watched) -> None:
        assert set(watched.reflector.store) == {"n1"}

    play(tmp_path, scene, before)
