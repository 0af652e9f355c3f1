"""Rounds of the numpy parameter server: barriers, staleness, partial work, attacks."""

import json
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numpy_ps import chunks
from numpy_ps import server as servers
from numpy_ps.models import Network
from numpy_ps.server import COUNTS, ROUND, Answer, Server, handler
from numpy_ps.states import Push
from numpy_ps.worker import Connection, RefusedError, Trainer
from support.waiting import WAIT_SECONDS
from tranche_worker import EXIT_UNFINISHED, Allocation, Assignment, Communication, RateLimit, Reporter, Session

SIZE = Network().size


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "WAIT_SECONDS", 0.2)


def served(directory: Path, batches: int, **communication: float | str) -> Server:
    """Return a server without checkpoints on the way and with a fixed step size of 1."""
    options = Namespace(
        seed=0, rate=1.0, halving=1e12, checkpoint_batches=10**9, diary=directory / "diary", patience=60
    )
    parsed = Communication(**communication)  # type: ignore[arg-type]
    return Server(Assignment("ns/a", 1, (), 4, 1, batches, {}, directory, communication=parsed), options)


def push(server: Server, slot: int, batch: int, value: float = 1.0, count: int = 1) -> Answer:
    """Push a gradient for the slot's own chunk."""
    query = {"slot": slot, "attempt": slot + 1, "chunks": slot, "chunk": slot, "batch": batch, "count": count}
    answer = server.exchange({key: [str(one)] for key, one in query.items()}, np.full(SIZE, value).tobytes(), "")
    assert answer is not None
    return answer


def join(server: Server, *slots: int) -> None:
    """Let workers fetch the parameters."""
    for slot in slots:
        query = {"slot": [str(slot)], "attempt": [str(slot + 1)], "chunks": [str(slot)]}
        assert server.exchange(query, b"", "") is not None


