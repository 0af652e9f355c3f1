"""Jobs that are declared much too small yield to others, whatever their workers report, save or leave out."""

from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job
from tranche.model import Job, Report
from tranche.planner import JobSubmitted, OpenWindow, Planner, ProgressReported, Tick, WorkerEnded, WorkerStarted

HOUR, STEP = 3600.0, 15


class Course:
    """Two GPUs, and what happens to the jobs `wrong` and `right`; workers of the first one never complete."""

    def __init__(self, wrong: Job) -> None:
        self.p: Planner = planner("chunk", [node("n1", gpus=2)])
        self.p.cluster.restarts.recall(20.0, 5.0)
        self.held = {"default/wrong": 0.0, "default/right": 0.0}
        self.handle(JobSubmitted(wrong), 0.0)

    def submit(self, right: Job, at: float) -> None:
        self.handle(JobSubmitted(right), at)

    def run(self, until: float, since: float = 0.0, report: float | None = None) -> None:
        """Let time pass; workers end soon when they are to stop, and say nothing about their progress.

        Args:
            until: Time of the end.
            since: Time of the beginning.
            report: Mini-batches a second that workers of `wrong` report; None: they report nothing.
        """
        for at in range(int(since) + STEP, int(until), STEP):
            self.handle(Tick(), at)
            for key, state in self.p.cluster.jobs.items():
                for attempt, run in list(state.runs.items()):
                    self.held[key] += STEP
                    if run.closing:
                        self.handle(WorkerEnded(key, attempt, "Preempted", at), at)
                    elif report is not None and key == "default/wrong" and run.started is not None:
                        applied = {run.window.chunks[0]: report * (at - run.started)}
                        self.handle(ProgressReported(Report(key, attempt, applied, {}), at), at)

    def handle(self, event: Any, at: float) -> None:
        """Handle one event, and let the workers of windows that open start at once."""
        for opened in of_type(OpenWindow, self.p.handle(event, at)):
            self.p.handle(WorkerStarted(opened.job, opened.window.attempt, at), at)


def right(at: float, seconds: float) -> Job:
    return job("right", at, chunks=2, seconds=seconds)


@pytest.mark.parametrize("pace", [1e-9, 1e-3])
def test_job_that_reports_slow_progress_yields_to_a_shorter_job(pace: float) -> None:
    course = Course(job("wrong", chunks=2, seconds=1.0))
    course.submit(right(1.0, 60.0), 1.0)
    course.run(300.0, report=pace)
    assert course.held["default/right"] >= 120.0


def test_job_that_reports_the_declared_pace_keeps_its_rank() -> None:
    course = Course(job("wrong", chunks=2, seconds=1000.0))
    course.submit(right(1.0, 900.0), 1.0)
    course.run(600.0, report=0.08)
    assert course.held["default/right"] >= 900.0, "it was shorter from the beginning"
    course = Course(job("wrong", chunks=2, seconds=800.0))
    course.submit(right(1.0, 900.0), 1.0)
    course.run(600.0, report=0.1)
    assert course.held["default/right"] == 0.0


@pytest.mark.parametrize("declared", [1e-9, 1.0, 60.0])
def test_gang_that_was_stopped_and_saved_nothing_lets_others_end(declared: float) -> None:
    course = Course(gang("wrong", chunks=2, max_workers=2, seconds=declared))
    course.run(HOUR)
    course.submit(right(HOUR, 1200.0), HOUR)
    course.run(3 * HOUR, since=HOUR)
    assert course.held["default/right"] >= 2 * 1200.0


@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e-6])
def test_weight_near_zero_does_not_protect_from_preemption(weight: float) -> None:
    containers = [{"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    workers = {"maxReplicas": 1, "template": {"spec": {"containers": containers}}}
    spec = {"workers": workers, "weight": weight, "estimatedDuration": "100h", "data": {"chunks": 2}}
    metadata = {"name": "wrong", "namespace": "default", "uid": "u"}
    course = Course(to_job(TrainingJob.model_validate({"metadata": metadata, "spec": spec})))
    course.submit(right(1.0, 60.0), 1.0)
    course.run(300.0)
    assert course.held["default/right"] >= 120.0
