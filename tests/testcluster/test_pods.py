"""Behavior of the simulated nodes with a pod, by its annotations."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from support.waiting import changes, eventually
from tranche_testcluster import Cluster, annotations

PODS = "/api/v1/namespaces/default/pods"
FINALIZER = "tranche.dev/ledger"
LATE_SECONDS = 60.0
"""How late a simulated node may act, or this process may notice it, on a machine under load. A mistake in a stage that
a test is to find takes longer."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(pod_logs={"default/talker": "one\ntwo\n"}) as cluster:
        cluster.add_site("edge-a")
        yield cluster


class Pods:
    """Pods on edge-a-0, bound without a scheduler."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create(
        self,
        name: str,
        asked: Mapping[str, str],
        env: Mapping[str, str] | None = None,
        *,
        grace: int = 30,
        finalizers: tuple[str, ...] = (),
        node: str = "edge-a-0",
        containers: int = 1,
        role: str | None = None,
    ) -> None:
        variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
        spec: dict[str, Any] = {
            "containers": [
                {"name": f"c{number}", "image": "trainer", "env": variables if number == 0 else []}
                for number in range(containers)
            ],
            "terminationGracePeriodSeconds": grace,
            "restartPolicy": "Never",
        }
        if node:
            spec["nodeName"] = node
        metadata: dict[str, Any] = {"name": name, "annotations": dict(asked), "finalizers": list(finalizers)}
        if role is not None:
            metadata["labels"] = {"tranche.dev/role": role}
        status, answer = self.cluster.request("POST", PODS, {"metadata": metadata, "spec": spec})
        assert status == 201, answer

    def get(self, name: str) -> dict[str, Any] | None:
        status, answer = self.cluster.request("GET", f"{PODS}/{name}")
        assert status in (200, 404), answer
        return answer if status == 200 else None

    def until(self, name: str, wanted: Callable[[dict[str, Any] | None], object]) -> Any:
        def look() -> list[dict[str, Any] | None]:
            return [pod] if wanted(pod := self.get(name)) else []

        return eventually(look, lambda: self.get(name), pause=0.01)[0]

    def until_phase(self, name: str, *phases: str) -> dict[str, Any]:
        pod: dict[str, Any] = self.until(name, lambda pod: pod is not None and pod["status"]["phase"] in phases)
        return pod

    def until_gone(self, name: str) -> None:
        self.until(name, lambda pod: pod is None)

    def delete(self, name: str, grace: int | None = None) -> None:
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        assert self.cluster.request("DELETE", f"{PODS}/{name}{query}")[0] == 200

    def evict(self, name: str) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        assert self.cluster.request("POST", f"{PODS}/{name}/eviction", eviction)[0] == 201

    def patch(self, name: str, patch: Mapping[str, Any]) -> None:
        kind = "application/merge-patch+json"
        assert self.cluster.request("PATCH", f"{PODS}/{name}", patch, kind)[0] == 200

    def release(self, name: str) -> None:
        self.patch(name, {"metadata": {"finalizers": None}})


@pytest.fixture
def pods(cluster: Cluster) -> Pods:
    return Pods(cluster)


def terminated(pod: Mapping[str, Any], container: int = 0) -> dict[str, Any]:
    state: dict[str, Any] = pod["status"]["containerStatuses"][container]["state"]["terminated"]
    return state


def has_ended(pod: Mapping[str, Any] | None) -> bool:
    """Return whether the first container has terminated."""
    statuses = pod["status"].get("containerStatuses", ()) if pod else ()
    return "terminated" in next((one["state"] for one in statuses), {})


def milliseconds(pod: Mapping[str, Any], condition: str) -> int:
    """Time since 1970 of one of kwok's own conditions."""
    (message,) = (c["message"] for c in pod["status"]["conditions"] if c["type"] == f"kwok.tranche.dev/{condition}")
    return int(message)


