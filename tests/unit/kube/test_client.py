import asyncio
import json
import ssl
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config

from support.fake_api_server import FakeApi, kubeconfig, run
from tranche.kube.client.client import ApiClient, ApiError, Unreachable
from tranche.kube.client.credentials import REFRESH_SECONDS, Credentials
from tranche_testcluster.certificate import Authority

PATH = "/api/v1/pods"
FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota", "code": 403}


def test_a_request_returns_the_object(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers.append((201, {"kind": "Pod"}, {}))
        async with ApiClient.connect(config) as client:
            assert await client.request("POST", PATH, body={"a": 1}, params={"dryRun": "All"}) == {"kind": "Pod"}
        assert api.requests == [{"dryRun": "All"}]
        assert api.bodies == [b'{"a":1}']
        assert api.headers[0]["Content-Type"] == "application/json"
        assert api.headers[0]["Authorization"] == "Bearer secret"

    run(tmp_path, scenario)


def test_bytes_are_sent_as_they_are_and_a_get_returns_them(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [(200, {}, {}), (200, "ok", {})]
        async with ApiClient.connect(config) as client:
            await client.request("PATCH", PATH, body=b"[1]", content_type="application/json-patch+json")
            assert await client.get("/readyz", verbose="true") == b"ok"
        assert api.bodies[0] == b"[1]"
        assert api.headers[0]["Content-Type"] == "application/json-patch+json"
        assert api.requests[1] == {"verbose": "true"}

    run(tmp_path, scenario)


def test_apply_is_forced_and_names_its_manager(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers.append((200, {}, {}))
        async with ApiClient.connect(config) as client:
            await client.apply(PATH + "/a/status", {"status": {}}, "tranche-scheduler")
        assert api.requests == [{"fieldManager": "tranche-scheduler", "force": "true", "fieldValidation": "Ignore"}]
        assert api.headers[0]["Content-Type"] == "application/apply-patch+yaml"

    run(tmp_path, scenario)


@pytest.mark.parametrize("ahead", [-3600.0, -10.0, 0.0, 0.4, 10.0, 3600.0])
def test_server_time_is_that_of_the_api_server(tmp_path: Path, ahead: float) -> None:
    """Within a second, because responses have whole seconds; a difference below a second is none."""

    async def scenario(api: FakeApi, config: str) -> None:
        async with ApiClient.connect(config) as client:
            late = 1.0
            while late > 0.25:  # the date of a response that comes later is that of an earlier time
                began = time.time()
                api.answers.append((200, {}, {"Date": formatdate(began + ahead, usegmt=True)}))
                await client.get(PATH)
                late = time.time() - began
            before, shown, after = time.time(), client.server_time(), time.time()
            assert before + ahead - 1.5 <= shown <= after + ahead + 1.5
            if abs(ahead) < 0.5:
                assert before <= shown <= after

    run(tmp_path, scenario)


@pytest.mark.parametrize("date", ["", "soon", "Thu, 99 Nov 2026 07:51:14 GMT"])
def test_response_without_a_readable_date_changes_no_time(tmp_path: Path, date: str) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        async with ApiClient.connect(config) as client:
            api.answers.append((200, {}, {"Date": date}))
            await client.get(PATH)
            before, shown, after = time.time(), client.server_time(), time.time()
            assert before - 1.0 <= shown <= after + 1.0

    run(tmp_path, scenario)


def test_observer_gets_status_of_every_request_or_zero(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [(200, {}, {}), (409, {}, {})]
        seen: list[tuple[str, int]] = []
        async with ApiClient.connect(config) as client:
            client.observe = lambda method, status, seconds: seen.append((method, status))
            await client.request("GET", PATH)
            with pytest.raises(ApiError):
                await client.request("POST", PATH, body={})
        assert seen == [("GET", 200), ("POST", 409)]
        stranger = tmp_path / "stranger"
        stranger.write_text(json.dumps(kubeconfig("http://127.0.0.1:1")))
        async with ApiClient.connect(str(stranger)) as client:
            client.observe = lambda method, status, seconds: seen.append((method, status))
            with pytest.raises(Unreachable):
                await client.request("GET", PATH)
        assert seen[2:] == [("GET", 0)]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("answer", "status", "reason", "message", "retry_after"),
    [
        ((403, FORBIDDEN, {}), 403, "Forbidden", "exceeded quota", None),
        ((429, {"reason": "TooMany", "details": {"retryAfterSeconds": 3}}, {}), 429, "TooMany", "", 3.0),
        ((429, "slow down", {"Retry-After": "7"}), 429, "Too Many Requests", "slow down", 7.0),
        ((503, "<html>", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), 503, "Service Unavailable", "<html>", None),
        ((302, "", {"Location": "/elsewhere"}), 302, "Found", "", None),
    ],
)  # fmt: skip
def test_api_error_has_status_reason_message_and_retry_after(
    tmp_path: Path, answer: Any, status: int, reason: str, message: str, retry_after: float | None
) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers.append(answer)
        async with ApiClient.connect(config) as client:
            with pytest.raises(ApiError) as caught:
                await client.request("POST", PATH, body={})
        error = caught.value
        assert (error.status, error.reason, error.message, error.retry_after) == (status, reason, message, retry_after)
        assert not isinstance(error, Unreachable)
        assert str(status) in str(error)

    run(tmp_path, scenario)


def test_no_answer_is_unreachable(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        Path(config).write_text(json.dumps(kubeconfig("http://127.0.0.1:1")))
        async with ApiClient.connect(config) as client:
            with pytest.raises(Unreachable, match="/api/v1/pods") as caught:
                await client.get(PATH)
            assert caught.value.status == 0

    run(tmp_path, scenario)


def test_a_late_answer_is_unreachable(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        async with ApiClient.connect(config) as client:
            with pytest.raises(Unreachable, match="TimeoutError"):  # the watch never ends
                await client.request("GET", PATH, params={"watch": "true", "resourceVersion": "0"}, timeout=0.05)

    run(tmp_path, scenario)


def test_an_answer_that_is_no_object_is_unreachable(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers.append((200, "not JSON", {}))
        async with ApiClient.connect(config) as client:
            with pytest.raises(Unreachable, match="NotJson"):
                await client.request("GET", PATH)

    run(tmp_path, scenario)


def test_after_a_401_the_credentials_are_read_again(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [(401, {"reason": "Unauthorized"}, {}), (200, {}, {}), (401, {}, {}), (401, {}, {})]
        async with ApiClient.connect(config) as client:
            Path(config).write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{api.port}", token="renewed")))
            await client.request("GET", PATH)
            assert [h["Authorization"] for h in api.headers] == ["Bearer secret", "Bearer renewed"]
            with pytest.raises(ApiError, match="401"):
                await client.request("GET", PATH)

    run(tmp_path, scenario)


def test_a_stream_yields_lines_however_they_are_cut(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        long = "x" * 300_000
        api.answers.append((200, f"one\n\n{long}\nunfinished", {}))
        async with ApiClient.connect(config) as client, client.stream(PATH, {}) as lines:
            assert [len(line) async for line in lines] == [3, 300_000]

    run(tmp_path, scenario)


def test_a_broken_stream_is_unreachable(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.put("a")
        params = {"watch": "true", "resourceVersion": "0"}
        async with ApiClient.connect(config) as client, client.stream(PATH, params) as lines:
            assert json.loads(await anext(lines))["type"] == "ADDED"
            await api.cut()
            with pytest.raises(Unreachable):
                await anext(lines)

    run(tmp_path, scenario)


def test_a_silent_stream_is_unreachable(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        params = {"watch": "true", "resourceVersion": "0"}
        async with ApiClient.connect(config) as client, client.stream(PATH, params, inactivity=0.05) as lines:
            with pytest.raises(Unreachable):
                await anext(lines)

    run(tmp_path, scenario)


def test_an_error_of_the_reader_stays_its_own(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        params = {"watch": "true", "resourceVersion": "0"}
        async with ApiClient.connect(config) as client:
            with pytest.raises(FileNotFoundError):
                async with client.stream(PATH, params):
                    raise FileNotFoundError

    run(tmp_path, scenario)


def test_stream_left_early_is_broken_off_without_the_server(tmp_path: Path) -> None:
    """A server that reads nothing more would delay an orderly end of TLS, beyond the end of a command's event loop."""
    authority = Authority()
    authority.issue("server", hosts=["127.0.0.1"]).write(tmp_path / "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    async def turns() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def scenario() -> None:
        accepted: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        config = tmp_path / "config"
        content = kubeconfig(f"https://127.0.0.1:{port}")
        content["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        config.write_text(json.dumps(content))
        async with ApiClient.connect(str(config)) as client:
            async with client.stream(PATH, {}) as lines:
                assert await anext(lines) == b"one"
                transport = lines.ag_frame.f_locals["response"].connection.transport  # type: ignore[attr-defined]
                connection = transport.get_extra_info("socket")
            await turns()
            assert connection.fileno() == -1
        accepted[0].transport.abort()
        server.close()
        await turns()

    asyncio.run(scenario())


def test_replaced_authority_of_the_api_server_is_read_again(tmp_path: Path) -> None:
    """The kubelet updates the file of the authority in each pod; the process has read the former one."""
    former, present = Authority(), Authority()
    present.issue("server", hosts=["127.0.0.1"]).write(tmp_path / "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        content = kubeconfig(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        content["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "ca.crt")
        config = tmp_path / "config"
        config.write_text(json.dumps(content))
        (tmp_path / "ca.crt").write_bytes(former.certificate)
        async with ApiClient.connect(str(config)) as client:
            with pytest.raises(Unreachable, match="Certificate"):
                await client.request("GET", PATH)
            (tmp_path / "ca.crt").write_bytes(present.certificate)
            assert await client.request("GET", PATH) == {}
        server.close()

    asyncio.run(scenario())


def test_a_missing_configuration_says_so(tmp_path: Path) -> None:
    async def connect() -> None:
        async with ApiClient.connect(str(tmp_path / "absent")):
            pass

    with pytest.raises(Unreachable, match=r"NoConfiguration.*the kubeconfig .*/absent does not exist"):
        asyncio.run(connect())


def test_exec_plugin_token_is_renewed_when_it_expires(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    counter = tmp_path / "calls"
    plugin.write_text(
        f"#!/bin/sh\necho x >> {counter}\ncalls=$(wc -l < {counter})\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":'
        '{"token":"t\'"$calls"\'","expirationTimestamp":"2020-01-01T00:00:00Z"}}\'\n'
    )
    plugin.chmod(0o755)
    config = tmp_path / "kubeconfig"
    asks = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    config.write_text(json.dumps(kubeconfig("http://127.0.0.1:1", exec=asks)))
    now = 0.0

    async def ask() -> list[str]:
        nonlocal now
        credentials = Credentials(str(config), clock=lambda: now)
        await credentials.renew()
        first, again = await credentials.headers(), await credentials.headers()
        now += REFRESH_SECONDS
        later = await credentials.headers()
        return [headers["Authorization"] for headers in (first, again, later)]

    first, again, later = asyncio.run(ask())
    assert first == again
    assert later != first


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    authority.write_bytes(Authority().certificate)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    async def load() -> None:
        credentials = await Credentials.load()
        assert credentials.host == "https://[::1]:443"
        assert await credentials.headers() == {"Authorization": "bearer first"}
        assert "ssl" in credentials.connection
        authority.write_text("no certificate")
        with pytest.raises(Unreachable, match="NoConfiguration"):
            await credentials.renew()

    asyncio.run(load())


def test_request_cancelled_by_other_code_is_a_failed_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        async def give_up(*_: object, **__: object) -> None:
            raise asyncio.CancelledError

        async with ApiClient.connect(config) as client:
            monkeypatch.setattr(client._session, "request", give_up)
            with pytest.raises(Unreachable, match="the connection was cancelled"):
                await client.request("GET", PATH)

    run(tmp_path, scenario)


def test_cancelled_caller_of_a_pending_request_is_cancelled(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        async with ApiClient.connect(config) as client:
            task = asyncio.create_task(client.request("GET", PATH, params={"watch": "true", "resourceVersion": "0"}))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(tmp_path, scenario)
