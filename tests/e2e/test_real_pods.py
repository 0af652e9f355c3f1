"""Pods on a real kubelet: what the statuses of simulated nodes stand for."""

from collections.abc import Iterator

import pytest

from support import product_images
from support.real_lab import GPU, Lab, real_lab
from support.real_pods import (
    await_phase,
    await_waiting,
    container,
    create_pod,
    end_of,
    evict,
    read_pod,
    remove_pod,
)
from support.waiting import eventually
from tranche_testcluster.node import cluster_dns

GRACE_SECONDS = 60
"""Grace period of a program that saves: it ends when the program has saved, however slow the machine is."""
SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(0.5)
    open("/dev/termination-log", "w").write('{"0": 7}')
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
while True:
    signal.pause()
"""
"""Program that saves for half a second after SIGTERM."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two real nodes in two sites, without tranche."""
    images = [cluster_dns.archive(), product_images.archive("worker")]
    first, second = {"site": "edge-a", "gpus": 2, "images": images}, {"site": "edge-b", "images": images}
    with real_lab({"real-0": first, "real-1": second}) as found:
        yield found


def gpus(number: int) -> dict[str, dict[str, str]]:
    return {"limits": {GPU: str(number)}}


def saves(lab: Lab, name: str) -> None:
    create_pod(lab.cluster, name, container(SAVES), "real-0")
    await_phase(lab.cluster, name, "Running")
    eventually(lambda: "training" in lab.cluster.kubectl("logs", name), "the program handles SIGTERM")


def test_scheduled_pod_runs_on_a_real_node(lab: Lab) -> None:
    selector = {"topology.kubernetes.io/zone": "edge-a"}
    create_pod(lab.cluster, "starts", container(resources=gpus(1)), nodeSelector=selector)
    pod = await_phase(lab.cluster, "starts", "Running")
    assert pod["spec"]["nodeName"] == "real-0"
    assert pod["status"]["hostIP"] == lab.nodes["real-0"].address
    remove_pod(lab.cluster, "starts")


def test_nodes_have_addresses_and_pods_of_their_own(lab: Lab) -> None:
    assert lab.nodes["real-0"].address != lab.nodes["real-1"].address
    for node in lab.nodes.values():
        create_pod(lab.cluster, f"on-{node.name}", container(), node.name)
    for node in lab.nodes.values():
        pod = await_phase(lab.cluster, f"on-{node.name}", "Running")
        assert pod["status"]["podIP"].rpartition(".")[0] == node.address.rpartition(".")[0]
        remove_pod(lab.cluster, f"on-{node.name}")


