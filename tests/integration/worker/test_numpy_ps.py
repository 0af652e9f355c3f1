"""The numpy example as real processes under the production planner, undisturbed and disturbed."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import log
from pathlib import Path

import numpy as np
import pytest

from numpy_ps import chunks
from numpy_ps.models import Network
from numpy_ps.server import COUNTS
from support.waiting import WAIT_SECONDS, eventually
from support.worker_trial import ROOT, Result, Trial, run
from tranche_testcluster import free_port
from tranche_worker import EXIT_FENCED, EXIT_TERMINATED

SEED = 1
DISTURBED = Trial(SEED, epochs=20, preemptions=3, server_kills=1)


ROUNDS = Trial(
    SEED,
    epochs=6,
    preemptions=1,
    server_kills=1,
    communication={
        "barrier": 2,
        "staleness": 2,
        "aggregation": "trimmed-mean",
        "decoupled": True,
        "bandwidthShares": "sasp-like",
        "serverBandwidth": "400M",
    },
    parts=3,
)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(Trial(SEED, epochs=20), tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(DISTURBED, tmp_path_factory.mktemp("disturbed"))


def test_three_workers_and_the_server_were_stopped_on_the_way(disturbed: Result) -> None:
    assert Counter(disturbed.stopped) == {
        ("worker", signal.SIGTERM): 2,
        ("worker", signal.SIGKILL): 1,
        ("ps", signal.SIGKILL): 1,
    }
    assert disturbed.endings[-signal.SIGKILL] == 1
    early = -signal.SIGTERM  # of a worker that the planner stops before its session has begun
    assert set(disturbed.endings) <= {0, 143, -signal.SIGKILL, early}


def test_a_worker_goes_on_with_its_next_chunk_in_the_same_pod(calm: Result) -> None:
    assert calm.endings == {0: 3}, "six chunks, three workers"


def test_every_batch_is_in_the_model_once(calm: Result, disturbed: Result) -> None:
    expected = {(chunk, batch): 1 for chunk in range(6) for batch in range(20 * 13)}
    assert calm.applied == expected
    assert disturbed.applied == expected
    assert disturbed.curve[-1][0] == DISTURBED.batches, "at SIGTERM the server saves what it has not saved yet"


def test_rounds_with_stops_have_every_batch_in_the_model_once(tmp_path: Path) -> None:
    result = run(ROUNDS, tmp_path)
    assert result.applied == {(chunk, batch): 1 for chunk in range(6) for batch in range(6 * 13)}
    assert len(result.stopped) == 2
    assert result.progress.done == set(range(6))
    assert result.loss < log(10)


def test_only_what_the_server_had_not_saved_is_trained_again(calm: Result, disturbed: Result) -> None:
    assert (calm.repeated, calm.unsaved) == (0, [])
    assert len(disturbed.unsaved) == 1
    assert disturbed.repeated == disturbed.unsaved[0] <= DISTURBED.checkpoint_batches


def test_the_model_is_as_good_as_undisturbed(calm: Result, disturbed: Result) -> None:
    assert disturbed.loss == pytest.approx(calm.loss, rel=0.02)
    assert disturbed.loss < log(10) / 3, "it has learned: ten classes at random cost log(10)"


def test_the_planners_ledger_agrees_with_what_the_server_applied(disturbed: Result) -> None:
    progress = disturbed.progress
    assert progress.done == set(range(6))
    assert progress.preemptions == 3
    assert progress.checkpoint is not None
    assert progress.lost_batches < DISTURBED.batches / 2, "a guess for workers stopped before the first report"
    assert disturbed.reported
    assert 0 < disturbed.reported[-1] <= DISTURBED.batches


class _Over(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(409)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def environment(folder: Path, attempt: int, port: int = 0, **more: str) -> dict[str, str]:
    """Return the environment of a process of the job, as the operator would write it."""
    variables = {
        "TRANCHE_JOB": "ns/digits",
        "TRANCHE_ATTEMPT": str(attempt),
        "TRANCHE_CHUNK_COUNT": "6",
        "TRANCHE_EPOCHS": "1000",
        "TRANCHE_BATCHES": "13",
        "TRANCHE_CHECKPOINT_DIR": str(folder),
        "TF_CONFIG": json.dumps({"cluster": {"ps": [f"127.0.0.1:{port}"]}}),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT / "worker" / "examples")]),
    }
    return {**os.environ, **variables, **more}


def test_a_server_whose_attempt_is_over_exits_without_saving(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Over) as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        variables = environment(tmp_path, 3, TRANCHE_API=f"http://127.0.0.1:{api.server_address[1]}")
        command = [sys.executable, "-m", "numpy_ps.server"]
        try:
            ended = subprocess.run(command, env=variables, timeout=WAIT_SECONDS, check=False)
        finally:
            api.shutdown()
            thread.join()
    assert ended.returncode == EXIT_FENCED
    assert list(tmp_path.iterdir()) == []


class _Busy(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(503)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def test_server_that_has_saved_for_the_last_time_applies_no_more(tmp_path: Path) -> None:
    """While it sent its last report, workers went on, and their batches counted although they were lost."""
    port, diary = free_port(), tmp_path / "diary"
    gradient = np.zeros_like(Network().initial(0)).tobytes()
    statuses, stopped = [], False
    with ThreadingHTTPServer(("127.0.0.1", 0), _Busy) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{api.server_address[1]}"
        variables = environment(tmp_path, 1, port, TRANCHE_API=address, TRANCHE_GRACE_SECONDS="5")
        server = subprocess.Popen([sys.executable, "-m", "numpy_ps.server", "--diary", str(diary)], env=variables)
        try:
            eventually(lambda: responds(port))
            worker = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
            with suppress(OSError, http.client.HTTPException):  # at last, the server has ended
                for batch in range(10**6):
                    worker.request("POST", f"/exchange?slot=0&attempt=2&chunks=0&chunk=0&batch={batch}", gradient)
                    response = worker.getresponse()
                    response.read()
                    statuses.append(response.status)
                    if not stopped:
                        server.terminate()
                        stopped = True
                    elif response.status != 200:
                        break
            assert server.wait(WAIT_SECONDS) == EXIT_TERMINATED
            worker.close()
        finally:
            server.kill()
            server.wait()
            api.shutdown()
    notes = [line.split() for line in diary.read_text().splitlines()]
    assert [note[0] for note in notes].count("apply") == statuses.count(200) > 0
    assert notes[-1] == ["save", str(statuses.count(200))], "what is applied is saved"


def applied(port: int) -> int:
    """Batches of chunk 0 that the server at this port has applied; 0 while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/state", timeout=WAIT_SECONDS) as answer:
            return int(json.loads(answer.headers[COUNTS]).get("0", 0))
    except OSError:
        return 0


