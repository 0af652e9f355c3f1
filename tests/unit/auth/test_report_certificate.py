"""Certificates of the report API: what is renewed when, and what the server and the workers load."""

import asyncio
import base64
import ssl
from asyncio import constants
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from cryptography import x509
from fastapi import FastAPI

from support.waiting import WAIT_SECONDS
from tranche.auth.certificate_keeper import CaPublisher, CertificateKeeper
from tranche.auth.report_certificate import CA_LIFETIME, CA_RESERVE, LIFETIME, renewed
from tranche.kube.client.client import ApiError
from tranche.runtime import server_tls
from tranche.runtime.connection_guard import ConnectionLimits
from tranche.runtime.http_server import serve
from tranche.runtime.server_tls import ServerTls
from tranche_testcluster import free_port
from tranche_worker.api_request import post
from tranche_worker.assignment import Assignment

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOSTS = ["tranche-reports.tranche-system.svc", "localhost"]
Data = dict[str, bytes]


def made(data: Data | None = None, now: datetime = NOW, hosts: list[str] = HOSTS) -> Data:
    fresh = renewed(data or {}, hosts, now)
    assert fresh is not None
    return fresh


def serial(data: Data) -> int:
    return x509.load_pem_x509_certificate(data["tls.crt"]).serial_number


def authorities(data: Data) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(data["ca.crt"])


def trusted(bundle: bytes, data: Data) -> bool:
    """Return whether a client with these CA certificates accepts the serving certificate."""
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:
            continue
        return True
    return False


def test_first_certificate_is_of_a_new_ca_and_for_the_hosts() -> None:
    data = made()
    (authority,) = authorities(data)
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == HOSTS
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc == NOW + LIFETIME


def test_certificate_is_renewed_after_two_thirds() -> None:
    data = made()
    assert renewed(data, HOSTS, NOW + timedelta(days=59)) is None
    later = made(data, NOW + timedelta(days=61))
    assert serial(later) != serial(data)
    assert later["ca.crt"] == data["ca.crt"]
    assert later["ca.key"] == data["ca.key"]


def test_certificate_for_other_hosts_is_renewed() -> None:
    data = made()
    assert made(data, hosts=["elsewhere"])["ca.crt"] == data["ca.crt"]


