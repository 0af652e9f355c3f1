"""Kopf in its thread."""

import asyncio
import getpass
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from support.waiting import WAIT_SECONDS
from tranche_operator.watch.kopf_thread import CALLS_AT_ONCE, CallQueue, KopfThread
from tranche_testcluster.certificate import Authority


def kubeconfig(folder: Path, port: int, authority: Path | None = None) -> str:
    """Write a kubeconfig for an API server on this port, with TLS if its authority is given."""
    server = f"http{'s' if authority is not None else ''}://127.0.0.1:{port}"
    trust = {"certificate-authority": str(authority)} if authority is not None else {}
    cluster = {"name": "c", "cluster": {"server": server, **trust}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
    (folder / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    return str(folder / "config")


def test_watch_starts_for_a_user_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    async def watched() -> None:
        """Return when Kopf has sent a request, or raise the error that has stopped it."""
        requested = asyncio.Event()

        def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requested.set()
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        config = kubeconfig(tmp_path, server.sockets[0].getsockname()[1])
        serving = asyncio.create_task(KopfThread(config, lambda *_: None, lambda: None).serve())
        request = asyncio.create_task(requested.wait())
        done, _ = await asyncio.wait([serving, request], timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert done
        if serving in done:
            serving.result()
        serving.cancel()
        await asyncio.wait([serving])
        server.close()
        await server.wait_closed()

    monkeypatch.setattr(getpass, "getuser", unknown)
    asyncio.run(watched())


def test_watch_trusts_a_new_authority_of_the_api_server(tmp_path: Path) -> None:
    """The kubelet updates the file of the authority in each pod after the watch has read the former one."""
    former, present, file = Authority(), Authority(), tmp_path / "ca.crt"
    present.issue("server", hosts=["127.0.0.1"]).write(tmp_path / "server")
    file.write_bytes(former.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    async def scenario() -> None:
        refused, requested = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Let a client begin TLS; one that does not trust the certificate sends nothing then."""
            try:
                await writer.start_tls(context)
                sent = await reader.read(1)
            except OSError:
                sent = b""
            (requested if sent else refused).set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        config = kubeconfig(tmp_path, server.sockets[0].getsockname()[1], file)
        serving = asyncio.create_task(KopfThread(config, lambda *_: None, lambda: None).serve())
        async with asyncio.timeout(WAIT_SECONDS):
            await refused.wait()
            file.write_bytes(present.certificate)
            await requested.wait()
        serving.cancel()
        await asyncio.wait([serving])
        server.close()

    asyncio.run(scenario())


class Discovery:
    """An API server that answers Kopf's first requests, with an empty list of TrainingJobs."""

    def __init__(self) -> None:
        self.groups = [
            {"name": "tranche.dev", "versions": [{"version": "v1alpha1"}], "preferredVersion": {"version": "v1alpha1"}}
        ]
        self.listed, self.refused, self.is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.refusal: dict[str, str] = {}
        """Headers of the first response to a list, with status 429; empty: a list."""
        self.watches: asyncio.Queue[float] = asyncio.Queue()
        """Times at which watches began."""

    def body(self, path: str) -> object:
        """Return the body of a response."""
        verbs = ["list", "watch"]
        kinds: dict[str, dict[str, object]] = {
            "/api/v1": {"name": "namespaces", "kind": "Namespace", "singularName": "namespace", "namespaced": False},
            "/apis/tranche.dev/v1alpha1": {
                "name": "trainingjobs",
                "kind": "TrainingJob",
                "singularName": "trainingjob",
                "namespaced": True,
            },
        }
        if path in kinds:
            return {"resources": [kinds[path] | {"verbs": verbs}]}
        if path == "/apis":
            return {"groups": self.groups}
        return {"versions": ["v1"]} if path == "/api" else {"metadata": {"resourceVersion": "5"}, "items": []}

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to any request; a watch ends with the test."""
        if "watch" in request.query:
            self.watches.put_nowait(time.monotonic())
            response = web.StreamResponse()
            await response.prepare(request)
            await self.is_over.wait()
            return response
        if request.path.endswith("/trainingjobs") and self.refusal and not self.refused.is_set():
            self.refused.set()
            return web.Response(status=429, headers=self.refusal)
        if request.path.endswith("/trainingjobs"):
            self.listed.set()
        return web.json_response(self.body(request.path))


@asynccontextmanager
async def kopf_watches(folder: Path, api: Discovery) -> AsyncIterator["asyncio.Task[None]"]:
    """Run Kopf against an API server."""
    runner = web.ServerRunner(web.Server(api.respond))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = kubeconfig(folder, runner.addresses[0][1])
    serving = asyncio.create_task(KopfThread(config, lambda *_: None, lambda: None).serve())
    try:
        yield serving
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        api.is_over.set()
        await runner.cleanup()


def test_watch_that_finds_no_jobs_in_the_discovery_fails(tmp_path: Path) -> None:
    """Kopf looks once for the resources; another API server may not serve a new CRD yet, or not again."""

    async def scenario() -> None:
        api = Discovery()
        api.groups = []
        async with kopf_watches(tmp_path, api) as serving:
            with pytest.raises(RuntimeError, match="does not list TrainingJobs"):
                await asyncio.wait_for(asyncio.shield(serving), WAIT_SECONDS)

    asyncio.run(scenario())


def test_watch_that_finds_the_jobs_lists_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        api = Discovery()
        async with kopf_watches(tmp_path, api) as serving:
            await asyncio.wait_for(api.listed.wait(), WAIT_SECONDS)
            assert not serving.done()

    asyncio.run(scenario())


@pytest.mark.parametrize("asked", ["86400", "Fri, 27 Nov 2026 08:00:00 GMT", "1 day"])
def test_long_pause_that_a_proxy_names_is_not_waited_for(tmp_path: Path, asked: str) -> None:
    async def scenario() -> None:
        api = Discovery()
        api.refusal = {"Retry-After": asked}
        async with kopf_watches(tmp_path, api) as serving:
            await asyncio.wait_for(api.refused.wait(), WAIT_SECONDS)
            await asyncio.wait_for(api.listed.wait(), WAIT_SECONDS)
            assert not serving.done()

    asyncio.run(scenario())


def test_watches_that_end_at_once_begin_a_second_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        api = Discovery()
        api.is_over.set()
        async with kopf_watches(tmp_path, api), asyncio.timeout(WAIT_SECONDS):
            begins = [await api.watches.get() for _ in range(3)]
        assert begins[2] - begins[0] > 1.9

    asyncio.run(scenario())


def put_numbers(calls: CallQueue, ran: list[int], count: int) -> None:
    """Put the calls that append 0 to `count` - 1."""
    for number in range(count):
        calls.put(ran.append, number)


def test_calls_run_in_order_with_one_wake_up() -> None:
    async def scenario() -> tuple[list[int], int]:
        loop, ran, wakes = asyncio.get_running_loop(), list[int](), 0
        wake, count = loop.call_soon_threadsafe, 3 * CALLS_AT_ONCE

        def counted(*arguments: object) -> object:
            nonlocal wakes
            wakes += 1
            return wake(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[assignment, method-assign]
        calls = CallQueue(loop)
        thread = threading.Thread(target=put_numbers, args=(calls, ran, count))
        thread.start()
        thread.join()
        while len(ran) < count:
            await asyncio.sleep(0)
        return ran, wakes

    ran, wakes = asyncio.run(scenario())
    assert (ran, wakes) == (list(range(3 * CALLS_AT_ONCE)), 1)


def test_calls_beside_a_running_loop_are_all_run() -> None:
    async def scenario() -> list[int]:
        calls, ran = CallQueue(asyncio.get_running_loop()), list[int]()
        threading.Thread(target=put_numbers, args=(calls, ran, 20_000)).start()
        async with asyncio.timeout(WAIT_SECONDS):
            while len(ran) < 20_000:
                await asyncio.sleep(0)
        return ran

    assert asyncio.run(scenario()) == list(range(20_000))


def test_call_that_fails_does_not_stop_the_next_ones() -> None:
    async def scenario() -> tuple[list[str], list[bool]]:
        loop, errors, ran = asyncio.get_running_loop(), list[object](), list[str]()
        loop.set_exception_handler(lambda _loop, context: errors.append(context.get("exception")))
        calls, error = CallQueue(loop), ValueError("bad job")

        def fail() -> None:
            raise error

        calls.put(fail)
        calls.put(ran.append, "next")
        async with asyncio.timeout(WAIT_SECONDS):
            while not ran:
                await asyncio.sleep(0)
        return ran, [each is error for each in errors]

    assert asyncio.run(scenario()) == (["next"], [True])
