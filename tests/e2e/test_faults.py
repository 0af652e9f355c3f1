"""Faults of real containers and nodes, under tranche as its chart installs it."""

import json
import time
from collections.abc import Iterator

import pytest

from chaos.clocks import Clock
from support.full_stack import API
from support.limit_ranges import impose_defaults
from support.object_history import History
from support.real_lab import GPU, SITES, Installed, resources, worker_container
from support.training_programs import EXHAUSTS_MEMORY, trains
from support.waiting import WAIT_SECONDS

JOBS = f"{API}/namespaces/default/trainingjobs"
SECONDS = 180
LONG = 30.0
"""Seconds of a training during which the test does something: longer than a machine under load pauses."""
FOREVER = ["python", "-c", "import time; time.sleep(3600)"]


def on_node(name: str) -> dict[str, dict[str, str]]:
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def await_running(installed: Installed, name: str, workers: int = 1) -> None:
    installed.until(f"{name} runs", lambda: installed.status(name).get("activeWorkers") == workers)


def test_oom_killed_worker_fails_its_job_and_says_why(installed: Installed) -> None:
    small = {"resources": resources(gpus=1, memory="128Mi")}
    installed.submit_program("hungry", EXHAUSTS_MEMORY, container=small, runPolicy={"backoffLimit": 0})
    progress = installed.until_phase("hungry", "Failed", SECONDS)["progress"]
    assert progress["failures"] == 1
    assert [line[3:5] for line in installed.ended("hungry")] == [["Failed", "137"]]
    assert "OOMKilled" in installed.plugin("history", "hungry")
    installed.delete("hungry")


def test_absent_image_is_reported_at_once_and_ends_the_attempt(installed: Installed) -> None:
    absent = {"image": "registry.invalid/absent:1"}
    with History(str(installed.cluster.kubeconfig), JOBS) as history:
        installed.submit_program("absent", trains(1.0, 50), container=absent, runPolicy={"backoffLimit": 0})
        installed.until_phase("absent", "Failed", SECONDS)
    versions = [job.get("status", {}) for job in history.events[JOBS] if job["metadata"]["name"] == "absent"]
    conditions = [one for status in versions for one in status.get("conditions", ())]
    told = [one["message"] for one in conditions if (one["type"], one["status"]) == ("PodsNotStarting", "True")]
    assert told
    assert all("ErrImageNeverPull" in message for message in told)
    installed.delete("absent")


def test_sidecar_that_runs_on_is_stopped_with_the_training(installed: Installed) -> None:
    sidecar = {**worker_container(FOREVER, "sidecar"), "resources": resources()}
    main = {**worker_container(["python", "-c", trains(1.0, 50)]), "resources": resources(gpus=1)}
    annotations = {"kubectl.kubernetes.io/default-container": "main"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [sidecar, main], "terminationGracePeriodSeconds": 1},
    }
    body = {
        "data": {"chunks": 1, "batchesPerChunk": 50},
        "workers": {"maxReplicas": 1, "template": template},
        "model": {"stepTime": "20ms"},
    }
    installed.create("meshed", body)
    installed.until_phase("meshed", "Succeeded", SECONDS)
    installed.until("the pod and its sidecar are gone", lambda: not installed.pods("meshed"))
    assert installed.status("meshed")["progress"]["failures"] == 0
    assert [line[3:5] for line in installed.ended("meshed")] == [["Succeeded", "0"]]
    installed.delete("meshed")


def test_init_container_runs_before_the_training(installed: Installed) -> None:
    first = worker_container(["python", "-c", "open('/shared/ready', 'w').write('yes')"], "prepares")
    first["volumeMounts"] = mounts = [{"name": "shared", "mountPath": "/shared"}]
    program = "assert open('/shared/ready').read() == 'yes'\n" + trains(1.0, 50)
    pod = {"initContainers": [first], "volumes": [{"name": "shared", "emptyDir": {}}]}
    installed.submit_program("prepared", program, container={"volumeMounts": mounts}, pod=pod)
    progress = installed.until_phase("prepared", "Succeeded", SECONDS)["progress"]
    assert progress["failures"] == 0
    installed.delete("prepared")


@pytest.fixture
def limit_range(installed: Installed) -> Iterator[None]:
    """A LimitRange that gives containers a CPU limit and request."""
    path = impose_defaults(installed.cluster, "defaults", {"cpu": "300m"})
    yield
    installed.cluster.request("DELETE", path)


@pytest.mark.usefixtures("limit_range")
def test_requests_that_a_limit_range_adds_are_planned(installed: Installed) -> None:
    bare = {"resources": {"limits": {GPU: "1", "memory": "128Mi"}, "requests": {GPU: "1", "memory": "64Mi"}}}
    installed.submit_program("limited", trains(1.0, 50), container=bare)
    status = installed.until_phase("limited", "Succeeded", SECONDS)
    assert status["admitted"]["pods"][0]["requests"]["cpu"] == "300m"
    installed.delete("limited")