@pytest.mark.parametrize("field", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_unreadable_or_foreign_part_is_replaced(field: str) -> None:
    data = made()
    for broken in (b"", b"nonsense", made()[field]):
        assert trusted((fresh := made({**data, field: broken}))["ca.crt"], fresh)


def test_next_ca_is_published_before_it_signs() -> None:
    data, now = made(), NOW
    while len(authorities(data)) == 1:
        now += timedelta(days=61)
        data = made(data, now)
    assert timedelta(0) < authorities(data)[0].not_valid_after_utc - now < CA_RESERVE
    old, new = authorities(data)
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    certificate.verify_directly_issued_by(old)
    published, now = data["ca.crt"], now + timedelta(days=61)
    data = made(data, now)
    x509.load_pem_x509_certificate(data["tls.crt"]).verify_directly_issued_by(new)
    assert trusted(published, data), "pods that received both accept it"


def test_ca_from_the_future_is_replaced() -> None:
    data = made(now=NOW + timedelta(days=400))
    fresh = made(data)
    (authority,) = authorities(fresh)
    assert authority.not_valid_before_utc < NOW
    assert trusted(fresh["ca.crt"], fresh)


def test_expired_ca_is_dropped() -> None:
    data, now = made(), NOW
    while now < NOW + CA_LIFETIME + timedelta(days=61):
        now += timedelta(days=60, hours=1)
        data = made(data, now)
    assert all(authority.not_valid_after_utc > now for authority in authorities(data))
    assert trusted(data["ca.crt"], data)


class Objects:
    """A Secret and a ConfigMap, with the version check of the API server."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.before_write: list[Any] = []

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        kind = path.split("/")[-2]
        found = self.objects.setdefault(kind, {"metadata": {"resourceVersion": "1"}})
        if method == "GET":
            return {**found}
        if self.before_write:
            await self.before_write.pop()()
            found = self.objects[kind]
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        version = str(int(found["metadata"]["resourceVersion"]) + 1)
        self.objects[kind] = {**body, "metadata": {"resourceVersion": version}}
        self.writes.append(kind)
        return self.objects[kind]

    def server_time(self) -> float:
        return NOW.timestamp()

    def keeper(self, directory: Path) -> CertificateKeeper:
        directory.mkdir(exist_ok=True)
        return CertificateKeeper(self, "system", "secret", HOSTS, directory)  # type: ignore[arg-type]


def test_keeper_writes_the_files_and_publishes_the_ca(tmp_path: Path) -> None:
    objects = Objects()
    assert asyncio.run(objects.keeper(tmp_path).check())
    assert objects.objects["configmaps"]["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE")
    held = {name: base64.b64decode(text) for name, text in objects.objects["secrets"]["data"].items()}
    assert (tmp_path / "tls.crt").read_bytes() == held["tls.crt"]
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600
    assert ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key").reload()


def test_keeper_uses_the_clock_of_the_api_server(tmp_path: Path) -> None:
    asyncio.run(Objects().keeper(tmp_path).check())
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    assert certificate.not_valid_after_utc == NOW + LIFETIME


def test_second_check_writes_nothing(tmp_path: Path) -> None:
    objects = Objects()
    asyncio.run(objects.keeper(tmp_path).check())
    asyncio.run(objects.keeper(tmp_path).check())
    assert objects.writes == ["secrets", "configmaps"]


def test_replica_that_writes_later_uses_the_first_certificate(tmp_path: Path) -> None:
    objects = Objects()
    first, second = objects.keeper(tmp_path / "a"), objects.keeper(tmp_path / "b")

    async def scenario() -> None:
        objects.before_write.append(first.check)
        assert not await second.check()
        assert await second.check()

    asyncio.run(scenario())
    assert (tmp_path / "a" / "tls.crt").read_bytes() == (tmp_path / "b" / "tls.crt").read_bytes()


# ---- server and worker


@pytest.fixture(autouse=True)
def handshakes_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give other tests of this process the time limit of TLS handshakes back: a server sets that of the process."""
    monkeypatch.setitem(vars(constants), "SSL_HANDSHAKE_TIMEOUT", constants.SSL_HANDSHAKE_TIMEOUT)


def write(directory: Path, data: Data) -> ServerTls:
    for name, content in data.items():
        (directory / name).write_bytes(content)
    return ServerTls(directory / "tls.crt", directory / "tls.key")


def send(directory: Path, port: int) -> bytes:
    """Send a report as the worker library does."""
    environment = {"TRANCHE_CHECKPOINT_DIR": "/c", "TRANCHE_JOB": "ns/cats", "TRANCHE_ATTEMPT": "1"}
    mine = Assignment(
        job=environment["TRANCHE_JOB"],
        attempt=1,
        chunks=(),
        chunk_count=1,
        epochs=1,
        batches_per_chunk=1,
        resume={},
        checkpoint_directory=directory,
        authority=directory / "ca.crt",
    )
    return post(mine, f"https://localhost:{port}", "progress", {}, WAIT_SECONDS)


def over_tls(tls: ServerTls, scene: Any, limits: ConnectionLimits | None = None) -> None:
    app = FastAPI()

    @app.post("/v1/jobs/ns/cats/progress")
    async def receive() -> str:
        return "taken"

    async def whole() -> None:
        ports: asyncio.Queue[int] = asyncio.Queue()
        task = asyncio.create_task(serve(app, "127.0.0.1", 0, listening=ports.put_nowait, tls=tls, limits=limits))
        try:
            await scene(await ports.get())
        finally:
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(whole())


def test_worker_reports_over_tls(tmp_path: Path) -> None:
    tls = write(tmp_path, made(now=datetime.now(UTC)))

    async def scene(port: int) -> None:
        assert await asyncio.to_thread(send, tmp_path, port) == b'"taken"'

    over_tls(tls, scene)


def test_renewed_certificate_is_served_without_restart(tmp_path: Path) -> None:
    data = made(now=datetime.now(UTC))
    tls = write(tmp_path, data)

    def served(port: int) -> int:
        text = ssl.get_server_certificate(("localhost", port))
        return x509.load_pem_x509_certificate(text.encode()).serial_number

    async def scene(port: int) -> None:
        assert await asyncio.to_thread(served, port) == serial(data)
        later = made({**data, "tls.crt": b""}, datetime.now(UTC))
        write(tmp_path, later)
        assert tls.reload()
        assert await asyncio.to_thread(served, port) == serial(later)
        assert await asyncio.to_thread(send, tmp_path, port) == b'"taken"'

    over_tls(tls, scene)


def test_worker_refuses_a_server_of_another_ca(tmp_path: Path) -> None:
    tls = write(tmp_path, made(now=datetime.now(UTC)))

    async def scene(port: int) -> None:
        (tmp_path / "ca.crt").write_bytes(made()["ca.crt"])
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(send, tmp_path, port)

    over_tls(tls, scene)


def test_pair_that_does_not_match_is_not_loaded(tmp_path: Path) -> None:
    data = made(now=datetime.now(UTC))
    tls = write(tmp_path, data)
    assert tls.reload()
    (tmp_path / "tls.key").write_bytes(made()["tls.key"])
    assert tls.reload(), "the former pair stays in use"

    async def scene(port: int) -> None:
        assert await asyncio.to_thread(send, tmp_path, port) == b'"taken"'

    over_tls(tls, scene)


def test_server_does_not_listen_before_its_certificate(tmp_path: Path) -> None:
    tls = write(tmp_path, {"tls.crt": b"", "tls.key": b""})

    async def scene() -> None:
        port = free_port()
        task = asyncio.create_task(serve(FastAPI(), "127.0.0.1", port, tls=tls))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scene())


