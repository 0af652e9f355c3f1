"""Policies that distribute workers over jobs, on a real control plane: a job that arrives, leaves, and a take-over."""

from collections.abc import Iterator

import pytest

from support.full_stack import VALIDATED, System, full_stack
from tranche.model.attempt_record import AttemptRecord, unpack

GPUS = 4
LONG = 3000.0
"""Seconds of a chunk that does not end during its test, and a third of them neither, however slow the machine is."""


@pytest.fixture(params=["dorm", "optimus", "rrh"])
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": GPUS // 2}}, request.param, VALIDATED) as made:
        yield made


def attempts(system: System, name: str) -> set[int]:
    """Return the attempts of the open windows of a job."""
    workers = (system.status(name).get("plan") or {}).get("workers", ())
    return {one["attempt"] for one in workers if one["state"] != "Closing"}


def test_arrival_and_completion_move_workers_and_take_over_none(system: System) -> None:
    system.submit("large", chunks=GPUS, seconds=LONG)
    system.until_running("large", GPUS)
    system.until_trained("large", 0)
    system.submit("small", chunks=2, seconds=LONG / 3)
    system.until("a worker of the second job", lambda: system.status("small").get("activeWorkers", 0) >= 1)
    system.until("each GPU is used", lambda: len(attempts(system, "large")) + len(attempts(system, "small")) == GPUS)
    stopped = GPUS - len(attempts(system, "large"))
    assert 1 <= stopped <= 2
    records = system.until("the ends are counted", lambda: _ends(system, "large", stopped))
    assert {(one.reason, one.why) for one in records} == {
        ("Preempted", f"policy {system.stack.policy} gave its worker to other jobs")
    }

    before = {name: attempts(system, name) for name in ("large", "small")}
    term = system.change_leader()
    for name, known in before.items():
        system.until(f"a new plan of {name}", lambda name=name: system.status(name)["plan"]["term"] > term)  # type: ignore[misc]
        assert attempts(system, name) == known, name

    system.delete("small")
    system.until_running("large", GPUS)
    progress = system.status("large")["progress"]
    assert (progress["preemptions"], progress["failures"]) == (stopped, 0)
    system.delete("large")


def _ends(system: System, name: str, count: int) -> list[AttemptRecord]:
    records = [unpack(one) for one in system.status(name)["progress"].get("history", ())]
    return [one for one in records if one is not None] if len(records) == count else []