def moment(pod: Mapping[str, Any], condition: str) -> float:
    """Seconds since 1970 of one of kwok's own conditions."""
    return milliseconds(pod, condition) / 1000


def assert_takes(seconds: float, wanted: float) -> None:
    """Assert that a duration is what was asked for, and not longer than a loaded machine explains."""
    assert wanted - 0.05 <= seconds < wanted + LATE_SECONDS


def training(chunks: str, batches: int, resume: str | None = None) -> dict[str, str]:
    env = {"TRANCHE_CHUNKS": chunks, "TRANCHE_EPOCHS": "2", "TRANCHE_BATCHES": str(batches // 2)}
    return env if resume is None else {**env, "TRANCHE_RESUME": resume}


def test_a_pod_starts_and_succeeds_after_the_times_it_asks_for(pods: Pods) -> None:
    begin = time.time()
    pods.create("timed", {annotations.START_SECONDS: "2", annotations.RUN_SECONDS: "0.7"})
    waiting = pods.until("timed", lambda pod: pod and "containerStatuses" in pod["status"])
    pods.patch("timed", {"metadata": {"labels": {"touched": "once"}}})  # must not restart the time
    running = pods.until_phase("timed", "Running")
    pods.patch("timed", {"metadata": {"labels": {"touched": "twice"}}})
    ended = pods.until_phase("timed", "Succeeded", "Failed")
    end = time.time()
    assert_takes(moment(running, "started") - moment(waiting, "created"), 2.0)
    assert_takes(end - begin, 2.7)
    assert ended["status"]["phase"] == "Succeeded"
    assert terminated(ended)["exitCode"] == 0
    assert terminated(ended)["reason"] == "Completed"
    assert "message" not in terminated(ended)
    ready = {c["type"]: c["status"] for c in ended["status"]["conditions"]}
    assert ready["Ready"] == "False"


def test_pod_ends_some_time_after_its_containers(pods: Pods) -> None:
    asked = {annotations.RUN_SECONDS: "0.1", annotations.RELEASE_SECONDS: "600", annotations.EXIT_CODE: "3"}
    pods.create("released", asked, containers=2)
    pod = pods.until("released", has_ended)
    assert pod["status"]["phase"] == "Running"
    assert [terminated(pod, number)["exitCode"] for number in (0, 1)] == [3, 3]
    pods.patch("released", {"metadata": {"annotations": {annotations.RELEASE_SECONDS: "2"}}})
    over = pods.until_phase("released", "Succeeded", "Failed")
    assert_takes(time.time() - moment(pod, "ended"), 2.0)
    assert over["status"]["phase"] == "Failed"
    assert terminated(over)["exitCode"] == 3


def test_pod_with_exit_code_annotation_fails_without_progress(pods: Pods) -> None:
    asked = {annotations.BATCH_SECONDS: "0.01", annotations.EXIT_CODE: "3"}
    pods.create("crash", asked, training("0", 10))
    pod = pods.until_phase("crash", "Succeeded", "Failed")
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == 3
    assert terminated(pod)["reason"] == "Error"
    assert "message" not in terminated(pod)


def test_a_pod_that_asks_for_no_time_runs_until_it_is_deleted(pods: Pods) -> None:
    pods.create("server", {})
    pods.until_phase("server", "Running")
    seen = changes(pods.cluster, f"{PODS}?fieldSelector=metadata.name=server", 1)
    assert all(event["object"]["status"]["phase"] == "Running" for event in seen)
    pod = pods.get("server")
    assert pod is not None
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"]
    pods.delete("server")
    pods.until_gone("server")


def test_a_finished_list_of_chunks_is_reported_whole(pods: Pods) -> None:
    pods.create("list", {annotations.BATCH_SECONDS: "0.07"}, training("0,5,12", 10), containers=2)
    running = pods.until_phase("list", "Running")
    pod = pods.until_phase("list", "Succeeded")
    assert_takes(time.time() - moment(running, "started"), 30 * 0.07)
    assert json.loads(terminated(pod)["message"]) == {"0": 10, "5": 10, "12": 10}
    assert "message" not in terminated(pod, 1)


def test_worker_trains_at_the_declared_speed(pods: Pods) -> None:
    pods.create("declared", {annotations.STEP_SECONDS: "0.07"}, training("0,5", 20), role="worker")
    running = pods.until_phase("declared", "Running")
    pod = pods.until_phase("declared", "Succeeded")
    assert_takes(time.time() - moment(running, "started"), 40 * 0.07)
    assert json.loads(terminated(pod)["message"]) == {"0": 20, "5": 20}


def test_evicted_worker_with_declared_speed_saves_progress(pods: Pods) -> None:
    asked = {annotations.STEP_SECONDS: "0.02"}
    pods.create("stopped", asked, training("0", 100_000), finalizers=(FINALIZER,), role="worker")
    running = pods.until_phase("stopped", "Running")
    eventually(lambda: time.time() > moment(running, "started") + 0.4, "20 batches are trained")
    pods.evict("stopped")
    pod = pods.until_phase("stopped", "Succeeded", "Failed")
    trained = (moment(pod, "stopping") - moment(running, "started")) / 0.02
    assert json.loads(terminated(pod)["message"])["0"] == pytest.approx(trained, abs=1)
    pods.release("stopped")


def test_chief_trains_all_batches_without_a_message(pods: Pods) -> None:
    env = {"TRANCHE_EPOCHS": "1", "TRANCHE_BATCHES": "1"}
    pods.create("chief", {annotations.STEP_SECONDS: "2"}, env, role="chief")
    running = pods.until_phase("chief", "Running")
    pod = pods.until_phase("chief", "Succeeded")
    assert_takes(time.time() - moment(running, "started"), 2.0)
    assert "message" not in terminated(pod)


def test_staging_pod_ends_at_once(pods: Pods) -> None:
    pods.create("staging", {}, {"TRANCHE_CHUNKS": "0,1"}, role="staging")
    assert terminated(pods.until_phase("staging", "Succeeded"))["exitCode"] == 0


def test_pod_with_named_trainer_runs_on_after_trainer_ended(pods: Pods) -> None:
    asked = {annotations.BATCH_SECONDS: "0.02", annotations.TRAINER: "c0"}
    pods.create("meshed", asked, training("0,5", 10), containers=2)
    pod = pods.until("meshed", has_ended)
    assert pod["status"]["phase"] == "Running"
    assert terminated(pod)["exitCode"] == 0
    assert json.loads(terminated(pod)["message"]) == {"0": 10, "5": 10}
    assert "running" in pod["status"]["containerStatuses"][1]["state"]


def test_deleted_pod_keeps_the_end_of_its_trainer(pods: Pods) -> None:
    asked = {annotations.BATCH_SECONDS: "0.02", annotations.TRAINER: "c0"}
    pods.create("held", asked, training("0", 10), containers=2, finalizers=(FINALIZER,))
    pods.until("held", has_ended)
    pods.delete("held")
    pod = pods.until_phase("held", "Succeeded", "Failed")
    assert [terminated(pod, number)["exitCode"] for number in range(2)] == [0, 143]
    assert json.loads(terminated(pod)["message"]) == {"0": 10}
    pods.release("held")


def test_a_resumed_list_runs_only_for_what_is_left(pods: Pods) -> None:
    env = training("5,7,9", 20_000, resume="5:20000,7:19960,9:19900,4:50")
    pods.create("resumed", {annotations.BATCH_SECONDS: "0.05"}, env)
    running = pods.until_phase("resumed", "Running")
    pod = pods.until_phase("resumed", "Succeeded")
    assert_takes(time.time() - moment(running, "started"), 140 * 0.05)  # all of it: 3000 s
    assert json.loads(terminated(pod)["message"]) == {"5": 20_000, "7": 20_000, "9": 20_000}


def test_evicted_pod_saves_batches_trained_before_the_eviction(pods: Pods) -> None:
    asked = {annotations.BATCH_SECONDS: "0.1", annotations.CHECKPOINT_SECONDS: "2"}
    env = training("5,7,9,11", 4000, resume="5:3990,7:3960,9:4")
    pods.create("preempted", asked, env, finalizers=(FINALIZER,))
    running = pods.until_phase("preempted", "Running")
    eventually(lambda: time.time() > moment(running, "started") + 55 * 0.1, "55 batches are trained")
    evicted = time.time()
    pods.evict("preempted")
    pods.patch("preempted", {"metadata": {"labels": {"touched": "yes"}}})
    pod = pods.until_phase("preempted", "Succeeded", "Failed")
    assert_takes(time.time() - evicted, 2.0)
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == 143
    assert {c["type"] for c in pod["status"]["conditions"]} >= {"DisruptionTarget"}

    progress = json.loads(terminated(pod)["message"])
    trained = (moment(pod, "stopping") - moment(running, "started")) / 0.1
    assert sum(progress.values()) - 7954 == pytest.approx(trained, abs=1)
    assert moment(pod, "stopping") - evicted < LATE_SECONDS
    assert progress["5"] == 4000
    assert progress["7"] == 4000
    assert 4 < progress["9"] < 4000
    assert "11" not in progress
    pods.release("preempted")


def test_evicted_gang_member_saves_fraction_and_resumes_from_it(pods: Pods) -> None:
    # The run lasts 1024 s, and a checkpoint is written every two seconds.
    asked = {annotations.BATCH_SECONDS: "1024", annotations.CHECKPOINT_BATCHES: "0.001953125"}
    env = {"TRANCHE_CHUNKS": "3", "TRANCHE_EPOCHS": "1", "TRANCHE_BATCHES": "1"}
    pods.create("member", asked, {**env, "TRANCHE_RESUME": "3:0.25"}, finalizers=(FINALIZER,))
    running = pods.until_phase("member", "Running")
    eventually(lambda: time.time() > moment(running, "started") + 2.4, "a checkpoint is written")
    pods.evict("member")
    pod = pods.until_phase("member", "Failed")
    saved = (milliseconds(pod, "stopping") - milliseconds(running, "started")) // 2000
    assert saved
    assert json.loads(terminated(pod)["message"]) == {"3": 0.25 + saved / 512}
    pods.release("member")

    asked = {annotations.BATCH_SECONDS: "800"}
    pods.create("member-again", asked, {**env, "TRANCHE_RESUME": "3:0.99625"})
    running = pods.until_phase("member-again", "Running")
    pods.until_phase("member-again", "Succeeded")
    assert_takes(time.time() - moment(running, "started"), 3.0)  # without the checkpoint: 800 s


def test_a_pod_that_cannot_save_in_its_grace_period_is_killed(pods: Pods) -> None:
    asked = {annotations.BATCH_SECONDS: "0.01", annotations.CHECKPOINT_SECONDS: "600"}
    pods.create("killed", asked, training("0", 100_000), grace=1, finalizers=(FINALIZER,))
    pods.until_phase("killed", "Running")
    begin = time.monotonic()
    pods.delete("killed")
    pod = pods.until_phase("killed", "Succeeded", "Failed")
    assert_takes(time.monotonic() - begin, 1)  # the checkpoint would need 600 s
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == 137
    assert "message" not in terminated(pod)
    pods.release("killed")
    pods.until_gone("killed")


def test_a_second_delete_shortens_the_grace_period(pods: Pods) -> None:
    pods.create("hurried", {annotations.CHECKPOINT_SECONDS: "600"}, grace=600, finalizers=(FINALIZER,))
    pods.until_phase("hurried", "Running")
    pods.delete("hurried")
    begin = time.monotonic()
    pods.delete("hurried", grace=1)
    assert terminated(pods.until_phase("hurried", "Failed"))["exitCode"] == 137
    assert time.monotonic() - begin < LATE_SECONDS  # of 600 s
    pods.release("hurried")
    pods.until_gone("hurried")


def test_finalizer_keeps_ended_pod_until_it_is_removed(pods: Pods) -> None:
    pods.create("kept", {}, finalizers=(FINALIZER,))
    pods.until_phase("kept", "Running")
    pods.delete("kept")
    pod = pods.until("kept", lambda pod: pod and pod["metadata"].get("deletionGracePeriodSeconds") == 0)
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == 143
    seen = changes(pods.cluster, f"{PODS}?fieldSelector=metadata.name=kept", 1)
    assert "DELETED" not in [event["type"] for event in seen]
    assert pods.get("kept") is not None
    pods.release("kept")
    assert pods.get("kept") is None


def test_deleted_pod_without_finalizers_vanishes_after_saving(pods: Pods) -> None:
    pods.create("slow", {annotations.CHECKPOINT_SECONDS: "2"})
    pods.until_phase("slow", "Running")
    begin = time.monotonic()
    pods.delete("slow")
    pods.until_gone("slow")
    assert_takes(time.monotonic() - begin, 2.0)


def test_a_pod_deleted_before_it_runs_fails_and_goes_at_once(pods: Pods) -> None:
    pods.create("starting", {annotations.START_SECONDS: "600"}, finalizers=(FINALIZER,))
    waiting = pods.until("starting", lambda pod: pod and "containerStatuses" in pod["status"])
    assert waiting["status"]["phase"] == "Pending"
    pods.delete("starting")
    pod = pods.until("starting", lambda pod: pod and pod["metadata"].get("deletionGracePeriodSeconds") == 0)
    assert pod["status"]["phase"] == "Failed"
    assert terminated(pod)["exitCode"] == 137
    pods.release("starting")
    assert pods.get("starting") is None


def test_an_unbound_pod_and_an_ended_pod_are_deleted_at_once(pods: Pods) -> None:
    pods.create("unbound", {}, node="")
    pods.delete("unbound")
    assert pods.get("unbound") is None

    pods.create("ended", {annotations.RUN_SECONDS: "0"})
    pods.until_phase("ended", "Succeeded")
    pods.delete("ended")
    assert pods.get("ended") is None


def test_a_run_time_may_change_while_the_pod_runs(pods: Pods) -> None:
    pods.create("changed", {annotations.RUN_SECONDS: "3600"})
    pods.until_phase("changed", "Running")
    pods.patch("changed", {"metadata": {"annotations": {annotations.RUN_SECONDS: "0.1"}}})
    pods.until_phase("changed", "Succeeded")


def test_invalid_annotations_or_environment_never_succeed(pods: Pods) -> None:
    pods.create("nonsense", {annotations.BATCH_SECONDS: "soon"}, training("0", 10))
    pods.create("incomplete", {annotations.BATCH_SECONDS: "0.01"}, {"TRANCHE_CHUNKS": "0"})
    for name in ("nonsense", "incomplete"):
        pods.until_phase(name, "Running")
    seen = changes(pods.cluster, PODS, 1)
    assert not [event for event in seen if event["object"]["status"]["phase"] == "Succeeded"]
    for name in ("nonsense", "incomplete"):
        pods.until_phase(name, "Running")
        pods.delete(name)
        pods.until_gone(name)


def test_pod_log_holds_configured_lines_and_other_pods_have_none(cluster: Cluster, pods: Pods) -> None:
    for name in ("talker", "silent"):
        pods.create(name, {})
        pods.until_phase(name, "Running")
    assert cluster.kubectl("logs", "talker") == "one\ntwo\n"
    assert cluster.kubectl("logs", "talker", "--tail=1") == "two\n"
    assert cluster.request("GET", f"{PODS}/silent/log")[0] == 400
