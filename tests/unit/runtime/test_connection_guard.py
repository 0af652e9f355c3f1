"""Limits of connections, over real sockets."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from support.waiting import WAIT_SECONDS
from tranche.runtime.connection_guard import ConnectionLimits
from tranche.runtime.http_server import serve

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PATIENT = ConnectionLimits(total=4, per_peer=4, head_seconds=60.0, body_seconds=60.0)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OPENED: list[Connection] = []


async def answer(request: Request) -> PlainTextResponse:
    try:
        return PlainTextResponse(f"read {len(await request.body())}")
    except ClientDisconnect:
        return PlainTextResponse("gone", 400)


def serving(limits: ConnectionLimits | None, scene: Callable[[int], Awaitable[None]], host: str = "127.0.0.1") -> None:
    async def whole() -> None:
        ports: asyncio.Queue[int] = asyncio.Queue()
        app = Starlette(routes=[Route("/", answer, methods=["GET", "POST"])])
        task = asyncio.create_task(serve(app, host, 0, listening=ports.put_nowait, limits=limits))
        async with asyncio.timeout(WAIT_SECONDS):
            await scene(await ports.get())
        for _, writer in OPENED:
            writer.transport.abort()
        OPENED.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())


async def connect(port: int, address: str = "127.0.0.1") -> Connection:
    OPENED.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))
    return OPENED[-1]


async def is_closed(connection: Connection) -> bool:
    try:
        return await connection[0].read() == b""
    except ConnectionError:
        return True


async def is_answered(connection: Connection) -> bool:
    reader, writer = connection
    writer.write(REQUEST)
    return (await reader.readuntil(b"read 0")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"POST / HTT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"])
def test_a_slow_request_is_cut_off(sent: bytes) -> None:
    async def scene(port: int) -> None:
        connection = await connect(port)
        connection[1].write(sent)
        assert await is_closed(connection)

    serving(ConnectionLimits(head_seconds=0.1, body_seconds=0.1), scene)


def test_a_head_in_small_parts_has_one_time_limit() -> None:
    async def scene(port: int) -> None:
        connection = await connect(port)

        async def drip() -> None:
            for part in (b"G", b"E", b"T") * 1000:
                connection[1].write(part)
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await is_closed(connection)
        dripping.cancel()

    serving(ConnectionLimits(head_seconds=0.2), scene)


def test_a_connection_goes_on_after_an_answer() -> None:
    async def scene(port: int) -> None:
        connection = await connect(port)
        for _ in range(3):
            assert await is_answered(connection)
            await asyncio.sleep(0.15)

    serving(ConnectionLimits(head_seconds=0.1), scene)


def test_a_new_client_replaces_the_oldest_idle_connection() -> None:
    async def scene(port: int) -> None:
        idle = [await connect(port, f"127.0.1.{number}") for number in range(1, 5)]
        assert await is_answered(await connect(port))
        assert await is_closed(idle[0])
        assert await is_answered(idle[3])

    serving(PATIENT, scene)


def test_a_crowded_peer_loses_its_own_connections() -> None:
    async def scene(port: int) -> None:
        other = await connect(port, "127.0.1.9")
        crowd = [await connect(port) for _ in range(3)]
        assert await is_closed(crowd[0])
        assert await is_answered(other)

    serving(ConnectionLimits(total=10, per_peer=2, head_seconds=60.0), scene)


@pytest.mark.parametrize(("host", "limited"), [("0.0.0.0", True), ("", True), ("127.0.0.1", False)])
def test_addresses_besides_loopback_have_limits_by_default(host: str, limited: bool) -> None:
    async def scene(port: int) -> None:
        crowd = [await connect(port) for _ in range(ConnectionLimits().per_peer + 1)]
        assert await is_answered(crowd[-1])
        if limited:
            assert await is_closed(crowd[0])
        else:
            assert await is_answered(crowd[0])

    serving(None, scene, host)


def test_few_files_lower_the_limits() -> None:
    limits = ConnectionLimits().within(50)
    assert (limits.total, limits.per_peer) == (50, 25)
    assert ConnectionLimits().within(10**6) == ConnectionLimits()
