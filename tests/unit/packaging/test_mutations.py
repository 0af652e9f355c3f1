"""Each row of docs/explanation/enactment.md can still be tried: its code, its tests and its text exist."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_mutation_check_finds_code_tests_and_rows() -> None:
    command = [sys.executable, "benchmarks/mutations.py", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr.splitlines()) == (0, [])
