"""Slot tables on a real control plane: under `oasis`, jobs keep their reserved cells when another scheduler leads."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import VALIDATED, System, full_stack

SLOT = 30
POLICY = f"oasis:slot={SLOT}:horizon=24"
UTILITY = {"priority": 50.0, "decay": 1.0, "target": "20m"}
LONG, SHORT = 300.0, 15.0
"""Long: a job that the test ends itself, so that it is in its cells however long the take-over lasts."""
TOO_LONG = 30.0 * SLOT
"""One worker cannot complete this within the horizon."""
SECONDS = 300.0


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}, POLICY, VALIDATED) as made:
        yield made


def slots(system: System, name: str) -> dict[str, Any]:
    """Return offer and cells of a job; empty before the first offer is written."""
    plan = system.status(name).get("plan") or {}
    return dict((plan.get("grant") or {}).get("slots") or {})


def cells(system: System, name: str) -> list[dict[str, Any]]:
    return list(slots(system, name).get("cells", ()))


def until_cells(system: System, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = system.until(f"cells of {name}", lambda: cells(system, name))
    return found


def until_planned(system: System, name: str, leader: int) -> None:
    """Wait until a later leader has written the plan of the job."""
    system.until(f"a new plan of {name}", lambda: system.status(name)["plan"]["term"] > leader)


def attempts(system: System, name: str) -> int:
    return int(system.status(name)["plan"]["attempts"])


def test_jobs_keep_their_cells_over_a_take_over(system: System) -> None:
    for name in ("one", "two"):  # until their first slot, another job might take their GPUs
        system.submit(name, seconds=LONG, utility=UTILITY, preemption={"policy": "Never"})
        system.until_phase(name, "Running")
    system.submit("later", seconds=SHORT, utility=UTILITY)
    system.submit("endless", seconds=TOO_LONG, utility=UTILITY)
    before = {name: until_cells(system, name) for name in ("one", "two", "later")}
    offer = system.until("an offer to the fourth job", lambda: slots(system, "endless"))
    assert "cells" not in offer
    assert "payoff" not in offer
    assert before["later"][0]["first"] > min(before[name][0]["first"] for name in ("one", "two"))
    system.until("a note", lambda: "no GPUs are reserved for it until" in system.status("later")["plan"]["explanation"])
    text = "its work does not fit into the free time slots"
    system.until("the other note", lambda: text in system.status("endless")["plan"]["explanation"])

    leader = system.change_leader()
    for name, known in before.items():
        until_planned(system, name, leader)
        assert cells(system, name) == known, (name, slots(system, name), time.time() / SLOT)
    assert {attempts(system, name) for name in ("one", "two")} == {1}
    assert not system.pods("later")

    for name in ("one", "two"):
        (worker,) = system.pods(name)
        system.end_worker(worker)
    for name in ("one", "two", "later"):
        progress = system.until_phase(name, "Succeeded", SECONDS)["progress"]
        assert (progress["failures"], progress["preemptions"]) == (0, 0), name
        assert attempts(system, name) == 1
    system.until("a worker of the job without cells", lambda: system.status("endless")["phase"] == "Running", SECONDS)
    assert not cells(system, "endless")
    system.delete("endless", "one", "two", "later")
