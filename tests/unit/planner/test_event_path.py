"""Following one event through the planner: how many of its functions that visits."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import pytest

import tranche.planner
from support.builders import job, node, of_type
from tranche.model import Report
from tranche.planner import (
    Event,
    Instruction,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    PlannerSettings,
    ProgressReported,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.dispatch import HANDLERS, apply
from tranche.policies import get_policy

PLANNER = str(Path(tranche.planner.__file__).parent)
KEY = "default/a"


def visited(call: Callable[[], object]) -> set[tuple[str, str]]:
    """File and name of the planner's functions that a call enters."""
    found = set()

    def note(frame: FrameType, what: str, _: Any) -> None:
        code = frame.f_code
        if what == "call" and code.co_filename.startswith(PLANNER) and not code.co_name.startswith("<"):
            found.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def submitted(policy: str) -> tuple[Planner, set[tuple[str, str]]]:
    """A planner without checks whose job has just got two windows, and what that visited."""
    made = Planner(get_policy(policy), PlannerSettings())
    made.handle(NodeChanged(node("n1", gpus=2)), 0.0)
    path = visited(lambda: made.handle(JobSubmitted(job("a", chunks=2)), 0.0))
    assert len(made.cluster.jobs[KEY].runs) == 2
    return made, path


@pytest.mark.parametrize("policy", ["srsf", "chunk", "chunk-faithful"])
def test_event_of_a_running_job_visits_under_40_functions(policy: str) -> None:
    made, _ = submitted(policy)
    first = next(iter(made.cluster.jobs[KEY].runs.values())).window
    report = Report(KEY, first.attempt, {first.chunks[0]: 1.0}, {first.chunks[0]: 1.0})
    for now, event in (
        (1.0, WorkerBound(KEY, first.attempt, first.node or "")),
        (2.0, WorkerStarted(KEY, first.attempt, 2.0)),
        (9.0, ProgressReported(report, 9.0)),
    ):
        path = visited(lambda event=event, now=now: made.handle(event, now))  # type: ignore[misc]
        assert 5 < len(path) < 40, sorted(path)
    assert made.cluster.jobs[KEY].known_batches(first.chunks[0]) == 1.0


@pytest.mark.parametrize("policy", ["srsf", "chunk", "chunk-faithful"])
def test_job_that_starts_at_once_visits_under_60_functions(policy: str) -> None:
    path = submitted(policy)[1]
    assert 20 < len(path) < 60, sorted(path)


@pytest.mark.parametrize("policy", ["srsf", "chunk", "chunk-faithful"])
def test_end_that_starts_another_job_visits_under_80_functions(policy: str) -> None:
    made, _ = submitted(policy)
    first = next(iter(made.cluster.jobs[KEY].runs.values())).window
    made.handle(WorkerStarted(KEY, first.attempt, 2.0), 2.0)
    made.handle(JobSubmitted(job("b", chunks=5)), 3.0)
    instructions: list[Instruction] = []
    end = WorkerEnded(KEY, first.attempt, "Succeeded", 9.0)
    path = visited(lambda: instructions.extend(made.handle(end, 9.0)))
    assert [one.job for one in of_type(OpenWindow, instructions)] == ["default/b"]
    assert 20 < len(path) < 80, sorted(path)


def test_applying_a_workers_end_visits_under_25_functions() -> None:
    made, _ = submitted("chunk")
    first = next(iter(made.cluster.jobs[KEY].runs.values())).window
    made.handle(WorkerStarted(KEY, first.attempt, 2.0), 2.0)
    made.context.begin(9.0)
    path = visited(lambda: apply(made.context, WorkerEnded(KEY, first.attempt, "Succeeded", 9.0)))
    assert made.cluster.jobs[KEY].done == set(first.chunks)
    assert len(path) < 25, sorted(path)


def test_every_kind_of_event_has_a_handler() -> None:
    assert HANDLERS.keys() == set(get_args(Event)) - {Tick}
