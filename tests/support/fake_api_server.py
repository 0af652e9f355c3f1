"""Fake API server of one collection, over real HTTP, with configurable faults."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from support.waiting import WAIT_SECONDS

PATH = "/api/v1/pods"


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.oldest = 0
        self.log: list[dict[str, Any]] = []
        self.requests: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.answers: list[tuple[int, dict[str, Any] | str, dict[str, str]]] = []
        self.between_pages: Callable[[], None] | None = None
        self.unanswered: str | None = None
        """Beginning of the paths whose requests get no answer."""
        self.held = 0
        """Number of these requests."""
        self.silent = False
        self.is_brief = False
        """Whether watches end at once."""
        self.answers_lists = asyncio.Event()
        """Lists are answered while this is set."""
        self.answers_lists.set()
        self.refused_lists = 0
        """Number of the next lists that are answered with status 429."""
        self.port = 0
        self._changed = asyncio.Event()
        self._transports: set[asyncio.Transport] = set()

    # ---- actions of the cluster

    def put(self, name: str, uid: str = "", **spec: Any) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": meta, "spec": spec}
        self._record(kind, self.objects[name])

    def remove(self, name: str) -> None:
        self.version += 1
        gone = self.objects.pop(name)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        self._record("DELETED", gone)

    def bookmark(self) -> None:
        self.version += 1
        self._record("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def say(self, line: str) -> None:
        self._record("", {"line": line})

    def forget(self) -> None:
        """Compact: refuse watches and continued lists from before now."""
        self.oldest = self.version + 1
        self.version += 1

    def restore(self, version: int) -> None:
        """Return to an earlier version, as from a backup of etcd: later objects are gone, and their versions reused."""
        self.log = [entry for entry in self.log if entry["at"] <= version]
        self.version = version
        self.objects = {}
        for entry in self.log:
            name = entry["object"]["metadata"].get("name")
            if entry["type"] == "DELETED":
                del self.objects[name]
            elif name is not None:
                self.objects[name] = entry["object"]

    async def cut(self) -> None:
        """Break the connections of all watches, once there is one."""
        while not self._transports:
            await asyncio.sleep(0)
        for transport in self._transports:
            transport.abort()

    def _record(self, kind: str, thing: dict[str, Any]) -> None:
        self.log.append({"type": kind, "object": thing, "at": self.version})
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- HTTP

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        if self.unanswered is not None and request.path.startswith(self.unanswered):
            self.held += 1
            await asyncio.Event().wait()
        if self.answers:
            status, body, headers = self.answers.pop(0)
            text = body if isinstance(body, str) else json.dumps(body)
            return web.Response(status=status, text=text, headers=headers)
        if "watch" in request.query:
            return await self._watch(request)
        if self.refused_lists:
            self.refused_lists -= 1
            return web.json_response({"reason": "TooManyRequests"}, status=429)
        await self.answers_lists.wait()
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        names = sorted(self.objects)
        offset, at = 0, self.version
        if token := request.query.get("continue"):
            offset, at = (int(part) for part in token.split("."))
            if at < self.oldest:
                return web.json_response(expired(), status=410)
        limit = int(request.query.get("limit", len(names) or 1))
        meta: dict[str, Any] = {"resourceVersion": str(at)}
        if offset + limit < len(names):
            meta["continue"] = f"{offset + limit}.{at}"
        answer = {"metadata": meta, "items": [self.objects[name] for name in names[offset : offset + limit]]}
        response = web.json_response(answer)
        if self.between_pages and "continue" in meta:
            self.between_pages()
        return response

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if self.is_brief:
            return response
        assert isinstance(request.transport, asyncio.Transport)
        self._transports.add(transport := request.transport)
        try:
            if since < self.oldest:
                await response.write(line("ERROR", expired()))
                return response
            position = 0
            while True:
                changed = self._changed
                for entry in self.log[position:]:
                    if entry["at"] > since and not self.silent:
                        text = entry["object"].get("line")
                        await response.write(f"{text}\n".encode() if text else line(entry["type"], entry["object"]))
                position = len(self.log)
                await changed.wait()
        finally:
            self._transports.discard(transport)


def line(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def expired() -> dict[str, Any]:
    return {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


Scenario = Callable[[FakeApi, str], Awaitable[None]]


def run(folder: Path, scenario: Scenario) -> None:
    """Run a scenario against a fake API server; it receives the server and the path of a kubeconfig."""

    async def whole() -> None:
        api = FakeApi()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", api.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        api.port = runner.addresses[0][1]
        config = folder / "kubeconfig"
        config.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{api.port}")))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await scenario(api, str(config))
        finally:
            await runner.cleanup()

    asyncio.run(whole())


def kubeconfig(server: str, **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
