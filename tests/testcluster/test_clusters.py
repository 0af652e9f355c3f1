"""Whole clusters: started, used, broken, left behind."""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

import tranche_testcluster
from support.access_reviews import await_permission
from support.waiting import WAIT_SECONDS, eventually, stays
from support.yaml_text import load_yaml
from tranche_testcluster import Cluster, ClusterError, annotations, site
from tranche_testcluster.binaries import binary_cache
from tranche_testcluster.workspace import Workspace

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tranche_testcluster.__file__).parents[1])}
QUICK = {"kube-controller-manager": ["--node-monitor-period=1s"]}
"""Notices a lost node sooner."""
COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kwok"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(node_lease_seconds=4, extra_flags=QUICK) as cluster:
        cluster.add_site("edge-a", nodes=2, gpus=4, cpu="8", memory="16Gi", extra_labels={"tier": "edge"})
        cluster.start_scheduler()
        yield cluster


def pod(name: str, scheduler: str = "default-scheduler", **asked: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": asked},
        "spec": {"containers": [{"name": "c", "image": "trainer"}], "schedulerName": scheduler},
    }


def create(cluster: Cluster, one: dict[str, Any]) -> None:
    status, answer = cluster.request("POST", "/api/v1/namespaces/default/pods", one)
    assert status == 201, answer


def phase(cluster: Cluster, name: str) -> str:
    answer = cluster.request("GET", f"/api/v1/namespaces/default/pods/{name}")[1]
    return str(answer["status"]["phase"])


def processes_of(directory: str) -> list[int]:
    """Every process, watchdogs included, whose command line names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if directory in (entry / "cmdline").read_text(errors="replace") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_site_is_nodes_of_one_zone_ready_for_pods(cluster: Cluster) -> None:
    names = cluster.add_site("cloud", nodes=3, gpus=8)
    assert names == ["cloud-0", "cloud-1", "cloud-2"]
    nodes = json.loads(cluster.kubectl("get", "nodes", "-l", f"{site.ZONE}=edge-a,tier=edge", "-o", "json"))["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["edge-a-0", "edge-a-1"]
    for node in nodes:
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == node["metadata"]["name"]
        assert node["status"]["allocatable"] == {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4", "pods": "110"}
        assert "taints" not in node["spec"]
    cluster.remove_site("cloud")
    assert "cloud" not in cluster.kubectl("get", "nodes")


@pytest.mark.parametrize("removed_by", ["remove_site", "a client"])
def test_a_node_created_again_has_a_lease_of_its_own(cluster: Cluster, removed_by: str) -> None:
    """The garbage collector deletes the lease of the earlier node, and kwok then drops what happens on the new one."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/again-0"

    def owners() -> set[str]:
        status, lease = cluster.request("GET", path)
        return {owner["uid"] for owner in lease["metadata"].get("ownerReferences", ())} if status == 200 else {"gone"}

    for _ in range(8):
        cluster.add_site("again")
        uid = cluster.request("GET", "/api/v1/nodes/again-0")[1]["metadata"]["uid"]
        stays(lambda uid=uid: owners() <= {uid}, "the lease is another node's, or gone", seconds=0.4)  # type: ignore[misc]
        if removed_by == "remove_site":
            cluster.remove_site("again")
        else:
            cluster.request("DELETE", "/api/v1/nodes/again-0")


def test_the_api_server_is_used_by_many_threads_at_once(cluster: Cluster) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: cluster.request("GET", "/version")[1]["gitVersion"], range(200)))
    assert set(answers) == {binary_cache.version("kube-apiserver")}


def test_kubectl_reads_its_input_and_reports_what_fails(cluster: Cluster) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fed"}}
    assert cluster.kubectl("apply", "-f", "-", input=json.dumps(config_map)) == "configmap/fed created\n"
    with pytest.raises(ClusterError, match=r"kubectl get pod missing: .*not found"):
        cluster.kubectl("get", "pod", "missing")
    assert cluster.kubectl("get", "pod", "missing", check=False) == ""


def test_a_service_account_may_do_what_rbac_grants_and_no_more(cluster: Cluster) -> None:
    cluster.kubectl("create", "serviceaccount", "reader")
    cluster.kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader")
    await_permission(cluster, "system:serviceaccount:default:reader", [], "list pods")
    config = load_yaml(cluster.service_account_kubeconfig("default", "reader").read_text())
    context = ssl.create_default_context(cafile=str(cluster.directory / "ca.crt"))
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}

    def status(path: str) -> int:
        connection = HTTPSConnection(cluster.url.removeprefix("https://"), context=context)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse().status
        connection.close()
        return answer

    assert status("/api/v1/namespaces/default/pods") == 200
    assert status("/api/v1/namespaces/default/secrets") == 403
    with pytest.raises(ClusterError, match="no token for the service account default/missing: 404"):
        cluster.service_account_kubeconfig("default", "missing")


def test_a_request_for_a_user_is_made_as_that_user(cluster: Cluster) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    seen = [cluster.request("POST", path, body, user=user)[1]["status"]["userInfo"] for user in ("", "ada")]
    assert [(one["username"], one["groups"]) for one in seen] == [
        ("admin", ["system:masters", "system:authenticated"]),
        ("ada", ["system:authenticated"]),
    ]


def test_schedulers_with_own_configuration_run_side_by_side(cluster: Cluster) -> None:
    config = """
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    clientConnection: {qps: 100}
    profiles: [{schedulerName: second}]
    """
    cluster.start_scheduler(config, name="second-scheduler")
    written = json.loads((cluster.directory / "second-scheduler.yaml").read_text())
    assert written["clientConnection"]["qps"] == 100
    assert written["clientConnection"]["kubeconfig"]
    assert written["leaderElection"] == {"leaderElect": False}
    create(cluster, pod("by-first"))
    create(cluster, pod("by-second", "second"))
    eventually(lambda: {phase(cluster, name) for name in ("by-first", "by-second")} == {"Running"})
    cluster.stop("second-scheduler")


