"""A session that asks for its next chunks, over real HTTP."""

import json
import os
import signal
import socket
import struct
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.waiting import WAIT_SECONDS
from tranche_worker import EXIT_DONE, EXIT_FENCED, EXIT_TERMINATED, Assignment, Session, assignment, chunk_request
from tranche_worker.stop_flag import StopFlag

Answer = tuple[int, dict[str, Any]]


class Api:
    """An API that gives the answers set by the test, in turn."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.cuts_errors = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, self.headers["Authorization"], body))
                status, answer = outer.answers.pop(0)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if status >= 400 and outer.cuts_errors:
                    linger = struct.pack("ii", 1, 0)  # the client gets an error after the headers
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    os.close(self.connection.detach())
                    self.close_connection = True
                else:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_request, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(chunk_request, "TIMEOUT_SECONDS", WAIT_SECONDS)


def assigned(tmp_path: Path, url: str) -> Assignment:
    """Chunk 0 of two batches."""
    (tmp_path / "token").write_text("secret\n")
    return Assignment(
        "ns/cats",
        3,
        (0,),
        4,
        1,
        2,
        {},
        tmp_path,
        token=tmp_path / "token",
        termination_log=tmp_path / "log",
        next_api=url,
    )


def chunks(*numbers: int, fence: int = 0, **resume: int) -> Answer:
    return 200, {"chunks": list(numbers), "fence": fence, "resume": {c.removeprefix("c"): b for c, b in resume.items()}}


def train(session: Session, *, saving: bool = True) -> list[tuple[int, int, int]]:
    """Chunk, batch and fence of everything that comes."""
    seen = []
    with session:
        for chunk, batch in session.batches():
            seen.append((chunk, batch, session.assignment.fence))
            session.trained({chunk: batch + 1})
            if saving:
                session.saved()
    return seen


def left(tmp_path: Path) -> dict[str, int]:
    return dict(json.loads((tmp_path / "log").read_text()))


def test_session_continues_with_renewed_chunks_until_none_left(tmp_path: Path, api: Api) -> None:
    api.answers = [chunks(2, fence=7, c2=1), chunks(3, fence=8), chunks()]
    session = Session(assigned(tmp_path, api.url))
    assert train(session) == [(0, 0, 3), (0, 1, 3), (2, 1, 7), (3, 0, 8), (3, 1, 8)]
    assert [request[2] for request in api.asked] == [
        {"attempt": 3, "fence": 3, "durable": {"0": 2}},
        {"attempt": 3, "fence": 7, "durable": {"2": 2}},
        {"attempt": 3, "fence": 8, "durable": {"3": 2}},
    ]
    assert {request[:2] for request in api.asked} == {("/v1/jobs/ns/cats/next", "Bearer secret")}
    assert (session.exit_code, left(tmp_path)) == (EXIT_DONE, {"3": 2})


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
def test_proxy_of_the_environment_is_ignored(
    name: str, tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urllib.request, "_opener", None)  # it keeps the proxy of the first request of a process
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr(chunk_request, "UNREACHED_SECONDS", 0.0)
    api.answers = [chunks()]
    train(Session(assigned(tmp_path, api.url)))
    assert len(api.asked) == 1


def test_what_is_not_saved_is_not_asked_with(tmp_path: Path, api: Api) -> None:
    assert train(Session(assigned(tmp_path, api.url)), saving=False) == [(0, 0, 3), (0, 1, 3)]
    assert api.asked == []


def test_who_trains_at_a_server_has_nothing_to_save(tmp_path: Path, api: Api) -> None:
    api.answers = [chunks()]
    train(Session(assigned(tmp_path, api.url), at_server=True), saving=False)
    assert len(api.asked) == 1


def test_session_repeats_request_while_scheduler_is_unavailable(tmp_path: Path, api: Api) -> None:
    api.answers = [(503, {}), (429, {}), (200, {}), chunks(1, fence=5), chunks()]
    assert train(Session(assigned(tmp_path, api.url))) == [(0, 0, 3), (0, 1, 3), (1, 0, 5), (1, 1, 5)]
    assert [request[2]["fence"] for request in api.asked] == [3, 3, 3, 3, 5]


def test_half_of_an_error_response_fails_no_done_worker(tmp_path: Path, api: Api) -> None:
    api.cuts_errors = True  # the process of the API ends while it responds
    api.answers = [(503, {"error": "no leader"}), chunks()]
    session = Session(assigned(tmp_path, api.url))
    train(session)
    assert (len(api.asked), session.exit_code, left(tmp_path)) == (2, EXIT_DONE, {"0": 2})


@pytest.mark.parametrize("status", [403, 404])
def test_session_without_renewal_service_ends_normally(tmp_path: Path, api: Api, status: int) -> None:
    api.answers = [(status, {})]
    session = Session(assigned(tmp_path, api.url))
    train(session)
    assert (len(api.asked), session.exit_code, left(tmp_path)) == (1, EXIT_DONE, {"0": 2})


@pytest.mark.parametrize("answers", [[(503, {})] * 100, [chunks(1, fence=9), *[(503, {})] * 100]])
def test_renewal_request_stops_after_its_patience(
    answers: list[Answer], tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]

    def wait(_flag: StopFlag, seconds: float) -> bool:
        now[0] += seconds
        return False

    monkeypatch.setattr(chunk_request, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(StopFlag, "wait", wait)
    api.answers = answers
    session = Session(assigned(tmp_path, api.url))
    train(session)
    assert session.exit_code == EXIT_DONE
    left_seconds = 100.0 + chunk_request.PATIENCE_SECONDS - now[0]
    assert 0.0 <= left_seconds < chunk_request.LONGEST_PAUSE_SECONDS


def test_request_to_unreachable_scheduler_is_given_up_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chunk_request, "PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(chunk_request, "UNREACHED_SECONDS", 0.05)
    session = Session(assigned(tmp_path, "http://127.0.0.1:1"))
    train(session)
    assert (session.exit_code, left(tmp_path)) == (EXIT_DONE, {"0": 2})
    assert "does a NetworkPolicy keep this pod from it?" in caplog.text


def test_lost_scheduler_gets_the_whole_patience(tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_request, "PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(chunk_request, "UNREACHED_SECONDS", 0.0)
    api.answers = [chunks(1, fence=9), (200, {}), (200, {}), chunks()]
    session = Session(assigned(tmp_path, api.url))
    assert [chunk for chunk, _, _ in train(session)] == [0, 0, 1, 1]
    assert len(api.asked) == 4, "a response that cannot be read is asked for again"


def test_a_worker_whose_attempt_is_over_leaves_nothing_behind(tmp_path: Path, api: Api) -> None:
    api.answers = [(409, {})]
    session = Session(assigned(tmp_path, api.url))
    train(session)
    assert session.exit_code == EXIT_FENCED
    assert not (tmp_path / "log").read_text()


def test_sigterm_in_renewed_chunk_leaves_saved_part_of_it(tmp_path: Path, api: Api) -> None:
    api.answers = [chunks(2, fence=7)]
    session = Session(assigned(tmp_path, api.url))
    with session:
        for chunk, batch in session.batches():
            session.trained({chunk: batch + 1})
            session.saved()
            if chunk == 2:
                os.kill(os.getpid(), signal.SIGTERM)
    assert (session.exit_code, left(tmp_path)) == (EXIT_TERMINATED, {"2": 1})


def test_message_of_earlier_chunks_ends_with_the_next_ones(tmp_path: Path, api: Api) -> None:
    """A worker that is killed in its next chunk leaves a message about this one."""
    api.answers = [chunks(2, fence=7, c2=1), chunks()]
    session = Session(assigned(tmp_path, api.url))
    with session:
        for chunk, batch in session.batches():
            if chunk == 2:
                assert left(tmp_path) == {"2": 1}
            session.trained({chunk: batch + 1})
            session.saved()


def test_the_environment_says_where_to_ask(tmp_path: Path) -> None:
    variables = {
        "JOB": "ns/cats",
        "ATTEMPT": "3",
        "CHUNK_COUNT": "4",
        "EPOCHS": "1",
        "BATCHES": "2",
        "NEXT": "http://s/",
    }
    mine = assignment(
        {f"TRANCHE_{name}": value for name, value in variables.items()} | {"TRANCHE_CHECKPOINT_DIR": "/c"}
    )
    assert (mine.next_api, mine.fence) == ("http://s", 3)
