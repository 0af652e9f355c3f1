"""Output of the simulator commands to a file system without room."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_output_to_a_full_disk_fails_with_one_line(tmp_path: Path, form: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text("job_id,submit_time,num_gpu,duration\na,0,1,10\n")
    command = [sys.executable, "-m", "tranche", "simulate", str(log), "--gpus", "4", "--quiet", "--format", form]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "Error: the output cannot be written: No space left on device\n")
