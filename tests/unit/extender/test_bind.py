"""Binding pods for kube-scheduler, against an API server whose answers the test sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.fake_api_server import FakeApi, run
from tranche.extender.bind import bind
from tranche.extender.wire_format import Binding, MalformedError, decode_binding
from tranche.kube.client.client import ApiClient

ASKED = Binding("cats-worker-0-1", "ns", "u-1", "n1")
CONFLICT: tuple[int, dict[str, Any], dict[str, str]] = (409, {"reason": "Conflict", "message": "assigned already"}, {})


def pod(uid: str, node: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    return 200, {"metadata": {"uid": uid}, "spec": {"nodeName": node, "containers": []}}, {}


def test_bind_sends_pod_uid_and_target_node(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers.append((201, {}, {}))
        async with ApiClient.connect(config) as client:
            assert await bind(client, ASKED) == ""
        sent = json.loads(api.bodies[-1])
        assert sent["metadata"] == {"name": "cats-worker-0-1", "namespace": "ns", "uid": "u-1"}
        assert sent["target"]["name"] == "n1"

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("uid", "node", "success"), [("u-1", "n1", True), ("u-1", "n2", False), ("u-2", "n1", False), ("u-1", "", False)]
)
def test_only_the_same_pod_on_the_same_node_is_bound_already(
    tmp_path: Path, uid: str, node: str, success: bool
) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [CONFLICT, pod(uid, node)]
        async with ApiClient.connect(config) as client:
            text = await bind(client, ASKED)
        assert (text == "") == success
        assert success or "assigned already" in text

    run(tmp_path, scenario)


def test_bind_refusal_and_bind_timeout_are_errors(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [(404, {"reason": "NotFound", "message": "no such pod"}, {})]
        async with ApiClient.connect(config) as client:
            assert "no such pod" in await bind(client, ASKED)
            assert await bind(client, ASKED, seconds=0.0001)

    run(tmp_path, scenario)


@pytest.mark.parametrize("name", ["", "../secrets/x", "a/b", "-a", "a" * 254, "a\n"])
@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_name_that_is_none_never_gets_into_a_path(field: str, name: str) -> None:
    body = {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": "d", field: name}
    with pytest.raises(MalformedError, match=field):
        decode_binding(json.dumps(body).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"PodName": 3}'])
def test_a_body_that_is_none_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_binding(body)
