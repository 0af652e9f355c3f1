"""Pods on nodes as the planner counts them: by owner and attempt, whatever their labels say."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from support.builders import job, node, planner
from support.live_controller import NOW, reported, resource, taken_over, written
from support.watched_pods import ServerPods, timeouts_of
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.live.controller import Controller
from tranche.live.pods.pod_timeouts import Timeouts
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.model import PodShape, Resources
from tranche.planner import JobSubmitted, ParameterServerEnded, PodOverdue, WorkerEnded
from tranche.state.job import JobState

GPU = "nvidia.com/gpu"
STAMP = datetime.fromtimestamp(NOW, UTC).isoformat()
RUNS: dict[str, Any] = {"running": {"startedAt": STAMP}}
CODE_0: dict[str, Any] = {"terminated": {"exitCode": 0}}


def pod(
    name: str = "j-worker-0-1",
    *,
    uid: str | None = "j",
    attempt: int = 1,
    index: int = 0,
    role: str = "worker",
    gpus: int = 1,
    cpu: str = "1",
    status: dict[str, Any] | None = None,
    sidecar: bool = False,
    **metadata: Any,
) -> Pod:
    """Return a pod on node n1 with the labels of a job j, owned by the TrainingJob of that UID."""
    values = {"job": "j", "role": role, "index": str(index), "attempt": str(attempt)}
    labels = {f"tranche.dev/{key}": value for key, value in values.items()}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": uid, "controller": True}
    whole = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels, **metadata}
    whole |= {"ownerReferences": [owner]} if uid else {}
    containers = [{"name": "t", "resources": {"requests": {GPU: str(gpus), "cpu": cpu}}}]
    if sidecar:
        containers.append({"name": "proxy", "resources": {"requests": {"cpu": "1"}}})
    raw = {"metadata": whole, "spec": {"nodeName": "n1", "containers": containers}, "status": status or running()}
    return decode_pod(msgspec.json.encode(raw))


def deleted_pod(name: str = "j-worker-0-1", **fields: Any) -> Pod:
    """Return a pod that somebody has deleted now, with a grace period of 30 s."""
    ends = datetime.fromtimestamp(NOW + 30, UTC).isoformat()
    return pod(name, deletionTimestamp=ends, deletionGracePeriodSeconds=30, **fields)


def running(trainer: dict[str, Any] = RUNS) -> dict[str, Any]:
    statuses = [{"name": "t", "state": trainer}, {"name": "proxy", "state": RUNS}]
    return {"phase": "Running", "containerStatuses": statuses}


def started(*jobs: TrainingJob) -> Controller:
    return asyncio.run(taken_over(*jobs, policy="chunk"))


def seen(controller: Controller, one: Pod) -> None:
    reported(controller, "pods", one.key, one)


def foreign(controller: Controller) -> int:
    return controller.planner.cluster.nodes["n1"].node.foreign.gpus


def free(controller: Controller) -> int:
    return controller.planner.cluster.nodes["n1"].free_gpus


class TestForeignPods:
    def test_labels_alone_hide_no_pod(self) -> None:
        controller = started()
        seen(controller, pod(uid=None, gpus=2))
        assert foreign(controller) == 2
        reported(controller, "jobs", "default/w", resource("w"))
        assert written(controller, "w")["plan"]["workers"] == []

    def test_planned_pods_are_not_foreign(self) -> None:
        controller = started(resource("j"))
        seen(controller, pod())
        seen(controller, pod("j-worker-1-2", index=1, attempt=2))
        assert (foreign(controller), free(controller)) == (0, 0)

    @pytest.mark.parametrize(
        "claim",
        [
            {"name": "copy"},
            {"name": "copy", "uid": None},
            {"uid": "another"},
            {"name": "j-worker-0-9", "attempt": 9},
            {"name": "j-worker-1-1", "index": 1},
        ],
        ids=["name", "debug copy", "deleted job", "attempt", "index"],
    )
    def test_pod_that_belongs_to_no_window_is_foreign(self, claim: dict[str, Any]) -> None:
        controller = started(resource("j"))
        seen(controller, pod(**claim))
        assert foreign(controller) == 1

    def test_pods_that_a_failed_job_leaves_are_foreign(self) -> None:
        controller = started(resource("j"))
        seen(controller, pod())
        seen(controller, pod("j-worker-1-2", index=1, attempt=2))
        reported(controller, "jobs", "default/w", resource("w"))
        reported(controller, "jobs", "default/j", resource("j", phase="Failed"))
        assert foreign(controller) == 2
        assert controller.planner.cluster.jobs["default/w"].attempts == 0, "no window was opened in between"

    def test_room_is_free_when_the_pods_are_gone(self) -> None:
        controller = started(resource("j"))
        seen(controller, pod())
        reported(controller, "jobs", "default/j", None)
        assert foreign(controller) == 1
        reported(controller, "pods", "default/j-worker-0-1", None)
        assert (foreign(controller), free(controller)) == (0, 2)

    def test_window_keeps_gpu_until_the_end_of_the_pod(self) -> None:
        controller = started(resource("j"))
        ended = [{"name": "t", "state": CODE_0}]
        seen(controller, pod())
        seen(controller, pod(status={"phase": "Running", "containerStatuses": ended}))
        assert (foreign(controller), free(controller)) == (0, 0)
        seen(controller, pod(status={"phase": "Succeeded", "containerStatuses": ended}))
        assert (foreign(controller), free(controller)) == (0, 1)

    def test_sidecar_that_runs_on_holds_the_room(self) -> None:
        controller = started(resource("j"))
        seen(controller, pod(sidecar=True))
        seen(controller, pod(status=running(CODE_0), sidecar=True))
        assert written(controller, "j")["progress"]["done"] == "0"
        assert foreign(controller) == 1
        assert len(controller.planner.cluster.jobs["default/j"].runs) == 1
        seen(controller, pod(status={"phase": "Succeeded"}, sidecar=True))
        assert foreign(controller) == 0

    def test_exit_code_of_the_trainer_counts_although_a_sidecar_runs(self) -> None:
        controller = started(resource("j"))
        seen(controller, pod(status=running({"terminated": {"exitCode": 3}}), sidecar=True))
        progress = written(controller, "j")["progress"]
        assert (progress["failures"], progress["attempts"][0]["exitCode"]) == (1, 3)


class TestTakeOver:
    def take_over(self, first: Controller, *pods: Pod, broken: bool = False) -> Controller:
        """Let another leader restore what the first one wrote."""
        body = resource("j").model_dump(mode="json", by_alias=True)
        body["status"] = written(first, "j")
        if broken:
            body["spec"]["model"] = {"stepTime": "1x"}
        second = asyncio.run(taken_over(policy="chunk", term=3))
        second.watches.pods.store.update({one.key: one for one in pods})
        second.watches.jobs.store["default/j"] = TrainingJob.model_validate(body)
        second.restore()
        return second

    def test_pods_of_restored_windows_are_not_foreign(self) -> None:
        second = self.take_over(started(resource("j")), pod(), pod("j-worker-1-2", index=1, attempt=2))
        assert (foreign(second), free(second)) == (0, 0)

    def test_other_pods_of_a_restored_job_are_foreign(self) -> None:
        second = self.take_over(started(resource("j")), pod("j-worker-0-7", attempt=7))
        assert foreign(second) == 1

    def take_over_three(self, *windows: tuple[str, str], refused: str = "") -> set[int]:
        """Take over windows, given by node and state, of which the first two have pods on n1; return those that close.

        Node n1 has room for two of three pods.
        """
        workers = [
            {"index": n, "attempt": n + 1, "site": "default", "node": node, "chunks": [n], "state": state}
            for n, (node, state) in enumerate(windows)
        ]
        condition = {"type": refused, "status": "True", "reason": "No", "message": "no", "lastTransitionTime": STAMP}
        status: dict[str, Any] = {
            "plan": {"term": 1, "revision": 1, "observedGeneration": 0, "attempts": 3, "workers": workers},
            "conditions": [condition] if refused else [],
        }
        second = asyncio.run(taken_over(policy="chunk", term=3, nodes=2))
        second.watches.jobs.store["default/j"] = resource("j", data={"chunks": 3}, **status)
        pods = [pod(), pod("j-worker-1-2", index=1, attempt=2)]
        second.watches.pods.store.update({one.key: one for one in pods})
        second.restore()
        runs = second.planner.cluster.jobs["default/j"].runs
        return {attempt for attempt, run in runs.items() if run.closing}

    @pytest.mark.parametrize(("refused", "closing"), [("PodsRejected", {2, 3}), ("EvictionsRefused", {3}), ("", {2})])
    def test_refusal_before_a_takeover_stops_no_training(self, refused: str, closing: set[int]) -> None:
        windows = [("n1", "Open"), ("n1", "Closing"), ("n1", "Open")]
        assert self.take_over_three(*windows, refused=refused) == closing

    @pytest.mark.parametrize(("present", "closing"), [(2, set()), (1, {1, 2})])
    def test_old_refusal_of_a_whole_gang_stops_no_training(self, present: int, closing: set[int]) -> None:
        workers = [
            {"index": n, "attempt": n + 1, "site": "default", "node": "n1", "chunks": [n], "state": "Open"}
            for n in range(2)
        ]
        refusal = {"type": "PodsRejected", "status": "True", "reason": "No", "message": "", "lastTransitionTime": STAMP}
        plan = {"term": 1, "revision": 1, "observedGeneration": 0, "attempts": 2, "workers": workers}
        second = asyncio.run(taken_over(policy="chunk", term=3))
        second.watches.jobs.store["default/j"] = resource("j", data=None, plan=plan, conditions=[refusal])
        pods = [pod(), pod("j-worker-1-2", index=1, attempt=2)][:present]
        second.watches.pods.store.update({one.key: one for one in pods})
        second.restore()
        runs = second.planner.cluster.jobs["default/j"].runs
        assert {attempt for attempt, run in runs.items() if run.closing} == closing

    def test_pod_on_a_fallback_before_a_takeover_stops_no_training(self) -> None:
        assert self.take_over_three(("n2", "Open"), ("n1", "Open"), ("n1", "Open")) == {3}

    def test_pods_of_a_job_that_cannot_be_read_are_foreign(self) -> None:
        second = self.take_over(started(resource("j")), pod(), broken=True)
        assert "default/j" not in second.planner.cluster.jobs
        assert foreign(second) == 1


class TestAdmittedPods:
    def test_window_reserves_what_its_pod_requests(self) -> None:
        controller = started(resource("j"))
        seen(controller, pod(cpu="3"))
        state = controller.planner.cluster.jobs["default/j"]
        assert state.runs[1].requests.cpu == 3000
        assert controller.planner.cluster.nodes["n1"].reserved.cpu == 6000 - 3000 + 1000

    def test_job_is_planned_as_the_dry_run_says(self) -> None:
        requests = {"cpu": "4", "memory": "1Gi", GPU: "1"}
        toleration = {"key": "gpu", "operator": "Exists"}
        shape = {"role": "worker", "requests": requests, "tolerations": [toleration], "nodeSelector": {"zone": "good"}}
        admitted = {"generation": 1, "pods": [shape]}
        job = started(resource("j", admitted=admitted)).planner.cluster.jobs["default/j"].job
        assert job.worker.requests == Resources(4000, 2**30, 1, 1)
        assert job.declared_requests == Resources(1000, 0, 1, 1)
        assert job.worker.constraints.selector == (("zone", "good"),)
        assert [one.key for one in job.worker.constraints.tolerations] == ["gpu"]

    def test_dry_run_of_an_earlier_generation_is_ignored(self) -> None:
        admitted = {"generation": 7, "pods": [{"role": "worker", "requests": {"cpu": "4"}}]}
        job = started(resource("j", admitted=admitted)).planner.cluster.jobs["default/j"].job
        assert job.worker.requests.cpu == 1000


class TestStoppingPods:
    def closing(self) -> Controller:
        controller = started(resource("j", data={"chunks": 1}))
        assert written(controller, "j")["plan"]["workers"]
        seen(controller, pod())
        body = resource("j", data={"chunks": 1}).model_dump(mode="json", by_alias=True)
        body["metadata"]["generation"] = 2
        body["spec"]["suspend"] = True
        reported(controller, "jobs", "default/j", TrainingJob.model_validate(body))
        return controller

    def timeouts(self, controller: Controller, one: Pod, node: NodeObject | None = None) -> Timeouts:
        nodes = {"n1": node} if node is not None else {}
        return timeouts_of(controller.planner, {one.key: one}, UnreachableNodes(nodes, {}))

    def test_pod_is_overdue_after_grace_and_slack(self) -> None:
        states = list(self.closing().planner.cluster.jobs.values())
        timeouts = self.timeouts(self.closing(), pod())
        assert timeouts.due(states, NOW, 0.0) == []
        assert timeouts.due(states, NOW + 39, 39.0) == []
        assert timeouts.due(states, NOW + 40, 40.0) == [PodOverdue("default/j", 1)]

    def test_pod_that_a_dead_watch_shows_is_not_overdue(self) -> None:
        """It has stopped, and the pod that replaces it would be stopped to make room for it."""
        controller, server_pods = self.closing(), dict[str, Pod]()
        states = list(controller.planner.cluster.jobs.values())
        checks = ServerPods(lambda one: server_pods.get(one.key) == one)
        timeouts = timeouts_of(controller.planner, {pod().key: pod()}, checks=checks)
        timeouts.due(states, NOW, 0.0)
        assert timeouts.due(states, NOW + 60, 60.0) == []
        server_pods[pod().key] = pod()
        assert timeouts.due(states, NOW + 61, 61.0) == [PodOverdue("default/j", 1)]

    def test_time_counts_from_the_deletion_by_somebody_else(self) -> None:
        """The window was preempted 20 s later, and its room counted as free for another 40 s."""
        controller = started(resource("j", data={"chunks": 1}))
        timeouts = self.timeouts(controller, deleted_pod())
        assert timeouts.due(list(controller.planner.cluster.jobs.values()), NOW, 0.0) == []
        closing = list(self.closing().planner.cluster.jobs.values())
        assert timeouts.due(closing, NOW + 20, 20.0) == []
        assert timeouts.due(closing, NOW + 40, 40.0) == [PodOverdue("default/j", 1)]

    def test_deleted_pod_of_an_open_window_becomes_overdue(self) -> None:
        controller = started(resource("j", data={"chunks": 1}))
        timeouts = self.timeouts(controller, deleted_pod())
        states = list(controller.planner.cluster.jobs.values())
        assert timeouts.due(states, NOW, 0.0) == []
        assert timeouts.due(states, NOW + 40, 40.0) == [PodOverdue("default/j", 1)]

    def test_deleted_pod_on_a_silent_node_is_not_overdue(self) -> None:
        controller = started(resource("j", data={"chunks": 1}))
        timeouts = self.timeouts(controller, deleted_pod(), silent(NOW))
        states = list(controller.planner.cluster.jobs.values())
        assert timeouts.due(states, NOW, 0.0) == []
        assert timeouts.due(states, NOW + 200, 200.0) == []

    @pytest.mark.parametrize("is_gang", [False, True])
    def test_workers_do_not_wait_for_a_server_that_hangs(self, is_gang: bool) -> None:
        """Somebody has deleted the server, and its node responds."""
        p = planner("chunk", [node("n1"), node("n2")])
        helper = PodShape(Resources(cpu=1000))
        kind = {"chief": helper} if is_gang else {"servers": 1, "server": helper}
        p.handle(JobSubmitted(job("j", uid="j", is_gang=is_gang, **kind)), NOW)
        state = p.cluster.jobs["default/j"]
        (planned,) = (server.planned for server in state.servers)
        role = "chief" if is_gang else "ps"
        one = deleted_pod(f"j-{role}-0-{planned.attempt}", role=role, attempt=planned.attempt)
        timeouts = timeouts_of(p, {one.key: one})
        assert timeouts.due([state], NOW, 0.0) == []
        assert timeouts.due([state], NOW + 39, 39.0) == []
        (event,) = timeouts.due([state], NOW + 40, 40.0)
        assert event == PodOverdue("default/j", planned.attempt)
        p.handle(event, NOW + 40)
        assert state.has_closing_servers
        assert all(run.closing for run in state.runs.values())
        assert p.cluster.nodes[planned.node or ""].reserved.cpu >= 1000
        assert timeouts.due([state], NOW + 41, 41.0) == []

    def test_long_grace_period_does_not_hide_the_pod(self) -> None:
        states = list(self.closing().planner.cluster.jobs.values())
        timeouts = self.timeouts(self.closing(), pod(deletionGracePeriodSeconds=10**7))
        timeouts.due(states, NOW, 0.0)
        assert timeouts.due(states, NOW + 610, 610.0) == [PodOverdue("default/j", 1)]

    def test_time_without_node_does_not_count(self) -> None:
        controller = self.closing()
        states = list(controller.planner.cluster.jobs.values())
        waiting = msgspec.structs.replace(pod(), spec=msgspec.structs.replace(pod().spec, node_name=""))
        store = {waiting.key: waiting}
        timeouts = timeouts_of(controller.planner, store)
        timeouts.due(states, NOW, 0.0)
        store[waiting.key] = pod()
        assert timeouts.due(states, NOW + 39, 39.0) == []

    def test_next_leader_counts_from_the_end_of_the_grace_period(self) -> None:
        controller = self.closing()
        ends = datetime.fromtimestamp(NOW - 11, UTC).isoformat()
        for run in controller.planner.cluster.jobs["default/j"].runs.values():
            run.adopted = True
        timeouts = self.timeouts(controller, pod(deletionTimestamp=ends, deletionGracePeriodSeconds=30))
        states = list(controller.planner.cluster.jobs.values())
        assert timeouts.due(states, NOW, 0.0) == [PodOverdue("default/j", 1)]

    def test_controller_counts_the_room_of_an_overdue_pod(self) -> None:
        controller = self.closing()
        assert free(controller) == 2
        controller.handle(PodOverdue("default/j", 1))
        assert free(controller) == 1


def silent(since: float, **spec: Any) -> NodeObject:
    at = datetime.fromtimestamp(since, UTC).isoformat()
    conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": at}]
    return msgspec.convert(
        {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}}, NodeObject, strict=False
    )


def lost(at: float) -> WorkerEnded:
    return WorkerEnded("default/j", 1, "Lost", at, stopped_by="node n1 does not respond")


class TestSilentNodes:
    """The default disconnectTolerance is one hour; undeclared sites tolerate 300 s."""

    def events(self, node: NodeObject, now: float, *, is_gang: bool = False, closing: bool = False) -> list[Any]:
        controller = (
            TestStoppingPods().closing() if closing else started(resource("j", data=None if is_gang else {"chunks": 2}))
        )
        timeouts = TestStoppingPods().timeouts(controller, pod(), node)
        return timeouts.due(list(controller.planner.cluster.jobs.values()), now, 0.0)

    def test_gang_waits_a_minute(self) -> None:
        assert self.events(silent(NOW), NOW + 59, is_gang=True) == []
        assert self.events(silent(NOW), NOW + 60, is_gang=True) == [lost(NOW + 60)]

    def test_chunked_job_waits_as_long_as_its_site_tolerates(self) -> None:
        assert self.events(silent(NOW), NOW + 299) == []
        assert self.events(silent(NOW), NOW + 300) == [lost(NOW + 300)]

    def test_closing_window_waits_for_its_grace_period_too(self) -> None:
        assert self.events(silent(NOW), NOW + 89, closing=True) == []
        assert self.events(silent(NOW), NOW + 90, closing=True) == [lost(NOW + 90)]

    @pytest.mark.parametrize(
        ("quiet", "site", "seconds"),
        [
            ({"n0"}, "edge", 60),
            ({"n0", "n1"}, "edge", 60),
            ({"n0", "n1", "n2"}, "edge", 300),
            ({"n0", "n1", "n2"}, "cloud", 60),
        ],
        ids=["alone", "with one of its workers", "with its site", "workers at another site"],
    )
    def test_server_of_waiting_workers_is_lost_after_a_minute(self, quiet: set[str], site: str, seconds: int) -> None:
        """No worker trains without the server, except workers that were cut off together with it."""
        helper = node("n0", gpus=0, site="edge")
        p = planner("chunk", [helper, node("n1", site=site), node("n2", site=site)])
        p.handle(JobSubmitted(job("j", chunks=2, servers=1, server=PodShape(Resources(cpu=1000)), uid="j")), NOW)
        (server,) = p.cluster.jobs["default/j"].servers
        server.planned = replace(server.planned, node="n0", site="edge")
        one = pod(f"j-ps-0-{server.planned.attempt}", role="ps", attempt=server.planned.attempt)
        one = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name="n0"))
        timeouts = timeouts_of(p, {one.key: one}, UnreachableNodes({name: silent(NOW) for name in quiet}, {}))
        states = list(p.cluster.jobs.values())
        assert timeouts.due(states, NOW + seconds - 1, 0.0) == []
        (lost_server,) = timeouts.due(states, NOW + seconds, 1.0)
        assert isinstance(lost_server, ParameterServerEnded)

    def test_node_out_of_service_is_lost_at_once(self) -> None:
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        assert self.events(silent(NOW, taints=[taint]), NOW + 1) == [lost(NOW + 1)]


class TestLostPlaces:
    """Parameter servers whose pods have no node yet, when their planned place is gone."""

    def controller(self, *sites: SiteObject, nodes: int = 3) -> Controller:
        template = {"spec": {"containers": [{"name": "t", "resources": {"requests": {"cpu": "1"}}}]}}
        one = resource("j", parameterServers={"replicas": 1, "template": template})
        return asyncio.run(taken_over(one, policy="chunk", nodes=nodes, gpus=1, sites=sites))

    def check(self, controller: Controller) -> JobState:
        """Let the controller look at its timeouts, a second later."""
        reported(controller, "quotas", "default/none", None)
        return controller.planner.cluster.jobs["default/j"]

    @pytest.mark.parametrize("created", [False, True])
    @pytest.mark.parametrize("cordoned", [False, True])
    def test_server_without_node_leaves_a_node_at_once(self, created: bool, cordoned: bool) -> None:
        controller = self.controller()
        state = self.check(controller)
        (planned,) = [server.planned for server in state.servers]
        name = f"j-ps-0-{planned.attempt}"
        pending = pod(name, role="ps", attempt=planned.attempt, gpus=0, status={"phase": "Pending"})
        if created:
            unbound = msgspec.structs.replace(pending.spec, node_name="")
            seen(controller, msgspec.structs.replace(pending, spec=unbound))
        where = planned.node or ""
        known = controller.watches.nodes.store[where]
        held = msgspec.structs.replace(known.spec, unschedulable=True)
        reported(controller, "nodes", where, msgspec.structs.replace(known, spec=held) if cordoned else None)
        state = self.check(controller)
        assert state.has_closing_servers
        assert (state.placement.failures, state.held_until) == (0, 0.0)
        for attempt in list(state.runs):
            controller.handle(WorkerEnded("default/j", attempt, "Lost", NOW))
        controller.handle(ParameterServerEnded("default/j", 0, planned.attempt, "Lost"))
        assert {server.planned.node for server in state.servers}.isdisjoint({where})
        assert len(state.servers) == 1

    def test_bound_server_stays_on_a_cordoned_node(self) -> None:
        controller = self.controller()
        (planned,) = [server.planned for server in self.check(controller).servers]
        where = planned.node or ""
        one = pod(f"j-ps-0-{planned.attempt}", role="ps", attempt=planned.attempt, gpus=0)
        seen(controller, msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=where)))
        known = controller.watches.nodes.store[where]
        held = msgspec.structs.replace(known.spec, unschedulable=True)
        reported(controller, "nodes", where, msgspec.structs.replace(known, spec=held))
        assert not self.check(controller).has_closing_servers

    def test_server_leaves_a_site_that_creates_no_nodes_any_more(self) -> None:
        """The operator creates no pod for it, so that no other timeout ends the wait."""
        spec = {"tier": "Cloud", "unlimited": True, "nodeSelector": {"zone": "cloud"}}
        cloud = SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": spec})
        controller = self.controller(cloud, nodes=0)
        assert [server.planned.site for server in self.check(controller).servers] == ["cloud"]
        reported(controller, "sites", "cloud", None)
        state = self.check(controller)
        assert state.has_closing_servers
        assert (state.placement.failures, state.held_until) == (0, 0.0)


class TestGoneJobs:
    def test_unpublished_windows_of_a_gone_job_are_forgotten(self) -> None:
        controller = started(resource("j"))
        assert controller._unpublished
        reported(controller, "jobs", "default/j", None)
        assert controller._unpublished == set()
