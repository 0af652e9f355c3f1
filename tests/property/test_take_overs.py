"""A scheduler that takes over plans as its predecessor did: the state outlives the process, whatever ties there are."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.live_controller import NOW, reported, resource, taken_over, written
from tranche.kube.api.names import GPU_RESOURCE
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pods_and_nodes import NodeObject, Pod
from tranche.live import Controller
from tranche.live.cluster_restore import restore_planner
from tranche.live.informers import ClusterObjects
from tranche.live.lease_annotations import PlannerConfig, read_memory
from tranche.model.explanation_text import without_moments
from tranche.planner import Planner
from tranche.state.entities import TrackedWindow

ARRIVALS = st.lists(
    st.tuples(st.sampled_from((30, 60, 120)), st.integers(1, 4), st.sampled_from((60, 120, 600, 1200))),
    min_size=1,
    max_size=25,
)
"""Seconds since the job before, chunks, and seconds of the whole job: there are many ties."""

CHEAPER = [(30, 4, 60), (30, 2, 120), (30, 2, 120), (30, 4, 1200), (30, 2, 60), (30, 1, 60), (30, 1, 1200)]
"""The last job fails to stop a worker that has not started; the worker starts earlier than estimated."""
CHEAPER_LATER = [
    *[(30, 2, 600), (30, 2, 600), (30, 2, 60), (30, 4, 600), (60, 2, 60), (60, 3, 600), (120, 1, 60)],
    *[(30, 1, 60), (30, 1, 60), (60, 1, 60), (60, 1, 60), (60, 1, 60), (60, 1, 600)],
]
"""The same with a worker of a job that was stopped before."""


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Course:
    """A controller in virtual time, whose workers end when they should and start when it is next looked at them."""

    def __init__(self, controller: Controller) -> None:
        self.controller, self.now = controller, NOW
        controller.clock = lambda: self.now
        for name in ("n2", "n3"):
            node = msgspec.to_builtins(controller.watches.nodes.store["n1"])
            node["metadata"]["name"] = name
            reported(controller, "nodes", name, msgspec.convert(node, NodeObject))

    def play(self, until: float) -> None:
        """Let happen what happens until then."""
        while True:
            due = min((run.window.end for _, run in self.runs() if self.trains(run)), default=until)
            self.now = max(self.now, min(due, until))
            for key, run in self.runs():
                self.go_on(key, run)
            self.conclude()
            if due >= until:
                return

    def runs(self) -> list[tuple[str, TrackedWindow]]:
        jobs = self.controller.planner.cluster.jobs
        return [(key, run) for key, state in jobs.items() for run in state.runs.values()]

    @staticmethod
    def trains(run: TrackedWindow) -> bool:
        return run.started is not None and not run.closing

    def go_on(self, key: str, run: TrackedWindow) -> None:
        """A pod starts, or has ended."""
        job = key.partition("/")[2]
        name = f"{job}-worker-{run.window.index}-{run.window.attempt}"
        there = f"default/{name}" in self.controller.watches.pods.store
        if not run.closing and run.started is None:
            self.report(name, job, run, "Running")
        elif run.closing and there:
            self.report(name, job, run, "Failed")
            reported(self.controller, "pods", f"default/{name}", None)
        elif self.trains(run) and run.window.end <= self.now:
            self.report(name, job, run, "Succeeded")
            reported(self.controller, "pods", f"default/{name}", None)

    def report(self, name: str, job: str, run: TrackedWindow, phase: str) -> None:
        began = timestamp(self.now if run.started is None else run.started)
        ended = {"exitCode": 0 if phase == "Succeeded" else 143, "startedAt": began, "finishedAt": timestamp(self.now)}
        state = {"running": {"startedAt": began}} if phase == "Running" else {"terminated": ended}
        numbers = {"index": run.window.index, "attempt": run.window.attempt}
        labels = {f"tranche.dev/{k}": str(v) for k, v in {"job": job, "role": "worker", **numbers}.items()}
        owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": job, "controller": True}
        metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "labels": labels}
        metadata["ownerReferences"] = [owner]
        if phase == "Failed":
            metadata["deletionTimestamp"] = timestamp(self.now)
        requests = {"nvidia.com/gpu": "1", "cpu": "1"}
        spec = {"nodeName": run.window.node, "containers": [{"name": "t", "resources": {"requests": requests}}]}
        status = {"phase": phase, "containerStatuses": [{"name": "t", "state": state}]}
        pod = msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)
        reported(self.controller, "pods", f"default/{name}", pod)

    def conclude(self) -> None:
        """The operator says what is over."""
        for key, state in list(self.controller.planner.cluster.jobs.items()):
            if state.finished and not state.runs:
                over = {"phase": "Succeeded", "completionTime": timestamp(self.now)}
                reported(self.controller, "jobs", key, self.as_written(key, **over))

    def as_written(self, key: str, **more: str) -> TrainingJob:
        known = self.controller.watches.jobs.store[key]
        status = {**written(self.controller, known.metadata.name), **more}
        return TrainingJob.model_validate({**known.model_dump(mode="json", by_alias=True), "status": status})

    def objects(self) -> ClusterObjects:
        """The cluster once the controller has written the statuses of all jobs."""
        objects = self.controller.watches.objects
        planned = {key: self.as_written(key) for key in self.controller.planner.cluster.jobs}
        return replace(objects, jobs={**objects.jobs, **planned})


def submitted(number: int, chunks: int, seconds: int, at: float) -> TrainingJob:
    job = resource(f"job-{number}", f"{seconds}s", data={"chunks": chunks})
    created = {"creation_timestamp": datetime.fromtimestamp(at, UTC)}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update=created)})


def plans(planner: Planner, now: float) -> dict[str, object]:
    planner.forecast(now)
    found: dict[str, object] = {}
    for key in planner.cluster.jobs:
        plan = planner.plan_of(key, now)
        windows = [(one.attempt, one.node, one.chunks, one.state) for one in plan.windows]
        moments = [None if at is None else round(at) for at in (plan.estimated_start, plan.estimated_completion)]
        found[key] = (windows, moments, without_moments(plan.explanation))
    return found


async def both(arrivals: list[tuple[int, int, int]]) -> tuple[dict[str, object], dict[str, object]]:
    course = Course(await taken_over(policy="chunk"))
    for number, (gap, chunks, seconds) in enumerate(arrivals):
        course.play(course.now + gap)
        job = submitted(number, chunks, seconds, course.now)
        reported(course.controller, "jobs", job.key, job)
    course.play(course.now)
    successor = PlannerConfig("chunk").planner(validate=True)
    memory = read_memory(course.controller.memory_annotations())
    restore_planner(successor, course.objects(), GPU_RESOURCE, course.now, memory)
    return plans(course.controller.planner, course.now), plans(successor, course.now)


@settings(max_examples=60, deadline=None)
@given(ARRIVALS)
@example([(120, 1, 600), (60, 1, 1200), (60, 1, 1200), (30, 4, 60), (120, 3, 60)])  # no worker is stopped that was not
@example(CHEAPER)
@example(CHEAPER_LATER)
def test_who_takes_over_plans_what_the_one_before_has_planned(arrivals: list[tuple[int, int, int]]) -> None:
    first, second = asyncio.run(both(arrivals))
    assert first == second
