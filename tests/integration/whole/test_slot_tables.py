"""Slot tables on a real control plane: under `oasis`, jobs keep their reserved cells when another scheduler leads."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import VALIDATED, Whole, full_stack

SLOT = 30
POLICY = f"oasis:slot={SLOT}:horizon=24"
UTILITY = {"priority": 50.0, "decay": 1.0, "target": "20m"}
LONG, SHORT = 300.0, 15.0
"""Long: a job that the test ends itself, so that it is in its cells however long the take-over lasts."""
TOO_LONG = 30.0 * SLOT
"""One worker cannot complete this within the horizon."""
SECONDS = 300.0


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}, POLICY, VALIDATED) as made:
        yield made


def slots(whole: Whole, name: str) -> dict[str, Any]:
    """Return offer and cells of a job; empty before the first offer is written."""
    plan = whole.status(name).get("plan") or {}
    return dict((plan.get("grant") or {}).get("slots") or {})


def cells(whole: Whole, name: str) -> list[dict[str, Any]]:
    return list(slots(whole, name).get("cells", ()))


def until_cells(whole: Whole, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = whole.until(f"cells of {name}", lambda: cells(whole, name))
    return found


def until_planned(whole: Whole, name: str, leader: int) -> None:
    """Wait until a later leader has written the plan of the job."""
    whole.until(f"a new plan of {name}", lambda: whole.status(name)["plan"]["term"] > leader)


def attempts(whole: Whole, name: str) -> int:
    return int(whole.status(name)["plan"]["attempts"])


def test_jobs_keep_their_cells_over_a_take_over(whole: Whole) -> None:
    for name in ("one", "two"):  # until their first slot, another job might take their GPUs
        whole.submit(name, seconds=LONG, utility=UTILITY, preemption={"policy": "Never"})
        whole.until_phase(name, "Running")
    whole.submit("later", seconds=SHORT, utility=UTILITY)
    whole.submit("endless", seconds=TOO_LONG, utility=UTILITY)
    before = {name: until_cells(whole, name) for name in ("one", "two", "later")}
    offer = whole.until("an offer to the fourth job", lambda: slots(whole, "endless"))
    assert "cells" not in offer
    assert "payoff" not in offer
    assert before["later"][0]["first"] > min(before[name][0]["first"] for name in ("one", "two"))
    whole.until("a note", lambda: "no GPUs are reserved for it until" in whole.status("later")["plan"]["explanation"])
    text = "its work does not fit into the free time slots"
    whole.until("the other note", lambda: text in whole.status("endless")["plan"]["explanation"])

    leader = whole.change_leader()
    for name, known in before.items():
        until_planned(whole, name, leader)
        assert cells(whole, name) == known, (name, slots(whole, name), time.time() / SLOT)
    assert {attempts(whole, name) for name in ("one", "two")} == {1}
    assert not whole.pods("later")

    for name in ("one", "two"):
        (worker,) = whole.pods(name)
        whole.end_worker(worker)
    for name in ("one", "two", "later"):
        progress = whole.until_phase(name, "Succeeded", SECONDS)["progress"]
        assert (progress["failures"], progress["preemptions"]) == (0, 0), name
        assert attempts(whole, name) == 1
    whole.until("a worker of the job without cells", lambda: whole.status("endless")["phase"] == "Running", SECONDS)
    assert not cells(whole, "endless")
    whole.delete("endless", "one", "two", "later")
