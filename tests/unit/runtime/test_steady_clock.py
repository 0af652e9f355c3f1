"""The wall clock of planner and operator when the clock of their node is set."""

import time
from email.utils import formatdate
from random import Random

import pytest

from support.live_controller import NOW
from tranche.kube.client.client import ApiClient
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.planner_config import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.runtime.steady_clock import SteadyClock
from tranche_operator.app import Operator
from tranche_operator.settings import Settings

HOUR = 3600.0


class Node:
    """Clocks of a node: `system` may be set, `stopwatch` not."""

    def __init__(self) -> None:
        self.system, self.stopwatch = NOW, 100.0

    def wait(self, seconds: float) -> None:
        self.system += seconds
        self.stopwatch += seconds


def steady(node: Node) -> SteadyClock:
    return SteadyClock(lambda: node.system, lambda: node.stopwatch)


def test_clock_follows_the_system_and_its_small_corrections() -> None:
    node = Node()
    clock = steady(node)
    for _ in range(10):
        node.wait(60.0)
        node.system += 0.1
        assert clock() == pytest.approx(node.system, abs=1e-6)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_step_changes_no_duration_by_more_than_half(step: float) -> None:
    node = Node()
    clock = steady(node)
    before = clock()
    node.system += step
    assert clock() == before
    node.wait(10.0)
    assert 5.0 <= clock() - before <= 15.0


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_clock_agrees_with_the_system_two_hours_after_a_step(step: float) -> None:
    node = Node()
    clock = steady(node)
    node.system += step
    for _ in range(121):
        node.wait(60.0)
        clock()
    assert clock() == pytest.approx(node.system)


@pytest.mark.parametrize("seed", range(20))
def test_clock_never_goes_back(seed: int) -> None:
    draw, node = Random(seed), Node()
    clock = steady(node)
    last = clock()
    for _ in range(200):
        node.wait(draw.choice([0.0, 0.001, 1.0, 30.0]))
        node.system += draw.choice([0.0, 0.0, 0.0, -HOUR, HOUR, 0.01])
        now = clock()
        assert now >= last
        last = now


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node()
    monkeypatch.setattr(time, "time", lambda: node.system)
    monkeypatch.setattr(time, "clock_gettime", lambda which: node.stopwatch)
    return node


def test_planner_holds_no_job_longer_after_a_step(node: Node) -> None:
    """A hold of 10 s would last for an hour if the time of the planner went back."""
    watches = Informers(None)  # type: ignore[arg-type]
    controller = Controller(ApiClient(None, None), watches, PlannerConfig("chunk").planner(), Metrics())  # type: ignore[arg-type]
    until = controller.clock() + 10.0
    node.system -= HOUR
    for _ in range(20):
        node.wait(1.0)
        controller.clock()
    assert controller.clock() >= until


def test_planner_counts_by_the_clock_of_the_api_server(node: Node) -> None:
    """With its own clock an hour ahead, each pod that starts would be over its time, and each silent node be lost."""
    client = ApiClient(None, None)  # type: ignore[arg-type]
    node.system += HOUR
    client._note_date(formatdate(NOW, usegmt=True), node.system, node.system)
    watches = Informers(None)  # type: ignore[arg-type]
    controller = Controller(client, watches, PlannerConfig("chunk").planner(), Metrics())
    assert controller.clock() == pytest.approx(NOW, abs=1.0)


def test_operator_passes_no_deadline_earlier_by_a_step(node: Node) -> None:
    """A job with activeDeadlineSeconds would fail when the clock of the operator's node is set forward."""
    operator = Operator(ApiClient(None, None), Settings())  # type: ignore[arg-type]
    before = operator._resync._clock()
    node.system += HOUR
    node.wait(10.0)
    assert (operator._resync._clock() - before).total_seconds() <= 15.0
