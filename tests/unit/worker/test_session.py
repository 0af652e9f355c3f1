import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.waiting import WAIT_SECONDS
from tranche_worker import (
    EXIT_DONE,
    EXIT_FENCED,
    EXIT_TERMINATED,
    EXIT_UNFINISHED,
    Assignment,
    Session,
    ignore_sigterm,
    reporter,
)
from tranche_worker import session as sessions


def assigned(tmp_path: Path, **resume: int) -> Assignment:
    """Chunks 5 and 0 of 4 batches each."""
    return Assignment(
        job="ns/cats",
        attempt=3,
        chunks=(5, 0),
        chunk_count=9,
        epochs=2,
        batches_per_chunk=2,
        resume={int(chunk.removeprefix("c")): count for chunk, count in resume.items()},
        checkpoint_directory=tmp_path,
        grace_seconds=700.0,
        termination_log=tmp_path / "log",
    )


def left(tmp_path: Path) -> dict[str, int]:
    return dict(json.loads((tmp_path / "log").read_text()))


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_batches_follow_window_order_from_earlier_progress(tmp_path: Path) -> None:
    seen = []
    with Session(assigned(tmp_path, c5=2)) as session:
        for chunk, batch in session.batches():
            seen.append((chunk, batch))
            session.trained({chunk: batch + 1})
        session.saved()
    assert seen == [(5, 2), (5, 3), (0, 0), (0, 1), (0, 2), (0, 3)]
    assert (session.exit_code, left(tmp_path)) == (EXIT_DONE, {"5": 4, "0": 4})


