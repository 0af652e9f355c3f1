"""Runs of several commands, of which some fail."""

import subprocess
import sys

from support.doc_pages import ROOT


def run(*commands: str) -> tuple[int, str]:
    """Return exit code and output."""
    call = [sys.executable, "tools/run_in_turn.py", *commands]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_commands_after_a_failed_one_run_and_the_exit_code_is_1() -> None:
    code, output = run("-c 'raise SystemExit(3)'", "-c 'print(6 * 7)'")
    assert code == 1
    assert "42" in output.splitlines()
    assert "1 of 2 commands passed" in output
    assert "exit 3" in output


def test_exit_code_is_0_if_all_commands_pass() -> None:
    assert run("-c pass", "-c pass")[0] == 0
