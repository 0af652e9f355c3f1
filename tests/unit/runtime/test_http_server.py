import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from fastapi import FastAPI

from support.extender_objects import Stores
from tranche.extender.app import create_app
from tranche.metrics.scheduler import Metrics
from tranche.runtime.http_server import ListenError, listen, serve


def serving(scene: Callable[[int], Awaitable[None]], app: FastAPI | None = None) -> None:
    async def whole() -> None:
        ports: asyncio.Queue[int] = asyncio.Queue()
        made = app or create_app(Stores(["n1"]), Metrics(), list)
        task = asyncio.create_task(serve(made, "127.0.0.1", 0, listening=ports.put_nowait))
        await scene(await ports.get())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())


def test_many_requests_go_over_one_connection() -> None:
    async def scene(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            body = b'{"Pod": {}, "NodeNames": ["n1"]}'
            head = f"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            writer.write(head + body)
            answer = await reader.readuntil(b'"Error":""}')
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b"connection: close" not in answer.lower()
        writer.close()

    serving(scene)


def test_signals_are_left_to_the_one_who_runs_the_loop() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def scene(port: int) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.status == 200
        assert signal.getsignal(signal.SIGTERM) is before

    serving(scene)


def test_a_request_under_way_is_finished_when_we_stop() -> None:
    began, go = asyncio.Event(), asyncio.Event()
    app = FastAPI()

    @app.get("/slow")
    async def slow() -> str:
        began.set()
        await go.wait()
        return "done"

    async def whole() -> None:
        ports: asyncio.Queue[int] = asyncio.Queue()
        task = asyncio.create_task(serve(app, "127.0.0.1", 0, listening=ports.put_nowait))
        async with aiohttp.ClientSession() as session:
            answer = asyncio.create_task(session.get(f"http://127.0.0.1:{await ports.get()}/slow"))
            await began.wait()
            task.cancel()
            go.set()
            assert (await answer).status == 200
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())


def test_a_client_that_hangs_up_within_its_body_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(port: int) -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.status == 200

    with caplog.at_level("ERROR"):
        serving(scene)
    assert not caplog.records


def test_a_port_in_use_is_an_error() -> None:
    message = r"cannot listen on 127.0.0.1:\d+: Address already in use"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ListenError, match=message):
        asyncio.run(serve(FastAPI(), "127.0.0.1", taken.getsockname()[1]))


def test_no_answer_waits_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as _client:
        accepted, _address = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_empty_host_accepts_connections_of_both_families(address: str) -> None:
    with listen("", 0) as listener:
        socket.create_connection((address, listener.getsockname()[1])).close()
