"""Decisions of the planner are logged with effect and cause, one line each and not one for each pod."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from string import Formatter
from typing import Any, get_args, get_type_hints

import pytest

from support.builders import gang, job, node, planner
from tranche.live.decision_log import CAUSES, PACE_SECONDS, DecisionLog
from tranche.model import Node, Site
from tranche.model.place_counts import MAX_PLACES
from tranche.planner import (
    Event,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Outcome,
    Planner,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.state.node_health import HealthSettings

NODES = [node("n1", "cloud", 8), node("n2", "edge-a", 4)]


class Course:
    """A planner with its decision log, and the lines of this log."""

    def __init__(
        self, caplog: pytest.LogCaptureFixture, nodes: Sequence[Node] = NODES, made: Planner | None = None
    ) -> None:
        caplog.set_level(logging.INFO, logger="tranche.live.decision_log")
        self.caplog = caplog
        self.planner = made or planner("srsf", list(nodes))
        self.log = DecisionLog(self.planner)
        self.log.restored(0.0)

    def handle(self, event: Event, now: float, *more: Event) -> list[str]:
        """Handle events together, and return the new lines."""
        before = len(self.caplog.records)
        instructions = self.planner.handle_all((event, *more), now)
        self.log.flush(now)
        self.log.decided(instructions, (event, *more), now)
        return [record.getMessage() for record in self.caplog.records[before:]]

    def plan(self, name: str, now: float) -> list[str]:
        """Write the plan of a job, and return the new lines."""
        before = len(self.caplog.records)
        key = f"default/{name}"
        self.log.planned(key, self.planner.plan_of(key, now), now)
        return [record.getMessage() for record in self.caplog.records[before:]]

    def start(self, name: str, now: float) -> None:
        """Let all workers of a job train."""
        for attempt in list(self.planner.cluster.jobs[f"default/{name}"].runs):
            self.handle(WorkerStarted(f"default/{name}", attempt, now), now)

    def end(self, name: str, outcome: Outcome, now: float, code: int | None = None) -> list[str]:
        """Let the first worker of a job end."""
        attempt = next(iter(self.planner.cluster.jobs[f"default/{name}"].runs))
        return self.handle(WorkerEnded(f"default/{name}", attempt, outcome, now, None, code), now)


def test_windows_of_a_job_are_one_line_counted_by_site(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog)
    submitted, opened = course.handle(JobSubmitted(job("large", chunks=12)), 0.0)
    assert submitted == (
        "default/large is planned from now on: 12 chunks, at most 12 workers of 1 GPU (cause: it was submitted)"
    )
    assert opened == "default/large opens 12 windows: 8 at cloud, 4 at edge-a (cause: default/large was submitted)"


def test_line_has_its_facts_as_fields_for_json(caplog: pytest.LogCaptureFixture) -> None:
    Course(caplog).handle(JobSubmitted(job("large", chunks=12)), 0.0)
    fields = vars(caplog.records[-1])
    assert (fields["job"], fields["decision"]) == ("default/large", "opens")
    assert (fields["count"], fields["places"]) == (12, {"cloud": 8, "edge-a": 4})
    assert fields["cause"] == "default/large was submitted"


def test_preemption_is_logged_for_both_jobs_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=2)])
    course.handle(JobSubmitted(job("large", chunks=2, seconds=5000.0)), 0.0)
    course.start("large", 0.0)
    lines = course.handle(JobSubmitted(job("small", 100.0, chunks=2, seconds=10.0)), 100.0)[1:]
    assert lines == [
        "default/large closes 2 windows: 2 at edge-a (cause: preempted by default/small, which has less work left)",
        "default/small preempts 2 windows of default/large: 2 at edge-a (cause: default/small has less work left)",
        "default/small opens 2 windows: 2 at edge-a (cause: default/small was submitted)",
    ]
    (cost,) = course.end("large", "Preempted", 105.0, 143)
    assert cost == (
        "default/large counts 1 pod as Preempted: 1 on n1; about 105 s of work lost "
        "(cause: preempted by default/small, which has less work left)"
    )


def test_windows_that_open_often_are_counted_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=1)])
    course.handle(JobSubmitted(job("tiny", chunks=200, seconds=0.5, max_workers=1)), 0.0)
    now = 0.0
    while now < 60.0:
        now += 0.5
        course.start("tiny", now)
        course.end("tiny", "Succeeded", now)
    opened = [line for line in caplog.messages if " opens " in line]
    assert len(opened) == 1 + 60.0 // PACE_SECONDS
    assert "opens 1 window: 1 at edge-a" in opened[0]
    assert "opens 40 windows within 20 s: 40 at edge-a (cause: a worker of default/tiny ended: Succeeded)" in opened[2]


def test_counted_windows_are_logged_before_they_close(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=1)])
    course.handle(JobSubmitted(job("large", chunks=3, seconds=500.0, max_workers=1)), 0.0)
    course.end("large", "Succeeded", 10.0)
    course.start("large", 10.0)
    lines = course.handle(JobSubmitted(job("small", 11.0, seconds=5.0)), 11.0)[1:]
    assert [line.split(" (cause")[0] for line in lines] == [
        "default/large opens 1 window: 1 at edge-a",
        "default/large closes 1 window: 1 at edge-a",
        "default/small preempts 1 window of default/large: 1 at edge-a",
        "default/small opens 1 window: 1 at edge-a",
    ]


def test_admission_of_a_job_is_no_change_of_its_generation(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog)
    made = job("same", chunks=2)
    course.handle(JobSubmitted(made), 0.0)
    assert course.handle(JobChanged(replace(made, template_requests=made.worker.requests)), 1.0) == []


def test_counted_windows_are_logged_before_the_job_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=1)])
    course.handle(JobSubmitted(job("brief", chunks=2, max_workers=1)), 0.0)
    course.end("brief", "Succeeded", 1.0)
    lines = course.end("brief", "Succeeded", 2.0)
    assert lines == [
        "default/brief opens 1 window: 1 at edge-a (cause: a worker of default/brief ended: Succeeded)",
        "default/brief has succeeded 2 s after its submission, with 0 stopped and 0 failed workers "
        "(cause: a worker of default/brief ended: Succeeded)",
    ]
    assert course.handle(JobRemoved("default/brief"), 3.0) == []


def test_failures_holds_and_the_end_of_a_job_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=1)])
    course.handle(JobSubmitted(job("broken", backoff_limit=1)), 0.0)
    course.start("broken", 0.0)
    counted, held = course.end("broken", "Failed", 1.0, 3)
    assert counted.startswith("default/broken counts 1 pod as Failed: 1 on n1")
    assert counted.endswith("(cause: exit code 3)")
    assert held.startswith("default/broken starts no pods until 00:00:11Z (cause: ")
    course.handle(Tick(), 20.0)
    course.start("broken", 20.0)
    assert course.end("broken", "Failed", 21.5, 3)[-1] == (
        "default/broken has failed: 2 pods failed, more than runPolicy.backoffLimit 1 "
        "(cause: a worker of default/broken ended: Failed)"
    )


def test_suspension_and_resumption_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog)
    made = job("pausing", chunks=2)
    course.handle(JobSubmitted(made), 0.0)
    changed, closed, suspended = course.handle(JobChanged(replace(made, suspended=True, generation=2)), 5.0)
    assert changed == "default/pausing is planned by generation 2 (cause: its specification changed)"
    assert closed == "default/pausing closes 2 windows: 2 at edge-a (cause: suspended by spec.suspend)"
    assert suspended == "default/pausing is suspended (cause: spec.suspend is true)"
    lines = course.handle(JobChanged(replace(made, generation=3)), 30.0)
    assert "default/pausing is planned again (cause: spec.suspend is false)" in lines


def test_first_plan_with_times_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=1)])
    course.handle(JobSubmitted(job("first", seconds=100.0)), 0.0)
    course.handle(JobSubmitted(job("second", 1.0, seconds=200.0)), 1.0)
    assert course.plan("second", 1.0) == []
    course.planner.forecast(1.0)
    (line,) = course.plan("second", 1.0)
    assert line.startswith("default/second has a plan, with start at 00:01:4")
    assert "(cause: waits for 1 GPU at edge-a until 00:01:4" in line
    assert "behind default/first, which has less work left" in line
    assert course.plan("second", 2.0) == []


def test_job_that_cannot_be_planned_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog)
    course.handle(JobSubmitted(gang("wide", members=40)), 0.0)
    course.planner.forecast(0.0)
    lines = course.plan("wide", 0.0)
    assert lines[0].startswith("default/wide cannot be planned (cause: needs 40 workers of 1 GPU at once, more than")
    assert course.plan("wide", 1.0) == []


def test_exclusion_of_a_node_is_logged_with_its_evidence(caplog: pytest.LogCaptureFixture) -> None:
    health = HealthSettings(jobs=2)
    made = planner("srsf", [node(f"n{number}", gpus=4) for number in range(4)], health=health)
    course = Course(caplog, made=made)
    for name in ("a", "b"):
        course.handle(JobSubmitted(job(name, chunks=6, backoff_limit=9)), 0.0)
    held = [{run.window.node for run in state.runs.values()} for state in made.cluster.jobs.values()]
    shared = min(filter(None, set.intersection(*held)))
    lines: list[str] = []
    for name in ("a", "b"):
        runs = course.planner.cluster.jobs[f"default/{name}"].runs
        attempt = next(number for number, one in runs.items() if one.window.node == shared)
        course.handle(WorkerStarted(f"default/{name}", attempt, 0.0), 0.0)
        lines += course.handle(WorkerEnded(f"default/{name}", attempt, "Failed", 1.0, None, 1), 1.0)
    assert any(
        line.startswith(f"node {shared} at site edge-a takes no new pods until 00:05:01Z (cause: ") for line in lines
    )
    again = course.handle(NodeRemoved(shared), 2.0)
    assert any(line.startswith(f"node {shared} at site edge-a is not excluded any more (cause: ") for line in again)


def test_a_line_names_a_limited_number_of_places(caplog: pytest.LogCaptureFixture) -> None:
    sites = [f"s{number:02}" for number in range(MAX_PLACES + 3)]
    course = Course(caplog, made=planner("srsf", [node(name, name) for name in sites], [Site(name) for name in sites]))
    line = course.handle(JobSubmitted(job("wide", chunks=len(sites))), 0.0)[-1]
    assert f"1 at s{MAX_PLACES - 1:02}, 3 at 3 others" in line


def test_every_event_has_words_for_a_cause() -> None:
    assert set(CAUSES) == set(get_args(Event))


@pytest.mark.parametrize("event", get_args(Event))
def test_words_for_a_cause_name_only_fields_of_the_event(event: type) -> None:
    for _, path, _, _ in Formatter().parse(CAUSES[event]):
        kind: Any = event
        for name in (path or "0").split(".")[1:]:
            hints = get_type_hints(kind)
            assert name in hints or isinstance(getattr(kind, name, None), property), f"{event.__name__}: {path}"
            kind = hints.get(name)


def test_new_leader_does_not_repeat_lines_about_known_jobs(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog)
    course.handle(JobSubmitted(job("known", chunks=2)), 0.0)
    caplog.clear()
    course.log = DecisionLog(course.planner)
    course.log.restored(1.0)
    course.log.took_over((), 1.0)
    assert course.plan("known", 1.0) == []
    assert not caplog.records


def ended(name: str, at: float) -> WorkerEnded:
    return WorkerEnded(f"default/{name}", 1, "Succeeded", at, None, 0)


def test_a_change_of_a_node_hides_no_cause(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=1)])
    course.handle(JobSubmitted(job("brief")), 0.0)
    course.handle(JobSubmitted(job("next", seconds=500.0)), 0.5)
    lines = course.handle(ended("brief", 1.0), 1.0, NodeChanged(node("n1", gpus=1)))
    assert lines == [
        "default/next opens 1 window: 1 at edge-a (cause: a worker of default/brief ended: Succeeded)",
        "default/brief has succeeded 1 s after its submission, with 0 stopped and 0 failed workers "
        "(cause: a worker of default/brief ended: Succeeded)",
    ]


def test_cause_of_an_opening_is_the_event_that_freed_room(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=2)])
    course.handle(JobSubmitted(job("brief")), 0.0)
    course.handle(JobSubmitted(job("long", chunks=2, seconds=500.0)), 0.5)
    started = WorkerStarted("default/long", 1, 30.0)
    opened = course.handle(ended("brief", 30.0), 30.0, started)[0]
    assert opened == "default/long opens 1 window: 1 at edge-a (cause: a worker of default/brief ended: Succeeded)"


def test_cause_of_the_first_decision_of_a_leader_is_said(caplog: pytest.LogCaptureFixture) -> None:
    course = Course(caplog, [node("n1", gpus=2)])
    instructions = course.planner.handle(JobSubmitted(job("waiting", chunks=2)), 0.0)
    course.log.restored(0.0)
    course.log.took_over(instructions, 0.0)
    assert caplog.messages == ["default/waiting opens 2 windows: 2 at edge-a (cause: this replica took over)"]
