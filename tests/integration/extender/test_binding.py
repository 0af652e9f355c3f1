"""Nodes to which a real kube-scheduler binds the pods of plans, with the real extender."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from support.live_extender import PROFILE, LiveExtender
from support.priority_classes import add_priority_class
from support.waiting import stays
from tranche.kube.api.resources import TrainingJob
from tranche_operator.manifests.pod import worker_pod
from tranche_operator.settings import Settings
from tranche_testcluster import Cluster

GPU = "nvidia.com/gpu"
OLD_LABEL = "beta.kubernetes.io/os"
PATIENCE_SECONDS = 10.0
"""kube-scheduler tries a pod that is not held back again after 1, 3 and 7 seconds."""
Until = Callable[[Callable[[], Any]], Any]


class Lab:
    """Jobs with plans of our own making, and the pods that an operator would create for them."""

    def __init__(self, cluster: Cluster, extender: LiveExtender, namespace: str, until: Until) -> None:
        self.cluster = cluster
        self.extender = extender
        self.namespace = namespace
        self.until = until

    def plan(
        self, job: str, *windows: dict[str, Any], gpus: int = 1, stamp: tuple[int, int] = (1, 1), **more: Any
    ) -> None:
        """Write a job with this plan and wait until the extender has seen it."""
        template = {"spec": {"containers": [container(gpus)]}}
        whole = {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": job, "namespace": self.namespace},
        }
        spec = {"data": {"chunks": 8}, "workers": {"maxReplicas": 8, "template": template}, **more}
        plan = {"term": stamp[0], "revision": stamp[1], "observedGeneration": 1, "workers": windows}
        path = f"/apis/tranche.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs/{job}"
        self._apply(path, {**whole, "spec": spec})
        self._apply(f"{path}/status", {**whole, "status": {"plan": plan}})
        self.until(lambda: self.extender.plan_seen(self.namespace, job) == f"{stamp[0]}.{stamp[1]}")

    def worker(self, job: str, index: int, attempt: int, nodes: Sequence[str], gpus: int = 1, plan: str = "1.1") -> str:
        """Create the pod of a window, with its planned node and fallbacks."""
        labels = {
            "tranche.dev/job": job,
            "tranche.dev/role": "worker",
            "tranche.dev/index": str(index),
            "tranche.dev/attempt": str(attempt),
        }
        path = f"/apis/tranche.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs/{job}"
        uid = self.cluster.request("GET", path)[1]["metadata"]["uid"]
        owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": job, "uid": uid}
        metadata = {
            "labels": labels,
            "annotations": {"tranche.dev/plan": plan},
            "ownerReferences": [{**owner, "controller": True}],
        }
        return self.pod(f"{job}-worker-{index}-{attempt}", nodes, gpus, "tranche-normal", metadata)

    def pod(
        self, name: str, nodes: Sequence[str], gpus: int, priority: str = "", metadata: dict[str, Any] | None = None
    ) -> str:
        """Create a pod that may run on these nodes."""
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec = {
            "schedulerName": PROFILE,
            "priorityClassName": priority,
            "containers": [container(gpus)],
            "affinity": {"nodeAffinity": required},
            "terminationGracePeriodSeconds": 1,
        }
        status, answer = self.cluster.request(
            "POST", self._pods, {"metadata": {"name": name, **(metadata or {})}, "spec": spec}
        )
        assert status == 201, answer
        return name

    def raw_pod(self, name: str, spec: dict[str, Any]) -> str:
        """Create a pod and return its path."""
        status, answer = self.cluster.request("POST", self._pods, {"metadata": {"name": name}, "spec": spec})
        assert status == 201, answer
        return f"{self._pods}/{name}"

    def operator_pod(self, job: str, profile: str = PROFILE, plan: str = "1.1") -> str:
        """Create the pod of a job's first window as the operator does, for the kube-scheduler with this profile."""
        path = f"/apis/tranche.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs/{job}"
        planned = TrainingJob.model_validate(self.cluster.request("GET", path)[1])
        assert planned.status.plan is not None
        manifest = worker_pod(planned, planned.status.plan.workers[0], Settings())
        manifest["spec"]["schedulerName"] = profile
        manifest["metadata"].pop("finalizers")
        manifest["metadata"]["annotations"]["tranche.dev/plan"] = plan
        status, answer = self.cluster.request("POST", self._pods, manifest)
        assert status == 201, answer
        return str(manifest["metadata"]["name"])

    def node_of(self, name: str) -> str:
        """Return the node to which a pod is bound; empty while it is not."""
        status, answer = self.cluster.request("GET", f"{self._pods}/{name}")
        assert status == 200, answer
        return str(answer["spec"].get("nodeName", ""))

    def bound(self, name: str) -> str:
        """Wait until a pod is bound and return where."""
        return str(self.until(lambda: self.node_of(name)))

    def running(self, *names: str) -> None:
        """Wait until pods run, and the extender has seen it, so that nothing of them changes any more."""
        for name in names:
            self.until(partial(self._runs, name))
            self.until(partial(self.extender.pod_runs, self.namespace, name))

    def reason(self, name: str) -> str:
        """Wait until kube-scheduler says why a pod is not bound."""
        return str(self.until(lambda: self._message(name)))

    def started(self, name: str) -> datetime:
        """Return the time at which a running pod was started, in whole seconds."""
        pod = self.cluster.request("GET", f"{self._pods}/{name}")[1]
        return datetime.fromisoformat(pod["status"]["startTime"])

    def names(self) -> set[str]:
        """Return all pods without a deletion timestamp."""
        pods = self.cluster.request("GET", self._pods)[1]["items"]
        return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def remove(self, name: str) -> None:
        """Delete a pod."""
        assert self.cluster.request("DELETE", f"{self._pods}/{name}")[0] == 200

    def quiet(self, *nodes: str) -> None:
        """Wait until the nodes are complete and have not changed for two seconds.

        Every change of a node makes kube-scheduler try again, and kube-controller-manager changes each new one twice.
        """
        self.until(lambda: all(map(self._is_complete, nodes)))
        known, since = "", time.monotonic()
        while time.monotonic() - since < 2:
            answers = [self.cluster.request("GET", f"/api/v1/nodes/{node}")[1] for node in nodes]
            seen = " ".join(str(answer["metadata"]["resourceVersion"]) for answer in answers)
            if seen != known:
                known, since = seen, time.monotonic()
            time.sleep(0.1)

    def _is_complete(self, node: str) -> bool:
        """Return whether a node has the annotation and the labels that kube-controller-manager adds."""
        metadata = self.cluster.request("GET", f"/api/v1/nodes/{node}")[1]["metadata"]
        return "node.alpha.kubernetes.io/ttl" in metadata.get("annotations", {}) and OLD_LABEL in metadata["labels"]

    def alone(self) -> None:
        """Wait until no other pods are left: kube-scheduler tries rejected pods again at every event of any pod."""
        self.until(lambda: not [p for p in self._everywhere() if p["metadata"]["namespace"] != self.namespace])

    def _everywhere(self) -> list[dict[str, Any]]:
        return list(self.cluster.request("GET", "/api/v1/pods")[1]["items"])

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _runs(self, name: str) -> bool:
        return bool(self.cluster.request("GET", f"{self._pods}/{name}")[1]["status"].get("phase") == "Running")

    def _message(self, name: str) -> str:
        conditions = self.cluster.request("GET", f"{self._pods}/{name}")[1]["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    def _apply(self, path: str, body: dict[str, Any]) -> None:
        path += "?fieldManager=tranche-scheduler&force=true"
        status, answer = self.cluster.request("PATCH", path, body, "application/apply-patch+yaml")
        assert status in (200, 201), answer


def container(gpus: int) -> dict[str, Any]:
    limits = {"cpu": "100m", **({GPU: str(gpus)} if gpus else {})}
    return {"name": "main", "image": "trainer", "resources": {"requests": limits, "limits": limits}}


def window(index: int, attempt: int, node: str | None, *fallbacks: str, state: str = "Open") -> dict[str, Any]:
    where = {"site": "edge-a", "fallbacks": fallbacks, **({"node": node} if node else {})}
    return {"index": index, "attempt": attempt, "chunks": [index], "state": state, **where}


@pytest.fixture
def lab(cluster: Cluster, extender: LiveExtender, namespace: str, until: Until) -> Lab:
    return Lab(cluster, extender, namespace, until)


def test_pods_are_bound_to_their_planned_nodes(lab: Lab, site: str) -> None:
    nodes = lab.cluster.add_site(site, nodes=4, gpus=1)
    planned = [2, 0, 3, 1]
    lab.plan("cats", *(window(i, i + 1, nodes[n], nodes[n - 1], nodes[n - 2]) for i, n in enumerate(planned)))
    pods = [lab.worker("cats", i, i + 1, [nodes[n], nodes[n - 1], nodes[n - 2]]) for i, n in enumerate(planned)]
    assert [lab.bound(pod) for pod in pods] == [nodes[n] for n in planned]


def test_window_at_unlimited_site_binds_to_any_of_its_nodes(lab: Lab, site: str) -> None:
    nodes = lab.cluster.add_site(site, nodes=2, gpus=1)
    lab.plan("cats", window(0, 1, None))
    assert lab.bound(lab.worker("cats", 0, 1, nodes)) in nodes


def test_two_jobs_whose_short_lists_overlap_both_get_bound(lab: Lab, site: str) -> None:
    first, second = lab.cluster.add_site(site, nodes=2, gpus=8)
    lab.bound(lab.pod("guest", [second], 8))
    lab.plan("large", window(0, 1, first), gpus=8)
    lab.plan("small", window(0, 1, second, first), gpus=1)

    small = lab.worker("small", 0, 1, [second, first])
    assert f"reserved for {lab.namespace}/large-worker-0-1" in lab.reason(small)
    assert lab.bound(lab.worker("large", 0, 1, [first], gpus=8)) == first
    assert lab.node_of(small) == ""
    lab.remove("guest")
    assert lab.bound(small) == second


def test_a_pod_takes_its_fallback_when_the_planned_node_is_full(lab: Lab, site: str) -> None:
    first, second = lab.cluster.add_site(site, nodes=2, gpus=1)
    lab.bound(lab.pod("guest", [first], 1))
    lab.plan("cats", window(0, 1, first, second))
    assert lab.bound(lab.worker("cats", 0, 1, [first, second])) == second


def test_a_pod_waits_for_its_own_victim_and_then_takes_its_place(lab: Lab, site: str) -> None:
    first, second = lab.cluster.add_site(site, nodes=2, gpus=1)
    lab.plan("dogs", window(0, 1, first))
    victim = lab.worker("dogs", 0, 1, [first])
    lab.running(victim)  # the successor would take its fallback before the extender has seen where the victim runs
    lab.plan("dogs", window(0, 1, first, state="Closing"), stamp=(1, 2))
    lab.plan("cats", window(0, 1, first, second))
    successor = lab.worker("cats", 0, 1, [first, second])
    assert f"waiting for {lab.namespace}/dogs-worker-0-1 to terminate on {first}" in lab.reason(successor)
    # A free fallback is taken if the extender receives the deletion of the victim before kube-scheduler does.
    assert lab.bound(lab.pod("guest", [second], 1)) == second
    lab.remove(victim)
    assert lab.bound(successor) == first


def test_a_pod_newer_than_the_plan_that_was_seen_is_let_through(lab: Lab, site: str) -> None:
    nodes = lab.cluster.add_site(site, nodes=1, gpus=1)
    lab.plan("cats", stamp=(2, 5))
    assert lab.bound(lab.worker("cats", 0, 9, nodes, plan="2.6")) == nodes[0]


def test_rejected_pod_costs_two_filter_calls_and_no_eviction(lab: Lab, site: str) -> None:
    first, second = lab.cluster.add_site(site, nodes=2, gpus=4)
    lowest = add_priority_class(lab.cluster, "extender-test-lowest", -1000)
    victims = {lab.pod(f"victim-{i}", [(first, second)[i % 2]], 1, lowest) for i in range(6)}
    lab.running(*victims)
    lab.alone()
    lab.quiet(first, second)
    lab.plan("cats", stamp=(1, 7))

    before = lab.extender.calls("filter")
    rejected = lab.worker("cats", 0, 1, [first, second])
    assert "window 0 (attempt 1)" in lab.reason(rejected)
    stays(lambda: lab.extender.calls("filter") - before <= 2, "kube-scheduler asks again", seconds=PATIENCE_SECONDS)
    assert lab.node_of(rejected) == ""
    assert lab.names() == {*victims, rejected}


def test_foreign_pod_evicts_nothing_on_reserved_node(lab: Lab, site: str) -> None:
    (node,) = lab.cluster.add_site(site, nodes=1, gpus=2)
    lowest = add_priority_class(lab.cluster, "extender-test-lowest", -1000)
    equal = add_priority_class(lab.cluster, "extender-test-equal", -9)
    lab.running(lab.pod("victim", [node], 1, lowest))
    lab.plan("cats", window(0, 1, node))
    asked = lab.extender.calls("preempt")
    stranger = lab.pod("stranger", [node], 2, equal)
    lab.until(lambda: lab.extender.calls("preempt") > asked)
    assert "preemption" in lab.reason(stranger)
    assert lab.names() == {"victim", "stranger"}
    assert lab.bound(lab.worker("cats", 0, 1, [node])) == node


def test_what_a_user_reads_of_a_waiting_pod_names_the_reason(lab: Lab, site: str) -> None:
    nodes = lab.cluster.add_site(site, nodes=1, gpus=1)
    lab.plan("cats", window(0, 1, nodes[0], state="Closing"), stamp=(3, 4))
    message = lab.reason(lab.worker("cats", 0, 1, nodes, plan="3.4"))
    assert f"window 0 (attempt 1) of {lab.namespace}/cats is closed in plan 3.4" in message
    assert "Internal" not in json.dumps(message)


@pytest.mark.parametrize(("count", "gpus"), [(2, 1), (1, 2)], ids=["two nodes", "one node"])
def test_a_service_preempts_the_training_pod_that_loses_least(lab: Lab, site: str, count: int, gpus: int) -> None:
    nodes = lab.cluster.add_site(site, nodes=count, gpus=gpus)
    service = add_priority_class(lab.cluster, "extender-test-service", 1000)
    lab.plan("cheap", window(0, 1, nodes[0]), preemption={"restartOverhead": "0s"})
    lab.plan("dear", window(0, 1, nodes[-1]), preemption={"restartOverhead": "1h"})
    cheap = lab.worker("cheap", 0, 1, [nodes[0]])
    lab.running(cheap)
    # Start times have whole seconds: left alone, kube-scheduler evicts the pod that started last.
    lab.until(lambda: datetime.now(UTC) - lab.started(cheap) > timedelta(seconds=1))
    dear = lab.worker("dear", 0, 1, [nodes[-1]])
    lab.running(dear)
    lab.pod("service", nodes, 1, service)
    assert lab.bound("service") == nodes[0]
    assert lab.names() == {"service", dear}


def test_pod_newer_than_the_plan_prefers_its_planned_node(lab: Lab, site: str) -> None:
    """Another job has a reservation on the planned node, and none on the fallback."""
    planned, fallback = lab.cluster.add_site(site, nodes=2, gpus=8)
    lab.plan("dogs", window(0, 1, planned))
    lab.plan("cats", window(0, 1, planned, fallback))
    assert lab.bound(lab.operator_pod("cats", plan="1.2")) == planned


def test_without_an_extender_a_pod_prefers_its_planned_node(lab: Lab, site: str) -> None:
    """The extender may be away for minutes; kube-scheduler ignores that."""
    planned, fallback = lab.cluster.add_site(site, nodes=2, gpus=8)
    name = f"without-{site}"
    absent = {"urlPrefix": "http://127.0.0.1:9", "filterVerb": "filter", "ignorable": True, "nodeCacheCapable": True}
    profile = {"profiles": [{"schedulerName": name}], "extenders": [absent]}
    lab.cluster.start_scheduler(profile, name=name)
    try:
        lab.running(*(lab.pod(f"other-{i}", [planned], 1) for i in range(6)))
        lab.plan("cats", window(0, 1, planned, fallback))
        assert lab.bound(lab.operator_pod("cats", name)) == planned
    finally:
        lab.cluster.stop(name)


def test_pod_resized_as_a_whole_counts_as_in_kube_scheduler(lab: Lab, site: str) -> None:
    """The kubelet cannot take memory from a pod that uses it, so a smaller request may wait for long."""
    (node,) = lab.cluster.add_site(site, nodes=1, gpus=1)
    whole = {"resources": {"requests": {"cpu": "1"}}}
    path = lab.raw_pod("large", {"nodeName": node, "containers": [container(0)], **whole})
    amounts = {"cpu": "1000"}
    status = {"resources": {"requests": amounts}, "allocatedResources": amounts}
    answer = lab.cluster.request("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")
    assert answer[0] == 200, answer
    lab.until(lambda: lab.extender.used(node).cpu == 1_000_000)
    assert "Insufficient cpu" in lab.reason(lab.pod("next", [node], 0))