def test_evicted_program_saves_and_exits_143(lab: Lab) -> None:
    saves(lab, "evicted")
    pod = evict(lab.cluster, "evicted", GRACE_SECONDS)
    assert (end_of(pod)["exitCode"], end_of(pod)["message"]) == (143, '{"0": 7}')
    reasons = [one.get("reason") for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert reasons == ["EvictionByEvictionAPI"]
    remove_pod(lab.cluster, "evicted")


def test_grace_period_too_short_loses_the_checkpoint(lab: Lab) -> None:
    program = SAVES.replace("0.5", "30")
    create_pod(lab.cluster, "hurried", container(program), "real-0")
    await_phase(lab.cluster, "hurried", "Running")
    eventually(lambda: "training" in lab.cluster.kubectl("logs", "hurried"), "the program handles SIGTERM")
    end = end_of(evict(lab.cluster, "hurried", grace_seconds=1))
    assert (end["exitCode"], end.get("message")) == (137, None)
    remove_pod(lab.cluster, "hurried")


def test_pod_larger_than_the_node_ends_as_outofcpu(lab: Lab) -> None:
    create_pod(lab.cluster, "large", container(resources={"requests": {"cpu": "1000"}}), "real-0")
    assert await_phase(lab.cluster, "large", "Failed")["status"]["reason"] == "OutOfcpu"
    remove_pod(lab.cluster, "large")


def test_pod_with_too_many_gpus_is_refused_at_admission(lab: Lab) -> None:
    create_pod(lab.cluster, "greedy", container(resources=gpus(3)), "real-0")
    pod = await_phase(lab.cluster, "greedy", "Failed")
    assert pod["status"]["reason"] == "UnexpectedAdmissionError"
    assert "Requested: 3, Available: 2" in pod["status"]["message"]
    remove_pod(lab.cluster, "greedy")


def test_container_receives_the_devices_it_requested(lab: Lab) -> None:
    program = "import os; open('/dev/termination-log', 'w').write(os.environ['TRANCHE_DEVICES'])"
    create_pod(lab.cluster, "devices", container(program, resources=gpus(2)), "real-0")
    message = end_of(await_phase(lab.cluster, "devices", "Succeeded"))["message"]
    assert sorted(message.split(",")) == ["gpu-0", "gpu-1"]
    remove_pod(lab.cluster, "devices")


def test_failed_device_is_not_allocatable_until_it_recovers(lab: Lab) -> None:
    lab.nodes["real-0"].set_health("gpu-1", healthy=False)
    eventually(lambda: lab.nodes["real-0"].allocatable(GPU) == 1, "one GPU is left")
    lab.nodes["real-0"].set_health("gpu-1", healthy=True)
    eventually(lambda: lab.nodes["real-0"].allocatable(GPU) == 2, "both GPUs are back")


@pytest.mark.parametrize(
    ("name", "policy", "reasons"),
    [
        ("never-pulled", "Never", ("ErrImageNeverPull",)),
        ("not-found", "IfNotPresent", ("ErrImagePull", "ImagePullBackOff")),
    ],
)
def test_missing_image_is_a_reason_to_wait(lab: Lab, name: str, policy: str, reasons: tuple[str, ...]) -> None:
    create_pod(lab.cluster, name, container(image="registry.invalid/absent:1", imagePullPolicy=policy), "real-0")
    await_waiting(lab.cluster, name, *reasons)
    assert read_pod(lab.cluster, name)["status"]["phase"] == "Pending"
    remove_pod(lab.cluster, name)


def test_container_above_its_memory_limit_is_oom_killed(lab: Lab) -> None:
    program = "b = bytearray(256 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"
    create_pod(lab.cluster, "hungry", container(program, resources={"limits": {"memory": "64Mi"}}), "real-0")
    end = end_of(await_phase(lab.cluster, "hungry", "Failed"))
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")
    remove_pod(lab.cluster, "hungry")


def test_pod_survives_a_kubelet_that_is_killed(lab: Lab) -> None:
    saves(lab, "survivor")
    lab.nodes["real-0"].stop("kubelet", 9)
    lab.nodes["real-0"].start("kubelet")
    pod = evict(lab.cluster, "survivor", GRACE_SECONDS)
    assert end_of(pod)["exitCode"] == 143
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    eventually(lambda: lab.nodes["real-0"].allocatable(GPU) == 2, "the device plugin has registered again")
    remove_pod(lab.cluster, "survivor")


SERVES = """
import socket
server = socket.create_server(("", 8000))
print("serves", flush=True)
while True:
    with server.accept()[0] as connection:
        connection.sendall(bytes(4_000_000))
"""
FETCHES = """
import socket, time
begin, count = time.monotonic(), 0
with socket.create_connection(("server.files.default.svc.cluster.local", 8000)) as connection:
    while part := connection.recv(65536):
        count += len(part)
open("/dev/termination-log", "w").write(f"{count} {time.monotonic() - begin}")
"""


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[None]:
    """A pod of a headless Service on real-0, which sends 4 MB to each client."""
    labels = {"app": "server"}
    service = {"metadata": {"name": "files"}, "spec": {"clusterIP": "None", "selector": labels}}
    assert lab.cluster.request("POST", "/api/v1/namespaces/default/services", service)[0] == 201
    own = {"hostname": "server", "subdomain": "files"}
    create_pod(lab.cluster, "server", container(SERVES), "real-0", labels, dnsPolicy="ClusterFirst", **own)
    eventually(lambda: "serves" in lab.cluster.kubectl("logs", "server", check=False), "the server listens")
    yield
    remove_pod(lab.cluster, "server")


def fetched(lab: Lab, name: str) -> tuple[int, float]:
    """Fetch the file from a pod on real-1; return its bytes and the seconds."""
    create_pod(lab.cluster, name, container(FETCHES), "real-1", dnsPolicy="ClusterFirst", restartPolicy="OnFailure")
    count, seconds = end_of(await_phase(lab.cluster, name, "Succeeded"))["message"].split()
    remove_pod(lab.cluster, name)
    return int(count), float(seconds)


@pytest.mark.usefixtures("server")
def test_pod_reaches_a_pod_of_another_node_by_its_name(lab: Lab) -> None:
    assert fetched(lab, "client")[0] == 4_000_000


@pytest.mark.usefixtures("server")
def test_link_to_a_node_has_the_bandwidth_it_is_limited_to(lab: Lab) -> None:
    lab.nodes["real-1"].limit_bandwidth(megabits=16)
    count, seconds = fetched(lab, "slow-client")
    assert count == 4_000_000
    assert seconds > 1.5, "4 MB over 16 Mbit/s take 2 s"
