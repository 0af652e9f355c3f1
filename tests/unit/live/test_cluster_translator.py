"""Restoring a planner from watched objects, without a client."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from support.controller_course import Course, gang_of, submitted, timestamp
from support.live_controller import NOW, reported, resource, taken_over
from tranche.kube.api.core_types import NodeObject, Pod, QuotaObject
from tranche.kube.api.names import GPU_RESOURCES
from tranche.kube.api.resources import SiteObject
from tranche.live.cluster_translator import ClusterTranslator, restore_planner
from tranche.live.informers import ClusterObjects
from tranche.live.planner_config import PlannerConfig
from tranche.planner import NodeChanged, NodeRemoved, Planner
from tranche.planner.learned_state import LearnedState
from tranche.replay.shadow_planner import decide

CONFIG = PlannerConfig("chunk")


def node(name: str, gpus: str = "2") -> NodeObject:
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": gpus}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": {"name": name, "labels": {"zone": "good"}}, "status": status}, NodeObject)


def foreign_pod(name: str, on: str | None) -> Pod:
    """A pod with one GPU of the Job `name`; it waits if it is on no node."""
    created = datetime.fromtimestamp(NOW - 60.0, UTC).isoformat()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}", "controller": True}
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created}
    spec: dict[str, Any] = {"containers": [{"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    status: dict[str, Any] = {"phase": "Pending"}
    if on is not None:
        state = {"running": {"startedAt": created}}
        spec["nodeName"] = on
        status = {"phase": "Running", "startTime": created, "containerStatuses": [{"name": "t", "state": state}]}
    return msgspec.convert({"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec, "status": status}, Pod)


def cluster(*pods: Pod, gpus: str = "2") -> ClusterObjects:
    return ClusterObjects({f"default/{pod.metadata.name}": pod for pod in pods}, {"n1": node("n1", gpus)}, {}, {}, {})


class TestRestorePlanner:
    def test_jobs_are_planned_on_the_nodes_of_the_snapshot(self) -> None:
        job = resource("long")
        planner = CONFIG.planner(validate=True)
        restore_planner(planner, replace(cluster(), jobs={job.key: job}), GPU_RESOURCES, NOW)
        assert [run.window.node for run in planner.cluster.jobs[job.key].runs.values()] == ["n1", "n1"]

    def test_completed_jobs_are_learnt_in_order_of_completion(self) -> None:
        jobs = {}
        for name, minutes in (("a", 3), ("b", 1), ("c", 2)):
            ended = datetime.fromtimestamp(NOW + 60.0 * minutes, UTC).isoformat()
            progress = {"done": "0-1", "attainedSeconds": 100.0 * minutes}
            jobs[f"default/{name}"] = resource(name, phase="Succeeded", completionTime=ended, progress=progress)
        planner = PlannerConfig("gittins").planner(validate=True)
        restore_planner(planner, replace(cluster(), jobs=jobs), GPU_RESOURCES, NOW + 300.0)
        assert [job.gpu_seconds for job in planner.cluster.history.completed] == [100.0, 200.0, 300.0]

    def test_foreign_pods_occupy_their_node(self) -> None:
        planner = CONFIG.planner(validate=True)
        restore_planner(planner, cluster(foreign_pod("other", "n1")), GPU_RESOURCES, NOW)
        assert planner.cluster.nodes["n1"].node.foreign.gpus == 1


class TestDecide:
    def test_waiting_foreign_job_starts_on_a_free_gpu(self) -> None:
        (decision,) = decide(cluster(foreign_pod("runs", "n1"), foreign_pod("waits", None)), CONFIG, NOW)
        assert (decision.decision, decision.nodes) == ("start", ["n1"])

    def test_waiting_foreign_job_waits_for_a_running_one(self) -> None:
        (decision,) = decide(cluster(foreign_pod("runs", "n1"), foreign_pod("waits", None), gpus="1"), CONFIG, NOW)
        assert (decision.decision, decision.nodes) == ("wait", [])
        assert decision.planned_start is not None

    def test_objects_are_unchanged(self) -> None:
        objects = cluster(foreign_pod("waits", None))
        decide(objects, CONFIG, NOW)
        assert list(objects.pods) == ["default/waits"]


class TestClusterTranslator:
    def translator(self, objects: ClusterObjects) -> tuple[ClusterTranslator, Planner, list[tuple[str, Any]]]:
        planner = CONFIG.planner(validate=True)
        rejected: list[tuple[str, Any]] = []

        def reject(description: str, observed: Any, error: ValueError) -> None:
            rejected.append((description, observed))

        translator = ClusterTranslator(objects, planner, GPU_RESOURCES, lambda: NOW, reject)
        return translator, planner, rejected

    def test_unreadable_objects_are_rejected_by_name(self) -> None:
        spec = {"nodeSelector": {"zone": "bad"}, "links": [{"to": "elsewhere", "bandwidth": "fast"}]}
        site = SiteObject.model_validate({"metadata": {"name": "bad"}, "spec": spec})
        metadata = {"name": "q", "namespace": "default"}
        quota = msgspec.convert({"metadata": metadata, "spec": {"hard": {"pods": "many"}}}, QuotaObject)
        objects = replace(cluster(), sites={"bad": site}, quotas={"default/q": quota})
        translator, planner, rejected = self.translator(objects)
        translator.restore(LearnedState(), lambda event: planner.handle(event, NOW), lambda jobs, events: None)
        assert rejected == [("SiteObject bad", site), ("a ResourceQuota in namespace default", None)]

    def test_node_change_known_to_the_planner_gives_no_event(self) -> None:
        nodes = {"n1": node("n1")}
        translator, planner, _ = self.translator(replace(cluster(), nodes=nodes))
        (added,) = translator.events_of("nodes", "n1", None, nodes["n1"])
        assert isinstance(added, NodeChanged)
        planner.handle(added, NOW)
        assert not list(translator.events_of("nodes", "n1", nodes["n1"], nodes["n1"]))
        old = nodes.pop("n1")
        assert list(translator.events_of("nodes", "n1", old, None)) == [NodeRemoved("n1")]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_take_over_blames_node_of_first_failed_gang_member(first: int, second: int) -> None:
    course = Course(asyncio.run(taken_over(config=CONFIG)))
    wide = gang_of(submitted(0, 3, 3600, NOW), "1Mi")
    reported(course.controller, "jobs", wide.key, wide)
    course.play(NOW + 1)
    runs = {run.window.index: run for _, run in course.runs()}
    objects = course.objects()
    pods = dict(objects.pods)
    for index, seconds in ((first, 10.0), (second, 12.0)):
        key = f"default/job-0-worker-{index}-{runs[index].window.attempt}"
        ended = {"exitCode": 1, "startedAt": timestamp(NOW), "finishedAt": timestamp(NOW + seconds)}
        known = msgspec.to_builtins(pods[key])
        known["status"] = {"phase": "Failed", "containerStatuses": [{"name": "t", "state": {"terminated": ended}}]}
        pods[key] = msgspec.convert(known, Pod)
    planner = CONFIG.planner(validate=True)
    restore_planner(planner, replace(objects, pods=pods), GPU_RESOURCES, NOW + 60.0)
    state = planner.cluster.jobs[wide.key]
    assert state.hold_reason.startswith(f"worker {first} failed")
    assert list(state.node_failures) == [runs[first].window.node]
