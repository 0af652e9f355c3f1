"""Reads of the cluster for a what-if."""

import asyncio
from typing import Any

import pytest

from tranche.client.api_session import Session
from tranche.client.errors import ClusterError
from tranche.client.what_if import read_cluster
from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError


class Refusing(ApiClient):
    """API server that refuses the list of pods at once and answers other requests later."""

    def __init__(self) -> None:
        self.pending = 0

    async def get(self, path: str, **_: str | int) -> bytes:
        if path.endswith("/pods"):
            raise ApiError(403, "Forbidden", "pods is forbidden")
        self.pending += 1
        try:
            await asyncio.sleep(0.01)
        finally:
            self.pending -= 1
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    async def request(self, *_: object, **__: object) -> Any:
        raise ApiError(404, "NotFound", "no Lease")


def test_a_refused_list_leaves_no_request_behind() -> None:
    async def pending_after_refusal() -> int:
        server = Refusing()
        with pytest.raises(ClusterError, match="which a test requires: pods is forbidden"):
            await read_cluster(Session(server), "tranche-system", "a test")
        return server.pending

    assert asyncio.run(pending_after_refusal()) == 0
