"""Ends of a process under faults, and of the children that it starts again, from a log made by hand."""

from pathlib import Path

import pytest

from chaos.processes import LEADERSHIP_LOST, LEASE_TAKEN, Process

CRASH = "ERROR: the api ended with status 1; starting it again in 1 s\n"
ENDED = "ERROR: the planner ended with status 1; starting it again in 1 s\n"
TAKEN = f"Error: {LEASE_TAKEN} other (term 2)\n{ENDED}"
LAPSED = f"Error: {LEADERSHIP_LOST}: Lease tranche-scheduler could not be renewed: TimeoutError\n{ENDED}"


@pytest.mark.parametrize(
    ("said", "rival", "found"),
    [
        ("", False, 0),
        (CRASH, True, 1),
        (TAKEN, True, 0),
        (TAKEN, False, 1),
        (LAPSED, False, 0),
        (TAKEN + CRASH, True, 1),
    ],
)
def test_planner_may_end_only_without_the_lease(said: str, rival: bool, found: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(said)
    assert len(Process("scheduler", ["true"], log).unexpected(rival=rival)) == found