def together(*calls: Callable[[], Answer]) -> list[Answer]:
    """Return the answers of requests that wait for each other, for as long as another thread needs to start."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(calls)) as threads:
        patch.setattr(servers, "WAIT_SECONDS", WAIT_SECONDS)
        return [future.result() for future in [threads.submit(call) for call in calls]]


def counts(answer: Answer) -> dict[str, int]:
    """Return the applied batches in an answer."""
    found: dict[str, int] = json.loads(answer.headers[COUNTS])
    return found


def test_a_round_of_k_pushes_is_one_step_along_their_mean(tmp_path: Path) -> None:
    server = served(tmp_path, 9, barrier=2)
    join(server, 0, 1, 2)
    before = server.state.parameters.copy()
    answers = together(lambda: push(server, 0, 0, 2.0), lambda: push(server, 1, 0, 4.0))
    assert [counts(answer) for answer in answers] == [{"0": 1}, {"1": 1}]
    assert server.state.parameters == pytest.approx(before - 3.0)
    assert server.state.batches == {0: 1, 1: 1}


def test_a_push_waits_for_its_round_and_counts_once(tmp_path: Path) -> None:
    server = served(tmp_path, 9, barrier=2)
    join(server, 0, 1)
    assert counts(push(server, 0, 0)) == {"0": 0}, "the round is open"
    assert counts(push(server, 0, 0)) == {"0": 0}
    assert counts(push(server, 1, 0)) == {"1": 1}
    assert server.state.batches == {0: 1, 1: 1}
    assert (tmp_path / "diary").read_text().count("apply 0 0") == 1


def test_the_late_push_of_a_straggler_counts_in_the_next_round(tmp_path: Path) -> None:
    server = served(tmp_path, 9, barrier=2)
    join(server, 0, 1, 2)
    together(lambda: push(server, 0, 0), lambda: push(server, 1, 0))
    before = server.state.parameters.copy()
    together(lambda: push(server, 2, 0, 10.0, count=3), lambda: push(server, 0, 1, 2.0))
    assert server.state.batches == {0: 2, 1: 1, 2: 3}
    assert server.state.parameters == pytest.approx(before - 8.0), "three parts of 10 and one of 2"


def test_a_round_waits_for_a_worker_at_the_staleness(tmp_path: Path) -> None:
    server = served(tmp_path, 9, barrier=1, staleness=1)
    join(server, 0, 1)
    assert counts(push(server, 0, 0)) == {"0": 1}
    assert counts(push(server, 0, 1)) == {"0": 1}, "worker 1 has missed a round"
    assert counts(push(server, 1, 0)) == {"1": 1}
    assert server.state.batches == {0: 2, 1: 1}


def test_bounded_staleness_holds_a_fast_worker_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = served(tmp_path, 9, staleness=1)
    join(server, 0, 1)
    for batch in range(2):
        push(server, 0, batch)
    released = threading.Event()

    def third() -> Answer:
        answer = push(server, 1, 0)
        released.set()
        return answer

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(servers, "WAIT_SECONDS", WAIT_SECONDS)
        waiting = threads.submit(push, server, 0, 2)
        assert not released.wait(0.1)
        assert not waiting.done()
        third()
        push(server, 1, 1)
        assert counts(waiting.result(WAIT_SECONDS)) == {"0": 3}


def test_push_that_is_sent_again_counts_once_for_the_bound(tmp_path: Path) -> None:
    server = served(tmp_path, 9, staleness=1)
    join(server, 0, 1)
    push(server, 0, 0)
    for _ in range(3):
        push(server, 1, 0)  # its response was lost
    push(server, 0, 1)
    push(server, 0, 2)
    assert server.bound is not None
    assert not server.bound.may_start(0, time.monotonic()), "worker 1 has trained one batch"


@pytest.mark.parametrize("barrier", [None, 2])
@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (np.ones(SIZE, np.float32), f"has {SIZE // 2} numbers of 64 bits, and the model {SIZE}"),
        (np.ones(1), f"has 1 numbers of 64 bits, and the model {SIZE}"),
        (np.full(SIZE, np.nan), "is not finite"),
        (np.full(SIZE, -np.inf), "is not finite"),
    ],
    ids=["float32", "one number", "nan", "inf"],
)
def test_gradient_that_does_not_fit_harms_no_other_worker(
    tmp_path: Path, gradient: NDArray[Any], message: str, barrier: int | None
) -> None:
    server = served(tmp_path, 9, **({} if barrier is None else {"barrier": barrier}))
    join(server, 0, 1)
    query = {"slot": ["0"], "attempt": ["1"], "chunks": ["0"], "chunk": ["0"], "batch": ["0"]}
    with pytest.raises(ValueError, match=message):
        server.exchange(query, gradient.tobytes(), "")
    together(lambda: push(server, 1, 0), lambda: push(server, 0, 0))
    assert server.state.batches == {0: 1, 1: 1}
    assert np.isfinite(server.state.parameters).all()


@pytest.mark.parametrize("barrier", [None, 1])
@pytest.mark.parametrize(
    ("wrong", "times"),
    [
        ({"count": "0"}, ""),
        ({"count": "-1"}, ""),
        ({"count": "10"}, ""),
        ({"chunk": "1"}, ""),
        ({}, "0.5"),
        ({}, "a b c"),
    ],
    ids=["no batches", "fewer than none", "beyond the chunk", "chunk of another", "short times", "words"],
)
def test_push_of_impossible_batches_changes_nothing(
    tmp_path: Path, wrong: dict[str, str], times: str, barrier: int | None
) -> None:
    server = served(tmp_path, 9, **({} if barrier is None else {"barrier": barrier}))
    query = {"slot": "0", "attempt": "1", "chunks": "0", "chunk": "0", "batch": "0", **wrong}
    with pytest.raises(ValueError, match=r"impossible|could not convert"):
        server.exchange({key: [one] for key, one in query.items()}, np.ones(SIZE).tobytes(), times)
    assert server.progress().applied == {}
    assert np.isfinite(server.state.parameters).all()
    assert counts(push(server, 0, 0)) == {"0": 1}


def test_worker_whose_gradient_is_refused_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would repeat the same gradient indefinitely, and keep its GPU."""
    server = served(tmp_path, 9)
    chunks.stage(tmp_path, 1)
    monkeypatch.setattr(Network, "gradient", lambda *_arguments: np.full(SIZE, np.nan))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(server)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{http.server_address[1]}"
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": [address]}}))
        mine = replace(server.mine, chunks=(0,), termination_log=tmp_path / "log")
        with Session(mine, at_server=True) as session:
            limit = threading.Timer(WAIT_SECONDS, session.refuse)
            limit.start()
            trainer = Trainer(session, tmp_path)
            with pytest.raises(RefusedError, match="is not finite"):
                trainer.train()
            limit.cancel()
            trainer._server.close()
        http.shutdown()
    assert session.exit_code == EXIT_UNFINISHED
    assert server.state.total == 0


