"""What the demo sees of a cluster that does not answer for a moment, or any more."""

from typing import Any, cast

import pytest
from rich.console import Console

import tranche.demo.runs as runs
from tranche.demo.observations import observe
from tranche_testcluster import Cluster


class Sleepy:
    """A cluster whose first answers do not come."""

    def __init__(self, silent: int) -> None:
        self.silent = silent

    def request(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        self.silent -= 1
        if self.silent >= 0:
            raise TimeoutError("The read operation timed out")
        return 200, {"items": []}


def test_an_answer_that_did_not_come_is_asked_for_again() -> None:
    assert observe(cast("Cluster", Sleepy(1)), "default").jobs == ()
    with pytest.raises(TimeoutError):
        observe(cast("Cluster", Sleepy(2)), "default")


def test_a_cluster_that_does_not_answer_ends_the_demo_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_silent(*_: object) -> bool:
        observe(cast("Cluster", Sleepy(2)), "default")
        return True

    monkeypatch.setattr(runs, "_run", fall_silent)
    with pytest.raises(runs.DemoError, match=r"^the API server does not answer \(The read operation timed out\)"):
        runs.run(Console(), runs.DemoSettings())
