"""The numpy example as real processes under the production planner, undisturbed and disturbed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import log
from pathlib import Path

import pytest

from tranche_worker import EXIT_FENCED
from worker_trials import ROOT, Result, Trial, run

SEED = 1
DISTURBED = Trial(SEED, epochs=20, preemptions=3, server_kills=1)


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
    assert set(disturbed.endings) <= {0, 143, -signal.SIGKILL}


def test_a_worker_goes_on_with_its_next_chunk_in_the_same_pod(calm: Result) -> None:
    assert calm.endings == {0: 3}, "six chunks, three workers"


def test_every_batch_is_in_the_model_once(calm: Result, disturbed: Result) -> None:
    expected = {(chunk, batch): 1 for chunk in range(6) for batch in range(20 * 13)}
    assert calm.applied == expected
    assert disturbed.applied == expected
    assert disturbed.curve[-1][0] == DISTURBED.batches, "at SIGTERM the server saves what it has not saved yet"


def test_only_what_the_server_had_not_saved_is_trained_again(calm: Result, disturbed: Result) -> None:
    assert (calm.repeated, calm.unsaved) == (0, [])
    assert len(disturbed.unsaved) == 1
    assert disturbed.repeated == disturbed.unsaved[0] <= DISTURBED.checkpoint_batches


def test_the_model_is_as_good_as_undisturbed(calm: Result, disturbed: Result) -> None:
    assert disturbed.loss == pytest.approx(calm.loss, rel=0.02)
    assert disturbed.loss < log(10) / 3, "it has learnt: ten classes at random cost log(10)"


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


def test_a_server_whose_attempt_is_over_exits_without_saving(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Over) as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        variables = {
            "TRANCHE_JOB": "ns/digits",
            "TRANCHE_ATTEMPT": "3",
            "TRANCHE_CHUNK_COUNT": "6",
            "TRANCHE_EPOCHS": "1",
            "TRANCHE_BATCHES": "1",
            "TRANCHE_CHECKPOINT_DIR": str(tmp_path),
            "TRANCHE_API": f"http://127.0.0.1:{api.server_address[1]}",
            "TF_CONFIG": json.dumps({"cluster": {"ps": ["127.0.0.1:0"]}}),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT / "worker" / "examples")]),
        }
        command = [sys.executable, "-m", "numpy_ps.server"]
        ended = subprocess.run(command, env={**os.environ, **variables}, timeout=60, check=False)
        api.shutdown()
        thread.join()
    assert ended.returncode == EXIT_FENCED
    assert list(tmp_path.iterdir()) == []
