"""Policies that distribute workers over jobs, on a real control plane: a job that arrives, leaves, and a take-over."""

from collections.abc import Iterator

import pytest

from support.full_stack import VALIDATED, Whole, full_stack
from tranche.model.attempt_record import AttemptRecord, unpack

GPUS = 4
LONG = 3000.0
"""Seconds of a chunk that does not end during its test, and a third of them neither, however slow the machine is."""


@pytest.fixture(params=["dorm", "optimus", "rrh"])
def whole(request: pytest.FixtureRequest) -> Iterator[Whole]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": GPUS // 2}}, request.param, VALIDATED) as made:
        yield made


def attempts(whole: Whole, name: str) -> set[int]:
    """Return the attempts of the open windows of a job."""
    workers = (whole.status(name).get("plan") or {}).get("workers", ())
    return {one["attempt"] for one in workers if one["state"] != "Closing"}


def test_arrival_and_completion_move_workers_and_take_over_none(whole: Whole) -> None:
    whole.submit("large", chunks=GPUS, seconds=LONG)
    whole.until_running("large", GPUS)
    whole.until_trained("large", 0)
    whole.submit("small", chunks=2, seconds=LONG / 3)
    whole.until("a worker of the second job", lambda: whole.status("small").get("activeWorkers", 0) >= 1)
    whole.until("each GPU is used", lambda: len(attempts(whole, "large")) + len(attempts(whole, "small")) == GPUS)
    stopped = GPUS - len(attempts(whole, "large"))
    assert 1 <= stopped <= 2
    records = whole.until("the ends are counted", lambda: _ends(whole, "large", stopped))
    assert {(one.reason, one.why) for one in records} == {
        ("Preempted", f"policy {whole.stack.policy} gave its worker to other jobs")
    }

    before = {name: attempts(whole, name) for name in ("large", "small")}
    term = whole.change_leader()
    for name, known in before.items():
        whole.until(f"a new plan of {name}", lambda name=name: whole.status(name)["plan"]["term"] > term)  # type: ignore[misc]
        assert attempts(whole, name) == known, name

    whole.delete("small")
    whole.until_running("large", GPUS)
    progress = whole.status("large")["progress"]
    assert (progress["preemptions"], progress["failures"]) == (stopped, 0)
    whole.delete("large")


def _ends(whole: Whole, name: str, count: int) -> list[AttemptRecord]:
    records = [unpack(one) for one in whole.status(name)["progress"].get("history", ())]
    return [one for one in records if one is not None] if len(records) == count else []
