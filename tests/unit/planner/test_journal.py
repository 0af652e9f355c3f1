"""A journaled planner decides as any other, and records the course of windows."""

from support.builders import job, node
from tranche.planner import (
    CloseWindow,
    Event,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.journal import Fact, JournaledPlanner
from tranche.policies import get_policy

EVENTS: list[tuple[float, Event]] = [
    (0.0, NodeChanged(node("a"))),
    (0.0, JobSubmitted(job("long"))),
    (1.0, WorkerStarted("default/long", 1, 1.0)),
    (5.0, JobSubmitted(job("short", 5.0, seconds=10.0))),
    (6.0, WorkerEnded("default/long", 1, "Preempted", 6.0, {0: 5.0}, 143)),
    (6.5, WorkerEnded("default/long", 1, "Lost", 6.5)),  # the pod is gone
    (7.0, WorkerStarted("default/short", 1, 6.75)),
]


def test_journal_records_windows_from_open_to_end_with_handovers() -> None:
    facts: list[Fact] = []
    planner = JournaledPlanner(get_policy("srsf"), None, facts.append)
    for now, event in EVENTS:
        planner.handle(event, now)
    assert facts == [
        Fact(0.0, "submitted", "default/long"),
        Fact(0.0, "opened", "default/long", 1, "a", (0,)),
        Fact(1.0, "started", "default/long", 1),
        Fact(5.0, "submitted", "default/short"),
        Fact(5.0, "closing", "default/long", 1),
        Fact(5.0, "opened", "default/short", 1, "a", (0,), handover=True),
        Fact(6.0, "ended", "default/long", 1, outcome="Preempted"),
        Fact(6.75, "started", "default/short", 1),
    ]


def test_keeping_a_journal_changes_no_decision() -> None:
    plain, journaled = Planner(get_policy("srsf")), JournaledPlanner(get_policy("srsf"), None, lambda fact: None)
    for now, event in EVENTS:
        assert plain.handle(event, now) == journaled.handle(event, now)


def test_a_restored_planner_tells_of_what_it_opens_itself() -> None:
    facts: list[Fact] = []
    planner = JournaledPlanner(get_policy("fifo"), None, facts.append)
    planner.handle(NodeChanged(node("a")), 0.0)
    instructions = planner.restore([JobSubmitted(job("j"))], 3.0)
    assert sum(isinstance(one, OpenWindow | CloseWindow) for one in instructions) == 1
    assert facts == [Fact(3.0, "opened", "default/j", 1, "a", (0,))]


def test_journaled_planner_forecasts_without_recording() -> None:
    facts: list[Fact] = []
    planner = JournaledPlanner(get_policy("chunk"), None, facts.append)
    planner.handle(NodeChanged(node("n1")), 0.0)
    planner.handle(JobSubmitted(job("a")), 0.0)
    noted = list(facts)
    assert planner.forecast(0.0)["default/a"].completion == 100.0
    assert facts == noted
