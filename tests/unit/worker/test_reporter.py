"""Reports over real HTTP, to a server whose answers the test sets."""

import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.waiting import WAIT_SECONDS, eventually
from tranche.worker_api.app import _read
from tranche_worker import Allocation, Assignment, Communication, Iterations, Progress, Reporter, Session
from tranche_worker import reporter as reporters
from tranche_worker import session as sessions


def reset(connection: socket.socket) -> None:
    """Close a connection as one that is cut: the client gets an error after what has been sent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(connection.detach())


class Api:
    """Takes reports, and answers with these statuses in turn; the last one from then on."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.reports: list[tuple[str, str, dict[str, Any]]] = []
        self.promised_bytes = 0
        """Length of the body of an error, which is never sent: the connection is reset."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.reports.append((self.path, self.headers["Authorization"], body))
                status = outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0]
                self.send_response(status)
                promised = outer.promised_bytes if status >= 400 else 0
                self.send_header("Content-Length", str(promised))
                self.end_headers()
                if promised:
                    reset(self.connection)
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.reports) >= count, f"{count} reports")

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    made = Api(*getattr(request, "param", (204,)))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters, "FIRST_PAUSE_SECONDS", 0.01)
    for timeout in ("TIMEOUT_SECONDS", "LAST_TIMEOUT_SECONDS"):
        monkeypatch.setattr(reporters, timeout, WAIT_SECONDS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Clock of the last report, which only its pauses advance: however late the responses are, it is repeated."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(reporters, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


def assigned(tmp_path: Path, url: str, grace_seconds: float = 1.0) -> Assignment:
    """Assignment whose grace period leaves time for one last report unless a test says otherwise."""
    (tmp_path / "token").write_text("secret\n")
    token = tmp_path / "token"
    return Assignment("ns/cats", 7, (0,), 2, 1, 10, {}, tmp_path, 0, grace_seconds, api=url, token=token)


def halfway() -> Progress:
    return Progress({0: 5}, {0: 3}, 0.5)


def test_reporter_sends_first_report_at_once_and_last_at_exit(tmp_path: Path, api: Api) -> None:
    states = iter([Progress({0: 1}), Progress({0: 2})])
    with Reporter(assigned(tmp_path, api.url), lambda: next(states), period_seconds=3600):
        api.wait_for(1)
        (tmp_path / "token").write_text("renewed")
    paths, tokens, bodies = zip(*api.reports, strict=True)
    assert set(paths) == {"/v1/jobs/ns/cats/progress"}
    assert tokens == ("Bearer secret", "Bearer renewed")
    assert [body["applied"] for body in bodies] == [{"0": 1}, {"0": 2}]


def test_a_report_has_what_the_api_reads(tmp_path: Path, api: Api) -> None:
    with Reporter(assigned(tmp_path, api.url), halfway, period_seconds=3600):
        api.wait_for(1)
    assert api.reports[0][2] == {
        "attempt": 7,
        "applied": {"0": 5},
        "durable": {"0": 3},
        "batchSeconds": 0.5,
        "fetchSeconds": None,
        "computeSeconds": None,
    }


def test_reported_batches_may_be_scalars_of_an_array_library(tmp_path: Path, api: Api) -> None:
    state = Progress({np.int64(3): np.float32(5)}, {3: np.int64(4)}, 0.5)  # type: ignore[dict-item]
    with Reporter(assigned(tmp_path, api.url), lambda: state, period_seconds=3600):
        api.wait_for(1)
    assert (api.reports[0][2]["applied"], api.reports[0][2]["durable"]) == ({"3": 5.0}, {"3": 4.0})


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -0.2, 2e9])
def test_time_that_makes_no_sense_keeps_the_progress(seconds: float, tmp_path: Path, api: Api) -> None:
    """A program may measure by a clock that is set back; the API refuses the report as a whole."""
    iterations = Iterations()
    for measured in (0.5, seconds):
        iterations.record(0, 32, measured)
    state = Progress({0: 5}, {0: 3}, seconds, 0.1, seconds, iterations.dump())
    mine = replace(assigned(tmp_path, api.url), communication=Communication(shared=True))
    with Reporter(mine, lambda: state, period_seconds=3600):
        api.wait_for(1)
    received = _read(json.dumps(api.reports[0][2]).encode())
    assert received.durable == {0: 3}
    assert (received.batch_seconds, received.fetch_seconds, received.compute_seconds) == (None, 0.1, None)
    assert received.iterations == {0: [(32.0, 0.5, 0.0)]}


@pytest.mark.parametrize("api", [(503, 500, 401, 204)], indirect=True)
def test_refusals_are_tried_again(tmp_path: Path, api: Api) -> None:
    with Reporter(assigned(tmp_path, api.url), halfway, period_seconds=3600):
        api.wait_for(4)


@pytest.mark.parametrize("api", [(204, 409)], indirect=True)
def test_reporter_of_ended_attempt_calls_back_and_stops(tmp_path: Path, api: Api) -> None:
    refused = threading.Event()
    with Reporter(assigned(tmp_path, api.url), halfway, refused.set, period_seconds=0.01):
        assert refused.wait(WAIT_SECONDS)
    assert len(api.reports) == 2


@pytest.mark.parametrize("api", [(204, 503, 503, 503, 204)], indirect=True)
def test_last_report_is_sent_until_it_is_accepted(tmp_path: Path, api: Api) -> None:
    with Reporter(assigned(tmp_path, api.url, WAIT_SECONDS), halfway, period_seconds=3600):
        api.wait_for(1)
    assert len(api.reports) == 5


@pytest.mark.parametrize("api", [(204, 503)], indirect=True)
def test_last_report_is_given_up_with_the_grace_period(tmp_path: Path, api: Api, clock: list[float]) -> None:
    with Reporter(assigned(tmp_path, api.url, 3.0), halfway, period_seconds=3600):
        api.wait_for(1)
    assert len(api.reports) > 2
    assert clock == [pytest.approx(100.0 + 3.0 - reporters.LAST_RESERVE_SECONDS)]


@pytest.mark.parametrize("api", [(204, *[503] * 9, 204)], indirect=True)
def test_stopped_worker_does_not_report_for_its_whole_grace(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """If a NetworkPolicy keeps it from the API, it kept its GPU for all of its grace period each time."""
    monkeypatch.setattr(sessions, "LAST_SECONDS", 1.2)
    mine = replace(assigned(tmp_path, api.url, 3600.0), termination_log=tmp_path / "log")
    with Session(mine) as session:
        api.wait_for(1)
        os.kill(os.getpid(), signal.SIGTERM)
    assert session.stopping
    assert 2 <= len(api.reports) < 11
    assert clock == [pytest.approx(100.0 + 1.2 - reporters.LAST_RESERVE_SECONDS)]


@pytest.mark.parametrize("api", [(204, 404)], indirect=True)
def test_last_report_that_is_refused_for_good_ends(tmp_path: Path, api: Api) -> None:
    with Reporter(assigned(tmp_path, api.url, WAIT_SECONDS), halfway, period_seconds=3600):
        api.wait_for(1)
    assert len(api.reports) == 2


def test_without_an_api_training_goes_on(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    requested = threading.Event()

    def progress() -> Progress:
        requested.set()
        return halfway()

    with Reporter(assigned(tmp_path, url), progress):
        assert requested.wait(WAIT_SECONDS)


@pytest.mark.parametrize("api", [(503, 503, 204)], indirect=True)
def test_reports_continue_after_half_of_an_error_response(tmp_path: Path, api: Api) -> None:
    api.promised_bytes = 99  # the process of the API ends while it responds
    with Reporter(assigned(tmp_path, api.url), halfway, period_seconds=3600):
        api.wait_for(3)


@pytest.mark.parametrize("api", [(204, 503, 204)], indirect=True)
def test_half_of_an_error_response_fails_no_finished_worker(tmp_path: Path, api: Api) -> None:
    api.promised_bytes = 99
    with Reporter(assigned(tmp_path, api.url, WAIT_SECONDS), halfway, period_seconds=3600):
        api.wait_for(1)
    assert len(api.reports) == 3


def test_a_progress_or_token_that_fails_does_not_end_the_reports(tmp_path: Path, api: Api) -> None:
    mine = assigned(tmp_path, api.url)
    calls = iter([KeyError("not yet"), OSError("disk")])

    def progress() -> Progress:
        for fault in calls:
            raise fault
        return halfway()

    with Reporter(mine, progress, period_seconds=3600):
        api.wait_for(1)


def test_a_pod_that_does_not_report_for_its_job_sends_nothing(tmp_path: Path) -> None:
    def progress() -> Progress:
        raise AssertionError("unexpected request")

    with Reporter(assigned(tmp_path, ""), progress) as reporter:
        assert not reporter._thread.is_alive()


class Pauses(threading.Event):
    """Notes how long somebody would wait, a hundred times, and then has them stop."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted.append(timeout or 0.0)
        if len(self.noted) == 100:
            self.set()
        return self.is_set()