def test_drained_node_moves_its_worker_without_a_failure(installed: Installed) -> None:
    installed.submit_program("moved", trains(40.0, 50), seconds=40.0)
    await_running(installed, "moved")
    [pod] = installed.pods("moved")
    node = pod["spec"]["nodeName"]
    installed.until("ten batches", lambda: len(installed.logs(pod["metadata"]["name"]).split()) >= 20)
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={WAIT_SECONDS:g}s")
    try:
        installed.cluster.kubectl("drain", node, *options)
        progress = installed.until_phase("moved", "Succeeded", SECONDS)["progress"]
    finally:
        installed.cluster.kubectl("uncordon", node)
    assert (progress["failures"], progress["done"]) == (0, "0")
    assert {line[2] for line in installed.ended("moved")} > {node}
    installed.delete("moved")


def test_killed_kubelet_does_not_disturb_its_containers(installed: Installed) -> None:
    node = f"{SITES[0]}-0"
    installed.submit_program("steady", trains(LONG, 50), seconds=LONG, pod=on_node(node))
    await_running(installed, "steady")
    [pod] = installed.pods("steady")
    installed.until("a batch", lambda: installed.logs(pod["metadata"]["name"]))
    installed.lab.nodes[node].stop("kubelet", 9)
    installed.lab.nodes[node].start("kubelet")
    progress = installed.until_phase("steady", "Succeeded", SECONDS)["progress"]
    ended = installed.ended("steady")
    assert (progress["failures"], len(ended)) == (0, 1), ended
    installed.until("the GPUs are back", lambda: installed.lab.nodes[node].allocatable(GPU) == 2)
    installed.delete("steady")


def test_kubelet_killed_during_a_start_is_no_failure(installed: Installed) -> None:
    node = f"{SITES[0]}-0"
    for number in range(5):
        name = f"starting-{number}"
        installed.submit_program(name, trains(1.0, 50), pod=on_node(node))
        installed.until("a container starts", lambda name=name: has_begun(installed, name), SECONDS)  # type: ignore[misc]
        installed.lab.nodes[node].stop("kubelet", 9)
        installed.lab.nodes[node].start("kubelet")
        progress = installed.until_phase(name, "Succeeded", SECONDS)["progress"]
        assert progress["failures"] == 0, installed.ended(name)
        installed.delete(name)


def has_begun(installed: Installed, name: str) -> bool:
    """Return whether the kubelet has created the sandbox of a pod, and creates its container next, or even further."""
    return installed.status(name).get("phase") == "Succeeded" or any(
        one["type"] == "PodReadyToStartContainers" and one["status"] == "True"
        for pod in installed.pods(name)
        for one in pod["status"].get("conditions", ())
    )


@pytest.mark.parametrize("hours", [24.0, -24.0])
def test_stepped_clock_of_a_trainer_changes_no_progress(installed: Installed, hours: float) -> None:
    folder = installed.folder / f"clock{hours:+g}"
    folder.mkdir(mode=0o755)
    clock = Clock(folder)
    mount = {"name": "clock", "mountPath": str(folder), "readOnly": True}
    environment = [{"name": name, "value": value} for name, value in clock.environment.items()]
    pod = {"volumes": [{"name": "clock", "hostPath": {"path": str(folder), "type": "Directory"}}]}
    main = {"env": environment, "volumeMounts": [mount]}
    installed.submit_program("stepped", trains(LONG, 60), batches=60, seconds=LONG, container=main, pod=pod)
    await_running(installed, "stepped")
    [worker] = installed.pods("stepped")
    name = worker["metadata"]["name"]
    installed.until("five batches", lambda: len(installed.logs(name).split()) >= 10)
    clock.step(3600 * hours)
    told = installed.cluster.kubectl("exec", name, "--", "python", "-c", "import time; print(time.time())")
    assert float(told) - time.time() == pytest.approx(3600 * hours, abs=60)
    progress = installed.until_phase("stepped", "Succeeded", SECONDS)["progress"]
    assert (progress["failures"], progress["done"], len(installed.ended("stepped"))) == (0, "0", 1)
    installed.delete("stepped")


def test_reports_are_accepted_only_with_the_token_of_the_pod(installed: Installed) -> None:
    installed.submit_program("reports", trains(600.0, 1000), batches=1000, seconds=600.0)
    await_running(installed, "reports")
    [pod] = installed.pods("reports")
    installed.until("progress", lambda: json.dumps(installed.status("reports")).count('"batches"') > 0)
    program = (
        "import os, ssl, urllib.request, urllib.error\n"
        "url = os.environ['TRANCHE_API'] + '/v1/jobs/default/reports/progress'\n"
        "context = ssl.create_default_context(cafile=os.environ.get('TRANCHE_CA'))\n"
        "request = urllib.request.Request(url, b'{}', {'Authorization': 'Bearer wrong'})\n"
        "try: print(urllib.request.urlopen(request, context=context).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)"
    )
    said = installed.cluster.kubectl("exec", pod["metadata"]["name"], "--", "python", "-c", program)
    assert said.strip() == "401"
    installed.delete("reports")