def test_sigterm_finishes_current_batch_and_counts_last_save(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        assert session.seconds_left == float("inf")
        for chunk, batch in session.batches():
            if batch == 2:
                terminate()
            session.trained({chunk: batch + 1})
        assert session.stopping
        assert 0 < session.seconds_left <= 700.0
        session.saved()
    assert (session.exit_code, left(tmp_path)) == (EXIT_TERMINATED, {"5": 3, "0": 0})


def test_what_was_trained_and_not_saved_is_not_left_behind(tmp_path: Path) -> None:
    session = Session(assigned(tmp_path, c0=1))

    def train() -> None:
        with session:
            for chunk, batch in session.batches():
                session.trained({chunk: batch + 1})
                if batch == 1:
                    session.saved()
                if batch == 2:
                    raise MemoryError

    with pytest.raises(MemoryError):
        train()
    assert (session.exit_code, left(tmp_path)) == (EXIT_UNFINISHED, {"5": 2, "0": 1})


@pytest.mark.parametrize("path", ["missing/log", "."])
def test_last_report_is_sent_without_termination_message(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[dict[str, Any]] = []

    def post(_mine: Assignment, _api: str, _action: str, body: dict[str, Any], _timeout: float) -> bytes:
        reports.append(body)
        return b""

    monkeypatch.setattr(reporter, "post", post)
    mine = replace(assigned(tmp_path), termination_log=tmp_path / path, api="http://reports.test")
    with Session(mine, at_server=True) as session:
        session.trained({5: 4, 0: 4})
    assert session.exit_code == EXIT_DONE
    assert reports[-1]["durable"] == {5: 4, 0: 4}
    assert f"the termination message cannot be written to {tmp_path / path}" in caplog.text


def test_sigterm_after_the_last_batch_is_success(tmp_path: Path) -> None:
    with Session(assigned(tmp_path), at_server=True) as session:
        session.trained({5: 4, 0: 4})
        terminate()
    assert session.exit_code == EXIT_DONE


def test_session_at_server_needs_no_save_and_repeats_lost_work(tmp_path: Path) -> None:
    seen = []
    with Session(assigned(tmp_path), at_server=True) as session:
        for chunk, batch in session.batches():
            seen.append((chunk, batch))
            lost = (chunk, batch) == (0, 1) and seen.count((0, 1)) == 1
            session.trained({5: 2, 0: 1, 7: 3} if lost else {chunk: batch + 1})
    assert seen == [(5, 0), (5, 1), (5, 2), (5, 3), (0, 0), (0, 1), (5, 2), (5, 3), (0, 1), (0, 2), (0, 3)]
    assert left(tmp_path) == {"5": 4, "0": 4}, "chunks of others are not reported"


def test_fenced_worker_stops_and_leaves_no_progress(tmp_path: Path) -> None:
    with Session(assigned(tmp_path), at_server=True) as session:
        for chunk, batch in session.batches():
            session.trained({chunk: batch + 1})
            session.refuse()
    assert session.exit_code == EXIT_FENCED
    assert not (tmp_path / "log").exists()


def test_fenced_worker_withdraws_what_it_has_left(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        session.trained({5: 2})
        session.saved()
        assert left(tmp_path) == {"5": 2, "0": 0}
        session.refuse()
    assert not (tmp_path / "log").read_text()


def test_waiting_ends_at_once_when_the_worker_is_to_stop(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        terminate()
        assert session.wait(3600.0)


def test_wait_of_the_seconds_left_may_be_infinite(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        stopping = threading.Timer(0.1, session.refuse)
        stopping.start()
        assert session.wait(session.seconds_left)
        stopping.join()


def test_sigterm_ends_waits_of_all_threads(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        waits = [threading.Thread(target=session.wait, args=(3600.0,), daemon=True) for _ in range(3)]
        for thread in [*waits, threading.Thread(target=terminate)]:
            thread.start()
        assert session.wait(3600.0)
        for thread in waits:
            thread.join(WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in waits)


def interrupt_each_instruction(mine: Assignment, call: Callable[[Session], object]) -> None:
    """Call once for each bytecode instruction of the call, and send SIGTERM before that instruction."""
    instruction, terminated = 0, True
    while terminated:
        instruction += 1
        passed = 0

        def trace(frame: FrameType, event: str, _argument: object, last: int = instruction) -> Any:
            nonlocal passed
            frame.f_trace_opcodes = True
            if event == "opcode":
                passed += 1
                if passed == last:
                    terminate()
            return trace

        with Session(mine) as session:
            sys.settrace(trace)
            call(session)
            sys.settrace(None)
        terminated = session.seconds_left < float("inf")
        assert session.stopping or not terminated
    assert instruction > 10


@pytest.mark.parametrize("call", [lambda session: session.wait(0.001), Session.refuse], ids=["wait", "refuse"])
def test_sigterm_at_any_instruction_of_a_call_is_handled(tmp_path: Path, call: Callable[[Session], object]) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=interrupt_each_instruction, args=(assigned(tmp_path), call)
    )
    process.start()
    process.join(WAIT_SECONDS)
    exit_code = process.exitcode
    process.kill()
    process.join()
    assert exit_code == 0, "it hangs" if exit_code is None else "see its traceback"


def test_afterwards_sigterm_is_whose_it_was(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Session(assigned(tmp_path)):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_ends_child_process_forked_in_the_session(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        fork = multiprocessing.get_context("fork")
        begun = fork.Event()

        def idle() -> None:
            begun.set()
            threading.Event().wait()

        child = fork.Process(target=idle)
        child.start()
        assert begun.wait(WAIT_SECONDS), "Python drops signals that arrive during the fork"
        child.terminate()
        child.join(WAIT_SECONDS)
        exit_code = child.exitcode
        child.kill()
        child.join()
        assert not session.stopping
    assert exit_code == -signal.SIGTERM


def member(tmp_path: Path, *chunks: int) -> Assignment:
    """Return the assignment of a member of a gang of three."""
    return replace(assigned(tmp_path), chunks=chunks, chunk_count=3, epochs=1, batches_per_chunk=1)


def test_gang_member_reports_all_chunks_and_leaves_its_own_part(tmp_path: Path) -> None:
    with Session(member(tmp_path, 1), gang=True) as session:
        session.advanced(0.25)
        session.saved()
        session.advanced(0.75)
        terminate()
        progress = session.progress()
    assert (progress.applied, progress.durable) == (dict.fromkeys(range(3), 0.75), dict.fromkeys(range(3), 0.25))
    assert (session.exit_code, left(tmp_path)) == (EXIT_TERMINATED, {"1": 0.25})


def test_a_gang_is_done_when_all_of_its_training_is_saved(tmp_path: Path) -> None:
    with Session(member(tmp_path), gang=True) as session:
        session.advanced(1.0)
        assert session.exit_code == EXIT_UNFINISHED
        session.saved()
    assert (session.exit_code, left(tmp_path)) == (EXIT_DONE, {})


def test_progress_may_be_scalars_of_an_array_library(tmp_path: Path) -> None:
    """The step of a checkpoint most often is one; an end without a message would count as a failure."""
    member = replace(assigned(tmp_path), chunks=(1,), chunk_count=2, epochs=1, batches_per_chunk=1)
    with Session(member, gang=True) as session:
        session.advanced(np.float32(0.25))  # type: ignore[arg-type]
        session.saved()
        terminate()
    assert (session.exit_code, left(tmp_path)) == (EXIT_TERMINATED, {"1": 0.25})


def test_batches_may_be_scalars_of_an_array_library(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        session.trained({5: np.int64(3), 0: np.float32(1.0)})  # type: ignore[dict-item]
        session.timed(np.float32(0.5), np.float32(0.1), np.float32(0.4))  # type: ignore[arg-type]
        session.iterated(0, np.int64(32), np.float32(0.5))  # type: ignore[arg-type]
        session.saved()
        assert json.loads(json.dumps(asdict(session.progress())))["durable"] == {"5": 3.0, "0": 1.0}
    assert left(tmp_path) == {"5": 3, "0": 1}


def test_killed_worker_leaves_what_it_has_saved(tmp_path: Path) -> None:
    """It is killed if it runs out of memory, or if its last save takes longer than the grace period."""

    def train() -> None:
        with Session(assigned(tmp_path)) as session:
            session.trained({5: 3})
            session.saved()
            session.trained({5: 4})
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=train)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert left(tmp_path) == {"5": 3, "0": 0}


def test_background_save_counts_what_was_trained_before_it(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        session.trained({5: 3})
        snapshot = session.snapshot()
        session.trained({5: 4, 0: 1})
        session.saved(snapshot)
        assert session.progress().durable == {5: 3, 0: 0}
    assert left(tmp_path) == {"5": 3, "0": 0}


def test_background_save_of_former_chunks_changes_no_other(tmp_path: Path) -> None:
    with Session(assigned(tmp_path)) as session:
        session.trained({5: 3})
        session.saved()
        session.saved({7: 4, 0: 2})
    assert left(tmp_path) == {"5": 3, "0": 2}


def test_second_sigterm_does_not_extend_the_grace_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet sends SIGTERM again when somebody deletes the pod with a shorter grace period."""
    now = [100.0]
    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Session(assigned(tmp_path)) as session:
        terminate()
        now[0] += 5.0
        terminate()
        assert session.seconds_left == 695.0


def test_process_of_a_data_loader_ends_only_by_its_parent(tmp_path: Path) -> None:
    """torchrun sends SIGTERM to the process group of a member; see tests/integration/worker/test_torch_loader.py."""
    with Session(assigned(tmp_path)):
        fork = multiprocessing.get_context("fork")
        requests, responses = fork.SimpleQueue(), fork.SimpleQueue()

        def load() -> None:
            ignore_sigterm(0)
            while True:
                responses.put(requests.get())

        child = fork.Process(target=load)
        child.start()
        for request in range(3):
            requests.put(request)
            assert responses.get() == request
            subprocess.run(["kill", "-TERM", str(child.pid)], check=True)
        for _ in range(200):  # a signal is dropped while an earlier one is pending
            child.terminate()
            child.join(0.1)
        exit_code = child.exitcode
        child.kill()
        child.join()
    assert exit_code == 0
