"""Staging pods as the live planner receives them, and jobs with them as it reads and writes these."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec
import pytest

from support.live_controller import NOW, reported, resource, taken_over, written
from support.watched_pods import limits, timeouts_of
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import Plan
from tranche.kube.convert.site_membership import UNDECLARED_TOLERANCE_SECONDS
from tranche.kube.convert.trainingjob import plan_status, read_plan, to_job
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.live.pods.pod_events import events_of
from tranche.live.pods.scheduler_watch import SchedulerWatch
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.model import JobPlan, PlannedStaging, Resources
from tranche.planner import KubeSchedulerChanged, StagingEnded

NO_NODES: Mapping[str, NodeObject] = MappingProxyType({})
CONTAINER = {"name": "copy", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}


def data(**changes: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{**CONTAINER, **changes}]}}
    return {"chunks": 2, "chunkSize": "1Gi", "site": "elsewhere", "staging": {"template": template}}


def pod(phase: str, terminated: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    labels = {
        "tranche.dev/job": "j",
        "tranche.dev/role": "staging",
        "tranche.dev/index": "0",
        "tranche.dev/attempt": "1",
    }
    reference = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "j", "controller": True}
    whole = {"name": "j-staging-cluster-1", "namespace": "default", "uid": "u", "labels": labels}
    state = {"containerStatuses": [{"name": "copy", "state": {"terminated": terminated}}]} if terminated else {}
    return msgspec.convert(
        {
            "metadata": {**whole, "ownerReferences": [reference], **metadata},
            "spec": {"nodeName": "n1", "containers": [CONTAINER]},
            "status": {"phase": phase, **state},
        },
        Pod,
    )


ENDED = {"exitCode": 0, "startedAt": "2027-01-15T08:00:00Z", "finishedAt": "2027-01-15T08:01:30Z"}


def test_staging_pod_end_becomes_event_with_outcome_and_run_time() -> None:
    running, succeeded = pod("Running"), pod("Succeeded", ENDED)
    assert list(events_of(running, succeeded, NOW)) == [StagingEnded("default/j", 1, "Succeeded", 90.0)]
    assert list(events_of(None, succeeded, NOW)) == [StagingEnded("default/j", 1, "Succeeded", 90.0)]
    assert list(events_of(running, pod("Failed", {**ENDED, "exitCode": 1}), NOW)) == [
        StagingEnded("default/j", 1, "Failed", 90.0)
    ]
    assert list(events_of(running, None, NOW)) == [StagingEnded("default/j", 1, "Lost", 0.0)]
    assert list(events_of(succeeded, None, NOW)) == list(events_of(None, running, NOW)) == []


def test_refused_staging_pod_names_its_node() -> None:
    refused = pod("Failed")
    refused = msgspec.structs.replace(refused, status=msgspec.structs.replace(refused.status, reason="OutOfcpu"))
    (event,) = events_of(pod("Pending"), refused, NOW)
    assert event == StagingEnded("default/j", 1, "Refused", 0.0, "n1", "OutOfcpu")


def node_object(name: str, *, ready: bool) -> NodeObject:
    since = datetime.fromtimestamp(NOW, UTC).isoformat()
    condition = {"type": "Ready", "status": "True" if ready else "Unknown", "lastTransitionTime": since}
    return msgspec.convert({"metadata": {"name": name}, "status": {"conditions": [condition]}}, NodeObject)


class TestTimeouts:
    """Staging pods that do not get as far as copying."""

    PULLING: ClassVar = {"name": "copy", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    NO_ROOM: ClassVar = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}

    def due(
        self,
        status: dict[str, Any],
        node: str,
        *times: float,
        nodes: Mapping[str, NodeObject] = NO_NODES,
        pull_seconds: float = 600.0,
    ) -> list[Any]:
        """Return the events at these times, for a job with one staging pod."""
        controller = asyncio.run(taken_over(resource("j", data=data()), policy="chunk"))
        one = msgspec.to_builtins(pod("Pending"))
        one["spec"]["nodeName"] = node
        one["status"] |= status
        found = msgspec.convert(one, Pod)
        timeouts = timeouts_of(
            controller.planner,
            {found.key: found},
            UnreachableNodes(nodes, {}),
            limits(missing_pod_seconds=0.5, image_pull_seconds=pull_seconds),
            scheduler=SchedulerWatch(30.0, 630.0),
        )
        states = list(controller.planner.cluster.jobs.values())
        return [(at, event) for at in times for event in timeouts.due(states, NOW + at, at)]

    @pytest.mark.parametrize(("others_respond", "seconds"), [(True, 60.0), (False, UNDECLARED_TOLERANCE_SECONDS)])
    def test_copy_on_a_silent_node_is_made_on_another(self, others_respond: bool, seconds: float) -> None:
        nodes = {"n1": node_object("n1", ready=False), "n2": node_object("n2", ready=others_respond)}
        times = (0.0, seconds - 1.0, seconds)
        assert self.due({}, "n1", *times, nodes=nodes) == [(seconds, StagingEnded("default/j", 1, "Lost"))]

    def test_staging_pod_that_does_not_start_fails(self) -> None:
        reason = "ErrImagePull: no such image"
        failed = StagingEnded("default/j", 1, "Failed", node="n1", reason=reason)
        assert self.due({"containerStatuses": [self.PULLING]}, "n1", 0.0, 599.0, 600.0) == [(600.0, failed)]

    def test_unstarted_staging_pod_of_a_silent_site_does_not_fail(self) -> None:
        status, nodes = {"containerStatuses": [self.PULLING]}, {"n1": node_object("n1", ready=False)}
        tolerance = UNDECLARED_TOLERANCE_SECONDS
        times = (0.0, 100.0, tolerance - 1.0, tolerance)
        lost = StagingEnded("default/j", 1, "Lost")
        assert self.due(status, "n1", *times, nodes=nodes, pull_seconds=100.0) == [(tolerance, lost)]

    def test_staging_pod_without_a_place_fails_after_10_minutes(self) -> None:
        failed = StagingEnded("default/j", 1, "Failed", reason="no room")
        assert self.due({"conditions": [self.NO_ROOM]}, "", 0.0, 629.0, 630.0) == [(630.0, failed)]

    def test_staging_pod_is_not_failed_by_a_silent_kube_scheduler(self) -> None:
        silent = KubeSchedulerChanged(responds=False)
        assert self.due({}, "", 0.0, 30.0, 700.0) == [(30.0, silent)]


def test_windows_open_only_after_watch_shows_staging_success() -> None:
    controller = asyncio.run(taken_over(resource("j", data=data()), policy="chunk"))
    plan = written(controller, "j")["plan"]
    assert plan["workers"] == []
    assert plan["staging"] == [
        {"site": "cluster", "attempt": 1, "chunks": "0-1", "wanted": "", "failures": 0, "givenUp": False}
    ]
    reported(controller, "pods", "default/j-staging-cluster-1", pod("Running"))
    assert written(controller, "j")["plan"]["workers"] == []
    reported(controller, "pods", "default/j-staging-cluster-1", pod("Succeeded", ENDED))
    plan = written(controller, "j")["plan"]
    assert [one["site"] for one in plan["workers"]] == ["cluster", "cluster"]
    assert "staging" not in plan
    assert plan["homes"] == {"cluster": "0-1"}


def test_the_end_of_a_namesakes_pod_says_nothing() -> None:
    controller = asyncio.run(taken_over(resource("j", data=data()), policy="chunk"))
    reference = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "earlier", "controller": True}
    reported(controller, "pods", "default/j-staging-cluster-1", pod("Succeeded", ENDED, ownerReferences=[reference]))
    assert written(controller, "j")["plan"]["workers"] == []


def test_what_a_staging_pod_asks_counts_as_taken_on_its_node() -> None:
    book = ForeignNodeUsage(("nvidia.com/gpu",), lambda pod: False)
    assert book.note_pod("default/j-staging-cluster-1", pod("Running")) == {"n1"}
    assert book.foreign("n1") == Resources(2000, 2**30, 0, 1)
    assert book.note_pod("default/j-staging-cluster-1", pod("Succeeded", ENDED)) == {"n1"}
    assert book.foreign("n1") == Resources()


def test_status_holds_all_that_the_next_planner_needs() -> None:
    staging = (
        PlannedStaging("a", 3, (0, 1), (4,), 2),
        PlannedStaging("b", 0, (), (7,), 1),
        PlannedStaging("c", given_up=True, why="ErrImagePull: no such image"),
    )
    status = plan_status(JobPlan(1, "", staging=staging), "uid", 1, 1)
    assert read_plan(Plan.model_validate(status)).staging == staging


def test_long_reason_of_a_failed_staging_pod_is_cut() -> None:
    staging = (PlannedStaging("a", failures=1, why="x" * 5000),)
    status = plan_status(JobPlan(1, "", staging=staging), "uid", 1, 1)
    assert read_plan(Plan.model_validate(status)).staging[0].why == "x" * 1024


def test_the_gpu_that_is_set_is_refused_under_any_name() -> None:
    asks = {"resources": {"limits": {"example.org/accelerator": "1"}}}
    with pytest.raises(ValueError, match=r"spec.data.staging: .* remove the request for example.org/accelerator"):
        to_job(resource("j", data=data(**asks)), ("example.org/accelerator",))
    assert to_job(resource("j", data=data(**asks))).staged
