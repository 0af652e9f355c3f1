"""The numpy gang: real processes that divide a batch as a report API assigns."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_gang.train import assigned, members
from support.waiting import WAIT_SECONDS
from tranche_testcluster import free_port
from tranche_worker import Allocation

ROOT = Path(__file__).resolve().parents[3]
PARTS = (30, 12, 6)
AFTER_ALLOCATIONS = """
import time
from numpy_gang import train

begin = train.Member.train

def wait(member):
    while member._collective.rank == 0 and not member._session.allocations:
        time.sleep(0.01)
    begin(member)

train.Member.train = wait
train.main()
"""
"""Member that trains from when the API has answered: a slow API would answer after the last batch."""
COMMUNICATION = {"batching": "loft-like", "batchSize": sum(PARTS), "aggregation": "trimmed-mean"}


def test_members_are_the_pods_of_the_gang() -> None:
    variables = {"MASTER_ADDR": "cats-worker-0.cats.ns.svc", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
    assert members(variables) == [("cats-worker-0.cats.ns.svc", 29500), ("cats-worker-1.cats.ns.svc", 29500)]


@pytest.mark.parametrize("parts", [{}, {0: 10}, {0: 10, 1: 20}, {0: 32, 1: 0}, {0: 32, 1: None}])
def test_parts_that_are_no_division_of_the_batch_are_ignored(parts: dict[int, int | None]) -> None:
    assert assigned({rank: Allocation(samples=part) for rank, part in parts.items()}, [16, 16]) == [16, 16]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_gang_trains_with_the_parts_that_it_is_assigned(tmp_path: Path, host: str) -> None:
    bodies = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            shares = {"workers": {str(rank): {"samples": samples} for rank, samples in enumerate(PARTS)}}
            answer = json.dumps(shares).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    draw = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    x = draw.uniform(size=(200, 64))
    np.savez(tmp_path / "data" / "chunk-0.npz", x=x, y=(x @ draw.standard_normal((64, 10))).argmax(1))
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        results = trained(tmp_path, f"http://127.0.0.1:{http.server_address[1]}", host)
        http.shutdown()
    assert [one["batches"] for one in results] == [120] * 3
    assert [one["sizes"] for one in results] == [list(PARTS)] * 3
    assert len({one["loss"] for one in results}) == 1, "all members have one model"
    assert results[0]["loss"] < 2.3
    assert set(bodies[-1]["iterations"]) == {"0", "1", "2"}
    assert bodies[-1]["durable"] == {"0": 1.0, "1": 1.0, "2": 1.0}


def trained(directory: Path, api: str, host: str) -> list[dict[str, Any]]:
    """Run a gang of three to its end; return the summaries of the members."""
    addresses = ",".join(f"{host}:{free_port()}" for _ in PARTS)
    processes = []
    for rank in range(len(PARTS)):
        variables = {
            "TRANCHE_JOB": "ns/cats",
            "TRANCHE_ATTEMPT": str(rank + 1),
            "TRANCHE_CHUNKS": str(rank),
            "TRANCHE_CHUNK_COUNT": "3",
            "TRANCHE_EPOCHS": "1",
            "TRANCHE_BATCHES": "1",
            "TRANCHE_CHECKPOINT_DIR": str(directory),
            "TRANCHE_TERMINATION_LOG": str(directory / f"log-{rank}"),
            "TRANCHE_COMMUNICATION": json.dumps(COMMUNICATION),
            "TRANCHE_API": api if rank == 0 else "",
            "RANK": str(rank),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT / "worker" / "examples")]),
        }
        command = [sys.executable, "-c", AFTER_ALLOCATIONS, str(directory / "data"), "--batches", "120"]
        command += ["--addresses", addresses]
        processes.append(subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE))
    try:
        outputs = [process.communicate(timeout=WAIT_SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0]
    return [json.loads(output) for output in outputs]
