"""Controller in virtual time whose workers start and end as its plan says, for comparisons of plans."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from support.live_controller import NOW, reported, resource, written
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import GPU_RESOURCES
from tranche.kube.api.resources import TrainingJob
from tranche.live.cluster_translator import restore_planner
from tranche.live.controller import Controller
from tranche.live.informers import ClusterObjects
from tranche.live.lease_annotations import read_learned_state
from tranche.live.planner_config import PlannerConfig
from tranche.model.explanation_text import without_moments
from tranche.planner import Planner, Tick
from tranche.state.window import TrackedWindow


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


DISTRIBUTING = ("dorm", "optimus", "rrh", "oasis:slot=300", "oasis:slot=300:price_ratio=100", "pd-ors-like:slot=300")
"""Policies that distribute the workers of all jobs together, with slots of 5 minutes."""
DECAYS = (0.0, 0.5, 5.0)
"""Per hour: jobs that are worth the same whenever they complete, and jobs whose utility falls fast after the target."""
TARGET_SECONDS = 1200
"""Duration after which the utility of a job falls."""


class Course:
    """Controller in virtual time on three nodes of two GPUs.

    Workers start at the next look at them, and end after the time that their window predicts. The workers of jobs in
    `endless` report nothing and do not end.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller, self.now = controller, NOW
        self.endless: set[str] = set()
        controller.clock = lambda: self.now
        for name in ("n2", "n3"):
            node = msgspec.to_builtins(controller.watches.nodes.store["n1"])
            node["metadata"]["name"] = name
            reported(controller, "nodes", name, msgspec.convert(node, NodeObject))

    stamp = staticmethod(timestamp)
    """Writes a time as a kubelet does."""

    def play(self, until: float) -> None:
        """Play all starts and ends of workers until that time."""
        while True:
            due = min((run.window.end for key, run in self.runs() if self.will_end(key, run)), default=until)
            due = min(due, self.controller.planner.next_wakeup() or until)
            self.now = max(self.now, min(due, until))
            self.controller.handle(Tick())
            self.controller.step()
            self.write()
            for key, run in self.runs():
                self.go_on(key, run)
            self.conclude()
            if due >= until:
                return

    def write(self) -> None:
        """Write the plans of all jobs, so that pods of their windows may exist."""
        for key in self.controller.planner.cluster.jobs:
            written(self.controller, self.controller.watches.jobs.store[key].metadata.name)

    def runs(self) -> list[tuple[str, TrackedWindow]]:
        jobs = self.controller.planner.cluster.jobs
        return [(key, run) for key, state in jobs.items() for run in state.runs.values()]

    @staticmethod
    def trains(run: TrackedWindow) -> bool:
        return run.started is not None and not run.closing

    def will_end(self, key: str, run: TrackedWindow) -> bool:
        return self.trains(run) and key not in self.endless

    def go_on(self, key: str, run: TrackedWindow) -> None:
        """Report the start or the end of a pod that is due."""
        job = key.partition("/")[2]
        name = f"{job}-worker-{run.window.index}-{run.window.attempt}"
        there = f"default/{name}" in self.controller.watches.pods.store
        if not run.closing and run.started is None:
            self.report(name, job, run, "Running")
        elif run.closing and there:
            self.report(name, job, run, "Failed")
            reported(self.controller, "pods", f"default/{name}", None)
        elif self.will_end(key, run) and run.window.end <= self.now:
            self.report(name, job, run, "Succeeded")
            reported(self.controller, "pods", f"default/{name}", None)

    def message(self, job: str, run: TrackedWindow) -> str:
        """Return the termination message of a pod that is stopped; here it has none."""
        return ""

    def report(self, name: str, job: str, run: TrackedWindow, phase: str) -> None:
        began = self.stamp(self.now if run.started is None else run.started)
        ended = {"exitCode": 0 if phase == "Succeeded" else 143, "startedAt": began, "finishedAt": self.stamp(self.now)}
        ended["message"] = self.message(f"default/{job}", run) if phase == "Failed" else ""
        state = {"running": {"startedAt": began}} if phase == "Running" else {"terminated": ended}
        numbers = {"index": run.window.index, "attempt": run.window.attempt}
        labels = {f"tranche.dev/{k}": str(v) for k, v in {"job": job, "role": "worker", **numbers}.items()}
        owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": job, "controller": True}
        metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "labels": labels}
        metadata["ownerReferences"] = [owner]
        if phase == "Failed":
            metadata["deletionTimestamp"] = self.stamp(self.now)
        requests = {"nvidia.com/gpu": "1", "cpu": "1"}
        spec = {"nodeName": run.window.node, "containers": [{"name": "t", "resources": {"requests": requests}}]}
        status = {"phase": phase, "containerStatuses": [{"name": "t", "state": state}]}
        pod = msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)
        reported(self.controller, "pods", f"default/{name}", pod)

    def conclude(self) -> None:
        """Write the completion of finished jobs, as the operator does."""
        for key, state in list(self.controller.planner.cluster.jobs.items()):
            if state.finished and not state.runs:
                over = {"phase": "Succeeded", "completionTime": self.stamp(self.now)}
                reported(self.controller, "jobs", key, self.as_written(key, **over))

    def as_written(self, key: str, **more: str) -> TrainingJob:
        known = self.controller.watches.jobs.store[key]
        status = {**written(self.controller, known.metadata.name), **more}
        return TrainingJob.model_validate({**known.model_dump(mode="json", by_alias=True), "status": status})

    def objects(self) -> ClusterObjects:
        """Return the objects of the cluster once the controller has written the statuses of all jobs."""
        objects = self.controller.watches.objects
        planned = {key: self.as_written(key) for key in self.controller.planner.cluster.jobs}
        return replace(objects, jobs={**objects.jobs, **planned})


