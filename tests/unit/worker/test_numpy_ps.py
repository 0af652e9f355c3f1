import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from numpy_ps import chunks, server, states
from numpy_ps.aggregation import mean
from numpy_ps.models import Network
from numpy_ps.server import COUNTS, ROUND
from numpy_ps.states import Push, State
from numpy_ps.worker import Connection
from support.doc_pages import ROOT
from support.waiting import WAIT_SECONDS, eventually
from tranche_testcluster import free_port
from tranche_worker import EXIT_UNFINISHED, Session, assignment


def test_the_gradient_is_that_of_the_loss() -> None:
    network, draw = Network(inputs=3, hidden=4, classes=2), np.random.default_rng(1)
    parameters = network.initial(2)
    x, y = draw.standard_normal((5, 3)), draw.integers(0, 2, 5)
    gradient, step = network.gradient(parameters, x, y), 1e-6
    for place, direction in enumerate(np.eye(network.size)):
        numeric = network.loss(parameters + step * direction, x, y) - network.loss(parameters - step * direction, x, y)
        assert gradient[place] == pytest.approx(numeric / (2 * step), abs=1e-7)


def test_batches_of_an_epoch_are_all_rows_once() -> None:
    for epoch in (0, 1):
        rows = [chunks.rows_of_batch(29, 4, 3 * epoch + place, 3) for place in range(3)]
        assert sorted(np.concatenate(rows)) == list(range(29))
    assert list(chunks.rows_of_batch(29, 4, 0, 3)) != list(chunks.rows_of_batch(29, 4, 3, 3))


def test_a_batch_is_applied_once_however_often_it_is_sent() -> None:
    state, push = State(np.zeros(2)), Push(5, 0, np.array([1.0, 2.0]))
    assert state.apply_round([push], mean, 0.5) == [push]
    assert state.apply_round([push], mean, 0.5) == []
    assert state.apply_round([Push(5, 2, np.array([9.0, 9.0]))], mean, 0.5) == [], "not its next one"
    assert list(state.parameters) == [-0.5, -1.0]
    assert state.batches == {5: 1}


def test_of_two_pushes_for_one_chunk_the_later_counts() -> None:
    state = State(np.zeros(1))
    old, new = Push(5, 0, np.array([8.0]), attempt=1), Push(5, 0, np.array([2.0]), attempt=2)
    assert state.apply_round([old, new], mean, 1.0) == [new]
    assert list(state.parameters) == [-2.0]


def test_a_checkpoint_holds_parameters_counts_and_fence(tmp_path: Path) -> None:
    assert states.load(tmp_path) is None
    state = State(np.array([1.0, -2.5]), {0: 7, 3: 1})
    state.fence.admits(2, [0, 3], 9)
    state.save(tmp_path, 4)
    again = states.load(tmp_path)
    assert again is not None
    assert list(again.parameters) == [1.0, -2.5]
    assert (again.batches, again.fence, again.total) == (state.batches, state.fence, 8)


def test_state_of_lost_server_does_not_replace_its_successor(tmp_path: Path) -> None:
    lost, successor = State(np.zeros(1), {0: 50}), State(np.ones(1), {0: 60})
    lost.save(tmp_path, 4)
    successor.save(tmp_path, 12)
    lost.batches[0] = 99
    lost.save(tmp_path, 4)
    held = states.load(tmp_path)
    assert held is not None
    assert held.batches == {0: 60}


def test_fence_of_an_inherited_checkpoint_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, own = tmp_path / "earlier", tmp_path / "own"
    earlier.mkdir()
    own.mkdir()
    old = State(np.array([1.0]), {0: 7})
    assert old.fence.admits(0, [0], 12)
    old.save(earlier, 12)
    monkeypatch.setenv("TRANCHE_RESUME_DIR", str(earlier))
    found = states.load(own)
    assert found is not None
    assert found.batches == {0: 7}
    assert found.fence.admits(0, [0], 1), "attempts of the new job begin at 1"


ASSIGNED = {"JOB": "default/j", "ATTEMPT": 1, "CHUNK_COUNT": 1, "EPOCHS": 1, "BATCHES": 1, "CHECKPOINT_DIR": "."}


def test_second_server_ends_before_it_saves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (ASSIGNED | {"INDEX": 1, "CHECKPOINT_DIR": tmp_path}).items():
        monkeypatch.setenv(f"TRANCHE_{name}", str(value))
    monkeypatch.setattr("sys.argv", ["server"])
    monkeypatch.setattr(server, "listen_at", lambda: ("127.0.0.1", "a socket is opened"))
    with pytest.raises(SystemExit):
        server.main()
    assert "spec.parameterServers.replicas" in capsys.readouterr().err


def test_server_that_cannot_save_ends_and_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on, so that the job was done although its model was nowhere."""
    directory = tmp_path / "volume"
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    paths = os.pathsep.join(str(ROOT / path) for path in ("worker", "worker/examples"))
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": [address]}}))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "TF_CONFIG": os.environ["TF_CONFIG"]}
    values = ASSIGNED | {"CHUNKS": "0", "BATCHES": 1000, "CHECKPOINT_DIR": directory}
    environment |= {f"TRANCHE_{name}": str(value) for name, value in values.items()}
    connection = Connection(Session(assignment(environment), at_server=True))
    command = [sys.executable, "-m", "numpy_ps.server", "--checkpoint-batches", "1"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        eventually(lambda: connection.round() is not None)
        shutil.rmtree(directory)
        with suppress(ConnectionError):
            connection.push(Push(0, 0, np.zeros(Network().size)), "")
        connection.close()
        try:
            _, written = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
    assert process.returncode == EXIT_UNFINISHED
    assert b"FileNotFoundError" in written.splitlines()[-1]


def respond_once(listener: socket.socket, response: bytes) -> None:
    """Send these bytes to one client, and close the connection."""
    client, _ = listener.accept()
    with client:
        client.recv(65536)
        client.sendall(response)


@pytest.mark.parametrize("sent", [40, 90, 200, 1099], ids=["status", "headers", "body", "all but a byte"])
def test_response_of_a_killed_server_is_a_connection_error(sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker failed with an exception, and the failure counted against the job."""
    headers = f"HTTP/1.0 200 OK\r\nContent-Length: 960\r\n{COUNTS}: {{}}\r\n{ROUND}: 1\r\n".encode()
    whole = headers + b"X-Padding: " + b"p" * (140 - len(headers) - 15) + b"\r\n\r\n" + bytes(960)
    assert len(whole) == 1100
    mine = assignment({f"TRANCHE_{name}": str(value) for name, value in ASSIGNED.items()})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr("numpy_ps.worker.listen_at", lambda: ("127.0.0.1", listener.getsockname()[1]))
        connection = Connection(Session(mine, at_server=True))
        server = threading.Thread(target=respond_once, args=(listener, whole[:sent]))
        server.start()
        with pytest.raises(ConnectionError):
            connection.exchange()
        server.join()
        connection.close()