def responds(port: int) -> bool:
    """Return whether the server at this port answers."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/round", timeout=WAIT_SECONDS).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_batch_that_is_sent_twice_is_applied_once(tmp_path: Path, host: str) -> None:
    port = free_port()
    url = f"http://{host}:{port}/exchange?slot=0&attempt=3&chunks=0&chunk=0&batch=0"
    gradient = np.ones_like(Network().initial(0)).tobytes()

    def push() -> tuple[int, bytes] | None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, gradient), timeout=WAIT_SECONDS) as answer:
                return json.loads(answer.headers[COUNTS])["0"], answer.read()
        except OSError:
            return None

    server = subprocess.Popen([sys.executable, "-m", "numpy_ps.server"], env=environment(tmp_path, 1, port))
    try:
        first = eventually(push, "the server answers")
        assert first is not None
        assert (first[0], push()) == (1, first)
    finally:
        server.kill()
        server.wait()


def test_stopped_worker_reports_progress_and_old_one_is_fenced(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "termination-log"
    chunks.stage(tmp_path / "data", 6)

    def start(*command: str, attempt: int) -> "subprocess.Popen[bytes]":
        mine = {"TRANCHE_CHUNKS": "0", "TRANCHE_TERMINATION_LOG": str(log)}
        variables = environment(tmp_path, attempt, port, **mine)
        return subprocess.Popen([sys.executable, "-m", *command], env=variables)

    server = start("numpy_ps.server", attempt=1)
    worker = start("numpy_ps.worker", str(tmp_path / "data"), attempt=3)
    try:
        eventually(lambda: applied(port) >= 20, "20 batches are applied")
        worker.terminate()
        assert worker.wait(WAIT_SECONDS) == EXIT_TERMINATED
        assert json.loads(log.read_text()) == {"0": applied(port)}
        worker = start("numpy_ps.worker", str(tmp_path / "data"), attempt=2)
        assert worker.wait(WAIT_SECONDS) == EXIT_FENCED
    finally:
        for process in (worker, server):
            process.kill()
            process.wait()
