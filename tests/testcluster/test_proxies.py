"""The fault proxy in front of a small HTTP server: it injects exactly the faults that a test sets."""

import gc
import http.client
import json
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.waiting import WAIT_SECONDS, eventually, stays
from tranche_testcluster.certificate import Authority
from tranche_testcluster.fault_proxy import FaultProxy, Faults

REQUESTS = 200
SEED = 7
ANSWER = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"kind": "Pod"}'


class Upstream(BaseHTTPRequestHandler):
    """Answers with what it was asked; a watch gets a line whenever the test says so."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, bytes, str]]
    lines: threading.Semaphore

    def do_GET(self) -> None:
        if "watch=" not in self.path:
            self.do_POST()
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while self.lines.acquire():
            try:
                self.wfile.write(b"5\r\nline\n\r\n")
            except OSError:
                return

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append((self.command, self.path, body, self.headers.get("Authorization", "")))
        self.wfile.write(ANSWER)

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[type[Upstream]]:
    kind: Any = type("Mine", (Upstream,), {"seen": [], "lines": threading.Semaphore(0)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True).start()
    kind.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield kind
    kind.lines.release(100)
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(upstream: Any) -> Iterator[FaultProxy]:
    with FaultProxy(upstream.url, seed=SEED) as made:
        yield made


def connect(proxy: FaultProxy, timeout: float = WAIT_SECONDS) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(proxy.url.partition("://")[2], timeout=timeout)


def ask(
    proxy: FaultProxy, method: str = "POST", path: str = "/api/v1/pods", timeout: float = WAIT_SECONDS
) -> tuple[int, Any]:
    """Status and answer; 0 if the connection broke."""
    connection = connect(proxy, timeout)
    try:
        connection.request(method, path, b"body" if method != "GET" else None, {"Authorization": "Bearer me"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    except (ConnectionError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


def test_without_faults_requests_and_answers_pass_as_they_are(proxy: FaultProxy, upstream: type[Upstream]) -> None:
    assert ask(proxy, "PATCH", "/api/v1/pods/a%2Fb?fieldManager=x%20y&force=true") == (201, {"kind": "Pod"})
    assert upstream.seen == [("PATCH", "/api/v1/pods/a%2Fb?fieldManager=x%20y&force=true", b"body", "Bearer me")]


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_refused_share_of_writes_looks_real_and_is_not_forwarded(
    proxy: FaultProxy, upstream: type[Upstream], status: int
) -> None:
    proxy.faults = Faults(refusals={status: 0.25})
    answers = [ask(proxy) for _ in range(REQUESTS)]
    refused = [body for got, body in answers if got == status]
    assert 0.15 * REQUESTS < len(refused) < 0.35 * REQUESTS
    assert {body["code"] for body in refused} == {status}
    assert len(upstream.seen) == REQUESTS - len(refused)
    assert proxy.counts[f"refused {status}"] == len(refused)


def test_reads_are_refused_only_if_that_is_asked_for(proxy: FaultProxy) -> None:
    proxy.faults = Faults(refusals={503: 1.0})
    assert ask(proxy, "GET")[0] == 201
    proxy.faults = Faults(refusals={503: 1.0}, refuse_reads=True)
    assert ask(proxy, "GET")[0] == 503


def test_broken_request_is_not_forwarded_and_unanswered_one_is(proxy: FaultProxy, upstream: type[Upstream]) -> None:
    proxy.faults = Faults(broken=1.0)
    assert ask(proxy) == (0, None)
    assert upstream.seen == []
    proxy.faults = Faults(unanswered=1.0)
    assert ask(proxy) == (0, None)
    assert len(upstream.seen) == 1
    assert ask(proxy, "GET")[0] == 201, "reads have nothing to carry out"


def test_a_late_request_arrives_though_its_client_is_gone(proxy: FaultProxy, upstream: type[Upstream]) -> None:
    proxy.faults = Faults(delay_seconds=(2.0, 2.1))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ask(proxy, timeout=0.1)
    eventually(lambda: upstream.seen, "the request arrives", pause=0.01)
    assert time.monotonic() - began >= 2.0


def test_silent_proxy_forwards_nothing_and_resumes_afterwards(proxy: FaultProxy, upstream: type[Upstream]) -> None:
    watch = connect(proxy)
    watch.request("GET", "/api/v1/pods?watch=true")
    stream = watch.getresponse()
    upstream.lines.release()
    assert stream.readline() == b"line\n"
    proxy.faults = Faults(silent=True)
    upstream.lines.release()
    got: list[Any] = []
    for work in (lambda: got.append(stream.readline()), lambda: got.append(ask(proxy))):
        threading.Thread(target=work, daemon=True).start()
    stays(lambda: not got and not upstream.seen, "something came through", seconds=0.3)
    proxy.faults = Faults()
    eventually(lambda: len(got) == 2, "both go on", pause=0.01)
    assert b"line\n" in got
    assert (201, {"kind": "Pod"}) in got
    watch.close()


def test_cutting_breaks_all_watches_and_nothing_else(proxy: FaultProxy, upstream: type[Upstream]) -> None:
    watches = [connect(proxy) for _ in range(3)]
    streams = []
    for watch in watches:
        watch.request("GET", "/api/v1/pods?watch=true")
        streams.append(watch.getresponse())
    assert proxy.cut() == 3
    for stream in streams:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            stream.read()
    assert ask(proxy)[0] == 201
    assert proxy.cut() == 0, "the proxy holds on to a watch without a client"
    for watch in watches:
        watch.close()


def test_a_server_that_is_gone_looks_as_it_does_without_a_proxy() -> None:
    with FaultProxy("http://127.0.0.1:1") as proxy:
        assert ask(proxy) == (0, None)


def test_it_speaks_tls_when_it_has_a_certificate(upstream: Any, tmp_path: Path) -> None:
    authority = Authority()
    authority.issue("server", hosts=("127.0.0.1",)).write(tmp_path / "server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    with FaultProxy(upstream.url, serving=serving) as inner, FaultProxy(inner.url, trusting=trusting) as outer:
        assert inner.url.startswith("https://")
        assert ask(outer)[0] == 201


def test_no_connection_outlives_the_proxy(upstream: Any, tmp_path: Path) -> None:
    authority = Authority()
    authority.issue("server", hosts=("127.0.0.1",)).write(tmp_path / "server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    with FaultProxy(upstream.url, serving=serving) as proxy:
        host = proxy.url.partition("://")[2]
        watch = http.client.HTTPSConnection(host, context=trusting, timeout=WAIT_SECONDS)
        watch.request("GET", "/api/v1/pods?watch=true")
        stream = watch.getresponse()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del proxy
        gc.collect()
    stream.close()
    watch.close()
    assert [str(one.message) for one in said if "unclosed" in str(one.message)] == []
