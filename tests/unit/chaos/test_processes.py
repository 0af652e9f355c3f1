"""Ends of a process under faults, and of the children that it starts again, from a log made by hand."""

from pathlib import Path

import pytest

from chaos.processes import DEPOSED, Process

CRASH = "ERROR: the api ended with status 1; starting it again in 1 s\n"
REPLACED = f"Error: {DEPOSED}: Lease\nERROR: the planner ended with status 1; starting it again in 1 s\n"


@pytest.mark.parametrize(
    ("said", "rival", "found"),
    [
        ("", False, 0),
        (CRASH, True, 1),
        (REPLACED, True, 0),
        (REPLACED, False, 1),
        (REPLACED + CRASH, True, 1),
    ],
)
def test_children_may_end_only_for_a_new_leader(said: str, rival: bool, found: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(said)
    assert len(Process("scheduler", ["true"], log).unexpected(rival=rival)) == found
