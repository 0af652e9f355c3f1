"""The clock of another process, stepped while it runs."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.clocks import Clock, clock

ASK = (
    "import sys, time, datetime as d\nfor _ in sys.stdin: print(time.time(), d.datetime.now().timestamp(), flush=True)"
)


@pytest.fixture
def stepped(tmp_path: Path) -> Clock:
    made = clock(tmp_path)
    if made is None:
        pytest.skip("there is no C compiler (Debian: apt-get install gcc)")
    return made


def test_a_running_process_sees_each_step_in_its_wall_clock(stepped: Clock) -> None:
    command = [sys.executable, "-c", ASK]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=stepped.environment, **pipes) as process:  # type: ignore[call-overload]
        for seconds in (0.0, 12.25, -7200.75, 0.0):
            stepped.step(seconds)
            began = time.time()
            process.stdin.write("now\n")
            process.stdin.flush()
            line = process.stdout.readline()
            answered = time.time()  # a loaded machine answers late, and between these two the process read its clock
            for shown in line.split():
                assert began - 0.01 <= float(shown) - seconds <= answered + 0.01
        process.stdin.close()
