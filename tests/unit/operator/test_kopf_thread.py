"""Kopf in its thread."""

import asyncio
import getpass
import json
from pathlib import Path

import pytest

from tranche_operator.watch.kopf_thread import KopfThread

SECONDS = 30.0


def kubeconfig(folder: Path, port: int) -> str:
    """Write a kubeconfig for an API server on this port."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
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
        done, _ = await asyncio.wait([serving, request], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert done
        if serving in done:
            serving.result()
        serving.cancel()
        await asyncio.wait([serving])
        server.close()
        await server.wait_closed()

    monkeypatch.setattr(getpass, "getuser", unknown)
    asyncio.run(watched())
