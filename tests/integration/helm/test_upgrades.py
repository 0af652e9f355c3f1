"""From the previous release to this one with jobs running, back, and away again: the jobs finish, nothing is left."""

import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.full_stack import API
from support.installed_release import Installed, Release
from support.waiting import eventually
from tranche_testcluster import Cluster

pytestmark = pytest.mark.walkthrough

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PREVIOUS = Path(__file__).resolve().parents[2] / "data" / "release-3b0c6da.tar.xz"
SYSTEM = "tranche-system"
LONG = 1800.0
"""Seconds of a chunk whose worker the test ends: it runs during all steps of helm, however slow the machine is."""
TEMPORARY = {"Event"}
"""Kinds whose objects go by themselves."""
SERVER = {"containers": [{"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
Things = set[tuple[str, str, str]]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.add_site("edge-a", nodes=3, gpus=2)
        cluster.start_scheduler()
        cluster.kubectl("create", "namespace", SYSTEM)
        cluster.kubectl("label", "namespace", SYSTEM, "pod-security.kubernetes.io/enforce=restricted")
        made = {("ServiceAccount", SYSTEM, "default"), ("ConfigMap", SYSTEM, "kube-root-ca.crt")}
        eventually(lambda: made <= everything(cluster), f"kube-controller-manager has created {made}")
        yield cluster


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chart and programs of before."""
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(PREVIOUS) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 have no filters
        packed.extractall(folder)
    return folder


def everything(cluster: Cluster) -> Things:
    """Every object of every kind, as kind, namespace and name."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    text = cluster.kubectl(
        "get",
        ",".join(kinds),
        "-A",
        "-o",
        r'jsonpath={range .items[*]}{.kind}{"\t"}{.metadata.namespace}{"\t"}{.metadata.name}{"\n"}{end}',
    )
    found = {tuple(line.split("\t")) for line in text.splitlines()}
    return {(kind, namespace, name) for kind, namespace, name in found if kind not in TEMPORARY}


def attempts(system: Installed, job: str) -> dict[str, str]:
    """The names and UIDs of the pods that run."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in system.pods(job)
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def test_upgrade_keeps_jobs_running_and_uninstall_leaves_crds(helm: Run, own: Cluster, previous: Path) -> None:
    target = ["tranche", "-n", SYSTEM, f"--kubeconfig={own.kubeconfig}", "--wait", "--timeout=180s"]
    before = everything(own)
    helm("install", *target[:1], str(previous / "helm" / "tranche"), *target[1:])
    with Release(own, sources=previous) as old:
        system = Installed(own, old)
        system.submit("short", seconds=LONG)
        system.submit("long", chunks=3, seconds=LONG, parameterServers={"template": {"spec": SERVER}})
        system.until("both run", lambda: attempts(system, "short") and len(attempts(system, "long")) == 4)
        running = attempts(system, "long")
        uid = system.job("long")["metadata"]["uid"]

        helm("upgrade", target[0], "tranche", *target[1:])
        assert system.pods("long")
        now = {(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in system.pods("long")}
        assert now <= set(running.items()), "the upgrade has replaced pods"
    (worker,) = system.pods("short")
    system.end_worker(worker)  # while no program runs
    # The new programs, with the settings and the rights of the new chart.
    with Release(own) as new:
        assert any("metrics" in name for name in new.ports)
        system = Installed(own, new)
        system.submit("later", seconds=1.0)
        for job in ("later", "short", "long"):
            status = system.complete(job)
            assert status["progress"].get("failures", 0) == status["progress"].get("preemptions", 0) == 0, job
        assert system.job("long")["metadata"]["uid"] == uid
        assert {pod["metadata"]["name"] for pod in system.pods("long")} <= set(running)
        for name in ("extender", "planner", "api", "operator", "kube-scheduler"):
            assert "orbidden" not in new.log(name)
        system.delete("short", "long", "later")
        system.until("jobs are gone", lambda: not system.cluster.request("GET", f"{API}/trainingjobs")[1]["items"])
        left = everything(own) - before
        assert {("Lease", SYSTEM, "tranche-scheduler"), ("Lease", SYSTEM, "tranche-kube-scheduler")} <= left
    helm("uninstall", *target)
    definitions = {("CustomResourceDefinition", "", f"{name}.tranche.dev") for name in ("sites", "trainingjobs")}
    remains = before | definitions | {("APIService", "", "v1alpha1.tranche.dev")}
    eventually(  # the garbage collector deletes the Services of the jobs some time after the jobs
        lambda: everything(own) == remains, lambda: f"only these objects differ: {everything(own) ^ remains}"
    )


def schemas(cluster: Cluster) -> dict[str, Any]:
    """Return the versions in the resource definitions, by name."""
    items = cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")[1]["items"]
    return {item["metadata"]["name"]: item["spec"]["versions"] for item in items}


def test_rollback_keeps_jobs_running_and_restores_old_crds(helm: Run, own: Cluster, previous: Path) -> None:
    target = ["tranche", "-n", SYSTEM, f"--kubeconfig={own.kubeconfig}", "--wait", "--timeout=180s"]
    helm("install", target[0], str(previous / "helm" / "tranche"), *target[1:])
    before = schemas(own)
    helm("upgrade", target[0], "tranche", *target[1:])
    assert schemas(own) != before
    with Release(own) as new:
        system = Installed(own, new)
        system.submit("partly", chunks=8, seconds=LONG)
        system.until_running("partly", 6)
        system.end_workers("partly")
        system.until("a part is done", lambda: system.status("partly").get("progress", {}).get("chunks") == "6/8")
        system.until("the rest runs", lambda: len(attempts(system, "partly")) == 2)
        system.submit("next", chunks=2, seconds=LONG, parameterServers={"template": {"spec": SERVER}})
        system.until("both run", lambda: attempts(system, "partly") and len(attempts(system, "next")) == 3)
        running = attempts(system, "partly")
        helm("rollback", target[0], "1", *target[1:])
        assert schemas(own) == before
        assert attempts(system, "partly") == running, "the rollback has replaced pods"
    with Release(own, sources=previous) as old:
        system = Installed(own, old)
        system.submit("later", seconds=1.0)
        for job in ("later", "partly", "next"):
            status = system.complete(job)
            assert status["progress"].get("failures", 0) == status["progress"].get("preemptions", 0) == 0, job
        assert system.status("partly")["progress"]["chunks"] == "8/8"
        system.delete("partly", "next", "later")
    helm("uninstall", *target)


def test_job_trains_through_uninstall_and_counts_after_reinstall(helm: Run, own: Cluster) -> None:
    target = ["tranche", "-n", SYSTEM, f"--kubeconfig={own.kubeconfig}", "--wait", "--timeout=180s"]
    install = ["install", target[0], "tranche", *target[1:]]
    helm(*install)
    with Release(own) as first:
        system = Installed(own, first)
        system.submit("alone", chunks=2, seconds=LONG)
        system.until("it runs", lambda: len(attempts(system, "alone")) == 2)
        running = attempts(system, "alone")
    helm("uninstall", *target)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in system.pods("alone")}
    assert pods == running
    system.end_workers("alone")
    assert {tuple(pod["metadata"]["finalizers"]) for pod in system.pods("alone")} == {("tranche.dev/ledger",)}
    helm(*install)
    with Release(own) as second:
        system = Installed(own, second)
        status = system.until_phase("alone", "Succeeded")
        assert (status["progress"].get("failures", 0), status["progress"].get("preemptions", 0)) == (0, 0)
        assert {pod["metadata"]["name"] for pod in system.pods("alone")} <= set(running)
        system.delete("alone")
    helm("uninstall", *target)
