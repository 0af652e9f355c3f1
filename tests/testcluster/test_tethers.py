"""Started processes never outlive the one that started them."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tranche_testcluster
from support.waiting import WAIT_SECONDS, eventually, stays
from tranche_testcluster import spawn, tethered

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tranche_testcluster.__file__).parents[1])}
PARENT = """
import signal, subprocess, sys, threading, time
from tranche_testcluster import tethered

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background

def start():
    child = subprocess.Popen(tethered(["sleep", "600"]), start_new_session=True)
    print(child.pid, flush=True)

if sys.argv[1] == "thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("started_by", ["main", "thread"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_tethered_process_ends_with_parent_but_not_with_thread(started_by: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, started_by]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            stays(lambda: alive(child), "it died with the thread", seconds=0.2)
            parent.send_signal(number)
            eventually(lambda: not alive(child), "it ends with its parent")
        finally:
            parent.kill()


def test_a_tethered_process_is_the_command_itself() -> None:
    script = "import os, sys; print(os.getpid()); sys.exit(7)"
    with subprocess.Popen(tethered([sys.executable, "-c", script]), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == process.pid  # and the output ends although the watchdog lives on
    assert process.returncode == 7


def test_a_tethered_process_gets_the_same_signals_as_any_other() -> None:
    command = ["grep", "^Sig[BCI]", "/proc/self/status"]
    plain, tied = (subprocess.run(one, capture_output=True, check=True).stdout for one in (command, tethered(command)))
    assert tied == plain


def test_a_command_that_cannot_be_run_is_named() -> None:
    answer = subprocess.run(tethered(["/no/such/command"]), capture_output=True, text=True, check=False)
    assert answer.returncode == 127
    assert "/no/such/command" in answer.stderr


def test_a_command_whose_parent_is_gone_already_is_not_started() -> None:
    mine = tethered(["echo", "started"])
    other = [sys.executable, "-c", f"import subprocess; subprocess.run({mine!r})"]  # another parent
    answer = subprocess.run(other, capture_output=True, text=True, check=True)
    assert answer.stdout == ""
    assert "gone" in answer.stderr


def test_spawned_processes_from_any_thread_append_to_their_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started: list[subprocess.Popen[bytes]] = []
    for text in ("one", "two"):
        thread = threading.Thread(target=lambda text=text: started.append(spawn(["echo", text], log=log)))
        thread.start()
        thread.join()
        assert started[-1].wait(WAIT_SECONDS) == 0
    assert log.read_text() == "one\ntwo\n"
