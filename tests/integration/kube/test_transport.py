"""Client, reflector and lease against a real API server, which is also stopped and started."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from support.waiting import WAIT_SECONDS
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.client.client import ApiClient, ApiError, Unreachable
from tranche.kube.client.leader_election import Leadership, LeaseSettings
from tranche.kube.client.reflector import Reflector
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.live.pods.pod_check import PodChecker
from tranche_testcluster import Cluster

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


class ConfigMap(msgspec.Struct):
    metadata: dict[str, Any]
    data: dict[str, str] = {}


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A control plane that may be stopped without harm to other tests."""
    with Cluster() as made:
        yield made


def run(cluster: Cluster, scene: Callable[[ApiClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with ApiClient.connect(str(cluster.kubeconfig)) as client, asyncio.timeout(WAIT_SECONDS):
            await scene(client)

    asyncio.run(whole())


@asynccontextmanager
async def following(
    client: ApiClient, path: str, decode: Callable[[bytes], Any], **more: Any
) -> AsyncIterator[Reflector[Any]]:
    reflector: Reflector[Any] = Reflector(client, path, decode, **more)
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.synced()
        yield reflector
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(reached: Callable[[], Any], seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.02)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_refusals_carry_what_the_api_server_says(own: Cluster) -> None:
    async def scene(client: ApiClient) -> None:
        with pytest.raises(ApiError) as caught:
            await client.request("GET", f"{MAPS}/absent")
        assert (caught.value.status, caught.value.reason) == (404, "NotFound")
        assert caught.value.message == 'configmaps "absent" not found'
        await client.request("POST", MAPS, body=config_map("twice"))
        with pytest.raises(ApiError, match="AlreadyExists"):
            await client.request("POST", MAPS, body=config_map("twice"))
        with pytest.raises(ApiError, match="422 Invalid"):
            await client.request("POST", MAPS, body=config_map("No_Name"))

    run(own, scene)


def test_apply_creates_changes_and_takes_over(own: Cluster) -> None:
    async def scene(client: ApiClient) -> None:
        await client.apply(f"{MAPS}/applied", config_map("applied", a="1"), "one")
        changed = await client.apply(f"{MAPS}/applied", config_map("applied", a="2"), "two")
        assert changed["data"] == {"a": "2"}

    run(own, scene)


def test_client_with_service_account_token_gets_403_if_forbidden(own: Cluster) -> None:
    config = own.service_account_kubeconfig("default", "default")

    async def scene() -> None:
        async with ApiClient.connect(str(config)) as client:
            assert (await client.get("/livez")) == b"ok"
            with pytest.raises(ApiError, match="403 Forbidden"):
                await client.get(PODS)

    asyncio.run(scene())


def test_pods_and_nodes_are_followed(own: Cluster) -> None:
    async def scene(client: ApiClient) -> None:
        (name,) = await asyncio.to_thread(own.add_site, "followed", 1, 4)
        async with (
            following(client, "/api/v1/pods", msgspec.json.Decoder(Pod).decode) as pods,
            following(client, "/api/v1/nodes", msgspec.json.Decoder(NodeObject).decode) as nodes,
        ):
            assert nodes.store[name].ready
            assert nodes.store[name].metadata.labels["topology.kubernetes.io/zone"] == "followed"
            container = {"name": "main", "image": "trainer"}
            spec = {"nodeName": name, "containers": [container], "terminationGracePeriodSeconds": 1}
            await client.request("POST", PODS, body={"metadata": {"name": "p"}, "spec": spec})
            await until(lambda: "default/p" in pods.store and pods.store["default/p"].status.phase == "Running")
            await client.request("DELETE", f"{PODS}/p")
            await until(lambda: "default/p" not in pods.store)
            assert pods.stats.relists == 1
            assert pods.stats.errors == nodes.stats.errors == 0

    run(own, scene)


def test_a_collection_larger_than_a_page_is_followed_in_step(own: Cluster) -> None:
    async def scene(client: ApiClient) -> None:
        for number in range(25):
            await client.request("POST", MAPS, body=config_map(f"many-{number}"))
        decode = msgspec.json.Decoder(ConfigMap).decode
        async with following(client, MAPS, decode, page_size=7) as maps:
            assert sum(key.startswith("default/many-") for key in maps.store) == 25
            await client.request("DELETE", f"{MAPS}/many-3")
            await until(lambda: "default/many-3" not in maps.store)
            assert maps.stats.relists == 1

    run(own, scene)


# asyncio leaves a transport to the collector when its server dies within the TLS handshake.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_reflector_catches_up_after_api_server_restart(own: Cluster) -> None:
    async def scene(client: ApiClient) -> None:
        decode = msgspec.json.Decoder(ConfigMap).decode
        gone: list[str] = []
        async with following(client, MAPS, decode) as maps:
            maps.subscribe(lambda key, old, new: gone.append(key) if new is None else None)
            await client.request("POST", MAPS, body=config_map("before", a="1"))
            await until(lambda: "default/before" in maps.store)
            await asyncio.to_thread(own.stop, "kube-apiserver")
            with pytest.raises(Unreachable):
                await client.get(MAPS)
            await asyncio.to_thread(own.start, "kube-apiserver")
            await client.request("DELETE", f"{MAPS}/before")
            await client.request("POST", MAPS, body=config_map("after"))
            await until(lambda: "default/after" in maps.store and "default/before" not in maps.store)
            assert gone.count("default/before") == 1
        await forgotten(client)

    run(own, scene)


async def forgotten(client: ApiClient) -> None:
    """After its restart the server does not know the beginning any more: a watch from there starts with a list."""
    async with client.stream(MAPS, {"watch": "true", "resourceVersion": "1"}) as lines:
        event = msgspec.json.decode(await anext(lines))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    maps: Reflector[Any] = Reflector(client, MAPS, msgspec.json.Decoder(ConfigMap).decode)
    maps._version = "1"
    task = asyncio.create_task(maps.run())
    await maps.synced()
    assert (maps.stats.relists, maps.stats.errors) == (1, 1)
    task.cancel()


class Turns:
    """Virtual seconds, which pass only while all tasks sleep, however long the API server takes to answer."""

    def __init__(self) -> None:
        self.now = 0.0
        self._asleep: dict[asyncio.Future[None], float] = {}
        """Time at which each sleep ends."""

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._asleep[woken] = self.now + seconds
        try:
            await woken
        finally:
            self._asleep.pop(woken, None)

    async def advance(self, seconds: float, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Let seconds pass for these tasks, the only ones that sleep; some may have ended."""
        end = self.now + seconds
        while True:
            await until(lambda: len(self._asleep) == sum(not task.done() for task in tasks))
            self.now = min([end, *self._asleep.values()])
            if self.now == end:
                return
            for woken in [one for one, at in self._asleep.items() if at <= self.now]:
                del self._asleep[woken]
                woken.set_result(None)


def test_one_candidate_leads_and_each_new_leader_has_higher_term(own: Cluster) -> None:
    seconds = 4 * int(WAIT_SECONDS)  # a request may take half of it, in real time
    settings = LeaseSettings("terms", seconds, seconds, renewal_seconds=seconds / 8, retry_seconds=seconds / 40)
    turns = Turns()

    async def scene(client: ApiClient) -> None:
        names = [f"pod-{i}" for i in range(4)]
        candidates = [Leadership(client, "default", i, settings, clock=turns, sleep=turns.sleep) for i in names]
        waiting = {asyncio.create_task(one.take(lambda: 0)): one for one in candidates}
        for term in range(1, len(candidates) + 1):
            while not (taken := [task for task in waiting if task.done()]):
                await turns.advance(settings.retry_seconds, waiting)
            (winner,) = taken
            leader = waiting.pop(winner)
            assert winner.result() == term
            assert [one.held for one in candidates] == [one is leader for one in candidates]
            keeping = asyncio.create_task(leader.keep())
            await turns.advance(2.5 * settings.duration_seconds, [keeping, *waiting])
            assert leader.held, "it renews"
            assert not any(task.done() for task in waiting)
            keeping.cancel()
            await asyncio.wait([keeping])
            if term % 2:  # the others fall silent, as if killed
                await leader.release()
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/terms"
        await client.request("DELETE", path)
        late = Leadership(client, "default", "late", settings)
        assert await late.take(lambda: 6) == 7

    run(own, scene)


def test_pod_is_absent_if_missing_or_foreign_after_an_answer(own: Cluster) -> None:
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": "u", "controller": True}
    spec = {"containers": [{"name": "c", "image": "x"}]}
    held: dict[str, Any] = {"name": "there", "labels": {"tranche.dev/job": "j"}, "ownerReferences": [owner]}
    held["finalizers"] = ["tranche.dev/ledger"]  # there is no such owner: garbage collection would remove it
    status, answer = own.request("POST", PODS, {"metadata": held, "spec": spec})
    assert status == 201, answer

    async def scene(client: ApiClient) -> None:
        told = asyncio.Event()
        checks = PodChecker(client, told.set)
        asking = asyncio.create_task(checks.run())
        assert not checks.confirmed_absent("default", "there", "u")
        assert not checks.confirmed_absent("default", "there", "of another job")
        await until(lambda: not checks._asked)
        assert told.is_set()
        assert checks.confirmed_absent("default", "there", "of another job")
        assert not checks.confirmed_absent("default", "there", "u")
        own.stop("kube-apiserver")
        assert not checks.confirmed_absent("default", "nowhere", "u")
        await until(lambda: not checks._asked)
        assert not checks.confirmed_absent("default", "nowhere", "u")
        own.start("kube-apiserver")
        await until(lambda: checks.confirmed_absent("default", "nowhere", "u"))
        seen = decode_pod(await client.get(f"{PODS}/there"))
        await until(lambda: checks.confirmed_unchanged(seen))
        patch = {"metadata": {"annotations": {"changed": "yes"}}}
        assert own.request("PATCH", f"{PODS}/there", patch, "application/merge-patch+json")[0] == 200
        assert not checks.confirmed_unchanged(seen)
        await until(lambda: not checks._asked)
        assert not checks.confirmed_unchanged(seen)
        asking.cancel()

    run(own, scene)
    patch = {"metadata": {"finalizers": None}}
    assert own.request("PATCH", f"{PODS}/there", patch, "application/merge-patch+json")[0] == 200
    assert own.request("DELETE", f"{PODS}/there")[0] in (200, 404)