def submitted(number: int, chunks: int, seconds: int, at: float) -> TrainingJob:
    job = resource(f"job-{number}", f"{seconds}s", data={"chunks": chunks})
    created = {"creation_timestamp": datetime.fromtimestamp(at, UTC)}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update=created)})


def gang_of(job: TrainingJob, gradients: str) -> TrainingJob:
    """Return the job as a gang with a member for each chunk, all of which exchange gradients of this size."""
    declared = job.model_dump(mode="json", by_alias=True)
    spec = declared["spec"]
    spec["workers"]["maxReplicas"] = spec.pop("data")["chunks"]
    spec["model"] = {"gradientSize": gradients}
    return TrainingJob.model_validate(declared)


def valued(number: int, job: TrainingJob) -> TrainingJob:
    """Return three of four jobs with a utility."""
    if number % 4 == 0:
        return job
    declared = job.model_dump(mode="json", by_alias=True)
    declared["spec"]["utility"] = {
        "priority": 1.0 + 17 * number % 50,
        "decay": DECAYS[number % 3],
        "target": f"{TARGET_SECONDS}s",
    }
    return TrainingJob.model_validate(declared)


def successor(course: Course, config: PlannerConfig | None = None) -> Planner:
    """Return the planner of a scheduler that takes over at this moment."""
    planner = (config or PlannerConfig("chunk")).planner(validate=True)
    learned = read_learned_state(course.controller.learned_annotations())
    restore_planner(planner, course.objects(), GPU_RESOURCES, course.now, learned)
    return planner


def plans(planner: Planner, now: float) -> dict[str, object]:
    """Return the windows, the planned moments in whole seconds and the explanation of each job."""
    planner.forecast(now)
    found: dict[str, object] = {}
    for key in planner.cluster.jobs:
        plan = planner.plan_of(key, now)
        windows = [(one.attempt, one.node, one.chunks, one.state) for one in plan.windows]
        moments = [None if at is None else round(at) for at in (plan.estimated_start, plan.estimated_completion)]
        found[key] = (windows, moments, without_moments(plan.explanation))
    return found