def test_first_pair_that_does_not_match_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = made(now=datetime.now(UTC))
    tls = write(tmp_path, {**data, "tls.key": made()["tls.key"]})
    assert not tls.reload()
    assert not tls.reload()
    (line,) = caplog.messages
    assert f"{tmp_path / 'tls.crt'} cannot be loaded" in line
    write(tmp_path, data)
    assert tls.reload()
    assert tls.is_loaded


def test_certificate_that_is_not_written_yet_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key")
    with caplog.at_level("INFO"):
        assert not tls.reload()
    (record,) = caplog.records
    assert (record.levelname, tls.is_loaded) == ("INFO", False)


def test_ca_that_is_no_text_does_not_end_the_publisher(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ca.crt").write_bytes(b"\x30\x82\xff")

    async def scene() -> None:
        task = asyncio.create_task(CaPublisher(Objects(), "system").follow(tmp_path / "ca.crt"))  # type: ignore[arg-type]
        while not caplog.messages and not task.done():
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()

    asyncio.run(scene())
    assert str(tmp_path / "ca.crt") in caplog.text


def test_connection_without_handshake_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_tls, "HANDSHAKE_SECONDS", 0.2)
    tls = write(tmp_path, made(now=datetime.now(UTC)))

    async def scene(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
        writer.close()
        assert await asyncio.to_thread(send, tmp_path, port) == b'"taken"'

    over_tls(tls, scene)


def test_connections_without_handshake_count_for_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_tls, "HANDSHAKE_SECONDS", 2 * WAIT_SECONDS)  # only the limits close a connection
    tls = write(tmp_path, made(now=datetime.now(UTC)))

    async def scene(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0)) for _ in range(9)]
        excess = silent[:5]  # the oldest give way, as connections without a request do
        for reader, _ in excess:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
        for _ in range(9):  # each one releases its place
            assert await asyncio.to_thread(send, tmp_path, port) == b'"taken"'
        assert not any(reader.at_eof() for reader, _ in silent[5:])
        for _, writer in silent:
            writer.close()

    over_tls(tls, scene, ConnectionLimits(total=8, per_peer=4))