class Shares(Reporter):
    """Reporter that sends nothing and has the allocations of the test."""

    hastened = 0

    @property
    def allocations(self) -> Mapping[int, Allocation]:
        return {0: Allocation(5e6)}

    def report_soon(self) -> None:
        self.hastened += 1


def test_a_worker_keeps_to_the_share_in_the_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = served(tmp_path, 2)
    shares = server.reporter = Shares(server.mine, server.progress)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(server)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{http.server_address[1]}"
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": [address]}}))
        connection = Connection(Session(replace(server.mine, chunks=(0,)), at_server=True))
        connection.exchange()
        assert connection.limit.bits_per_second == 5e6
        assert shares.hastened == 1
        connection.exchange(leave=1)
        assert shares.hastened == 2
        connection.close()
        http.shutdown()


def test_stopped_worker_does_not_wait_for_its_bandwidth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient may take longer at a small share than the grace period."""
    server = served(tmp_path, 2)
    monkeypatch.setattr(RateLimit.__init__, "__defaults__", (float("inf"), time.monotonic, never))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(server)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{http.server_address[1]}"
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": [address]}}))
        session = Session(replace(server.mine, chunks=(0,)), at_server=True)
        session.refuse()
        connection = Connection(session)
        connection.limit.bits_per_second = 1.0
        assert connection.push(Push(0, 0, np.zeros(SIZE)), "").counts == {0: 1}
        connection.close()
        http.shutdown()


def never(seconds: float) -> None:
    raise AssertionError(f"waits for {seconds} s")


def test_a_worker_that_is_done_delays_no_round(tmp_path: Path) -> None:
    server = served(tmp_path, 1, barrier=2, staleness=0)
    join(server, 0, 1)
    answers = together(lambda: push(server, 0, 0), lambda: push(server, 1, 0))
    assert [answer.headers[ROUND] for answer in answers] == ["1", "1"]
    server.mine = served(tmp_path, 2).mine
    assert counts(push(server, 1, 1)) == {"1": 2}, "worker 0 has left"


@pytest.mark.parametrize(("rule", "kept"), [("mean", False), ("median", True), ("trimmed-mean", True)])
def test_a_server_with_a_robust_rule_survives_an_attacker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, kept: bool
) -> None:
    server, draw = served(tmp_path, 10**6, barrier=5, staleness=0, aggregation=rule), np.random.default_rng(0)
    server.rate, network = 0.5, Network()
    x = draw.standard_normal((100, 64))
    y = (x @ draw.standard_normal((64, 10))).argmax(1)
    join(server, *range(5))
    begun = network.loss(server.state.parameters, x, y)

    def train(slot: int) -> None:
        parameters = server.state.parameters.copy()
        for batch in range(25):
            gradient = network.gradient(parameters, x[slot::5], y[slot::5]) * (-10.0 if slot == 4 else 1.0)
            query = {"slot": slot, "attempt": slot + 1, "chunks": slot, "chunk": slot, "batch": batch}
            answer = server.exchange({key: [str(one)] for key, one in query.items()}, gradient.tobytes(), "")
            assert answer is not None
            parameters = np.frombuffer(answer.parameters)

    monkeypatch.setattr(servers, "WAIT_SECONDS", WAIT_SECONDS)
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(train, range(5)))
    loss = network.loss(server.state.parameters, x, y)
    assert (loss < 0.8 * begun) is kept
    assert server.state.total == 125