def test_killed_components_go_on_with_their_data(cluster: Cluster) -> None:
    create(cluster, pod("survivor", **{annotations.RUN_SECONDS: "1"}))
    pids = {name: cluster.pid(name) for name in ("etcd", "kube-apiserver", "kube-scheduler", "kwok")}
    for name in ("kube-scheduler", "kube-apiserver", "etcd"):
        cluster.stop(name, signal.SIGKILL)
    with pytest.raises(OSError, match="refused"):
        cluster.request("GET", "/version")
    with pytest.raises(ClusterError, match="kube-scheduler does not run"):
        cluster.pid("kube-scheduler")
    for name in ("etcd", "kube-apiserver", "kube-scheduler"):
        cluster.start(name)
    eventually(lambda: phase(cluster, "survivor") == "Succeeded")
    create(cluster, pod("newcomer"))
    eventually(lambda: phase(cluster, "newcomer") == "Running")
    assert all(cluster.pid(name) != pid for name, pid in pids.items())
    assert cluster.logs("kube-scheduler").count("Starting Kubernetes Scheduler") == 2


@pytest.fixture
def calm() -> Iterator[Cluster]:
    """A cluster of its own: where the API server was killed, kube-controller-manager may be blind for minutes."""
    with Cluster(node_lease_seconds=4, extra_flags=QUICK) as cluster:
        cluster.add_site("edge-a")
        cluster.start_scheduler()
        yield cluster


def test_a_silenced_node_is_lost_and_comes_back(calm: Cluster) -> None:
    cluster = calm

    def ready(name: str) -> str:
        node = cluster.request("GET", f"/api/v1/nodes/{name}")[1]
        return str(next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"))

    cluster.add_site("far")
    cluster.silence("far-0")
    eventually(lambda: ready("far-0") == "Unknown")
    on_it = pod("on-it")
    on_it["spec"]["nodeName"] = "far-0"
    create(cluster, on_it)
    elsewhere = pod("elsewhere")
    elsewhere["spec"]["nodeName"] = "edge-a-0"  # kube-scheduler takes the lost node too until its taint has arrived
    create(cluster, elsewhere)
    eventually(lambda: phase(cluster, "elsewhere") == "Running")
    assert phase(cluster, "on-it") == "Pending"
    cluster.revive("far-0")
    eventually(lambda: ready("far-0") == "True" and phase(cluster, "on-it") == "Running")


def test_cluster_from_saved_state_has_objects_and_runs_pods(tmp_path: Path) -> None:
    state, account = tmp_path / "state", "/api/v1/namespaces/kept/serviceaccounts/default"
    with Cluster() as first:
        first.kubectl("create", "namespace", "kept")
        eventually(lambda: first.request("GET", account)[0] == 200)
        first.save_state(state)
        authority = (first.directory / "ca.crt").read_bytes()
    before = {file: file.read_bytes() for file in state.rglob("*") if file.is_file()}
    with Cluster(initial_state=state) as second:
        assert second.request("GET", account)[0] == 200
        assert (second.directory / "ca.crt").read_bytes() != authority
        second.add_site("edge-a")
        second.start_scheduler()
        create(second, pod("new"))
        eventually(lambda: phase(second, "new") == "Running")
    assert {file: file.read_bytes() for file in state.rglob("*") if file.is_file()} == before
    assert sum(512 * file.stat().st_blocks for file in before) < 20e6  # without etcd's unused 64 MB a file


def test_component_that_cannot_start_reports_end_of_its_log() -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile
    with pytest.raises(ClusterError) as caught, Cluster(extra_flags={"kwok": ["--nonsense"]}):
        pass
    assert "kwok ended with code 1 while starting" in str(caught.value)
    assert "unknown flag: --nonsense" in str(caught.value)
    assert set(threading.enumerate()) <= before


def test_an_unknown_component_is_refused_with_those_that_exist(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"no component kubelet; there are .*kwok"):
        cluster.stop("kubelet")


@contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of the test cluster, in a session of its own, until the end of the block."""
    words = (sys.executable, "-m", "tranche_testcluster", *words)
    with subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_killed_or_interrupted_clusters_leave_no_process() -> None:
    up, directories = ("up", "--sites", "1", "--nodes", "1"), []
    with command(*up) as killed, command(*up) as interrupted:
        for process in (killed, interrupted):
            assert process.stdout is not None
            config = process.stdout.readline().strip().removeprefix("export KUBECONFIG=")
            directories.append(str(Path(config).parent))
            assert process.stdout.readline().startswith("API server https://127.0.0.1:")
        assert len(set(directories)) == 2
        for directory in directories:
            logs = {file.stem for file in Path(directory, "logs").iterdir()}
            assert logs == COMPONENTS | {"kube-scheduler"}
            assert len(processes_of(directory)) >= len(COMPONENTS) + 1

        killed.kill()
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(WAIT_SECONDS) == 0
    eventually(lambda: not any(processes_of(directory) for directory in directories))
    assert not Path(directories[1]).exists()
    Workspace().close()
    assert not Path(directories[0]).exists()


def test_signal_before_the_command_waits_stops_the_cluster() -> None:
    with command("up", "--sites", "1", "--nodes", "1") as process:
        assert process.stdout is not None
        config = process.stdout.readline().strip().removeprefix("export KUBECONFIG=")
        process.send_signal(signal.SIGTERM)  # the second line, or the wait, comes after this
        assert process.wait(WAIT_SECONDS) == 0
    assert not Path(config).exists()