def test_reports_are_sent_every_15_to_30_seconds_with_jitter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANCHE_REPORT_SECONDS", raising=False)
    reporter, pauses = Reporter(assigned(tmp_path, "http://127.0.0.1:9"), halfway), Pauses()
    monkeypatch.setattr(reporter, "_send", lambda timeout: None)
    monkeypatch.setattr(reporter, "_stop", pauses)
    monkeypatch.setattr(reporter, "_wake", pauses)
    reporter._run()
    assert min(pauses.noted) >= 15.0
    assert max(pauses.noted) <= 30.0
    assert len(set(pauses.noted)) > 50


def test_a_report_that_is_asked_for_brings_new_allocations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporters, "SHORTEST_PERIOD_SECONDS", 0.01)
    answers = [b"", b'{"workers": {"0": {"bitsPerSecond": 5e6, "samples": 24}, "2": {}}}']
    bodies, answered = [], threading.Event()

    def post(mine: Assignment, api: str, action: str, body: dict[str, Any], timeout: float) -> bytes:
        bodies.append(body)
        if len(bodies) == 2:
            answered.set()
        return answers[min(len(bodies), 2) - 1]

    monkeypatch.setattr(reporters, "post", post)
    progress = Progress({0: 5}, iterations={0: [(24.0, 0.5, 0.1)]})
    mine = replace(assigned(tmp_path, "http://x"), communication=Communication(shared=True))
    with Reporter(mine, lambda: progress, period_seconds=1000) as reporter:
        assert reporter.allocations == {}
        reporter.report_soon()
        assert answered.wait(WAIT_SECONDS)
    assert reporter.allocations == {0: Allocation(5e6, 24), 2: Allocation()}
    assert bodies[1]["iterations"] == {0: [(24.0, 0.5, 0.1)]}


def test_iterations_of_2000_workers_take_half_of_a_report() -> None:
    iterations = Iterations()
    for worker in range(2000):
        for _ in range(20):
            iterations.record(worker, 128, 12.3456789012, 1.23456789)
    dumped = iterations.dump()
    assert {len(last) for last in dumped.values()} == {2}
    assert len(json.dumps(dumped)) < 160 * 2**10
    few = Iterations()
    for _ in range(20):
        few.record(0, 1, 0.5)
    assert few.dump() == {0: [(1, 0.5, 0.0)] * 16}
