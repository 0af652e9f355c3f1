"""etcd is restored from a backup while tranche runs: resource versions, plans and the Lease go back."""

from pathlib import Path

from support.full_stack import System, full_stack
from support.installed_cluster import installed_cluster
from support.operator_lab import SITE, Lab, Process, operator_command, window
from support.waiting import eventually
from tranche_testcluster import Cluster

LATER_WRITES = 2000
"""Writes after the backup: as long as the resource versions are lower, the API server sends nothing to old watches."""


def write_often(cluster: Cluster) -> None:
    path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
    for number in range(LATER_WRITES):
        body = {"data": {"number": str(number)}}
        assert cluster.request("PATCH", path, body, "application/merge-patch+json")[0] == 200


def test_jobs_go_on_after_etcd_returns_to_a_backup(tmp_path: Path) -> None:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}) as system:
        system.submit("kept", seconds=30.0)
        system.submit("deleted", seconds=30.0)
        system.until_trained("kept", 1)
        system.until_trained("deleted", 1)
        system.cluster.back_up(tmp_path / "backup")
        system.delete("deleted")
        system.submit("forgotten", seconds=30.0)
        write_often(system.cluster)
        system.cluster.restore(tmp_path / "backup")
        for name in ("kept", "deleted"):
            system.until_phase(name, "Succeeded", 180.0)
        system.submit("later")
        system.until_phase("later", "Succeeded")
        system.until("no GPU is in use", lambda: gpus_in_use(system) == 0)


def gpus_in_use(system: System) -> int:
    sites = system.read("overview")["sites"]
    return sum(int(site["usedGpus"]) for site in sites)


def test_operator_without_lease_follows_a_restored_etcd(tmp_path: Path) -> None:
    with installed_cluster() as cluster:
        cluster.add_site(SITE, nodes=2, gpus=8)
        lab, process = Lab(cluster, "default"), Process(operator_command(cluster), tmp_path / "operator.log")
        lab.create("before")
        lab.plan(window(0, 1), name="before")
        lab.has_pods("before-worker-0-1", job="before")
        cluster.back_up(tmp_path / "backup")
        write_often(cluster)
        lab.bind("before-worker-0-1")
        eventually(lambda: lab.status("before").get("phase") == "Running")
        cluster.restore(tmp_path / "backup")
        lab.create("after")
        lab.plan(window(0, 1), name="after")
        lab.has_pods("after-worker-0-1", job="after")
        lab.bind("before-worker-0-1")
        eventually(lambda: lab.status("before").get("phase") == "Running")
        assert process.process.poll() is None, process.log_text()
        assert "are restarting: RuntimeError: the resource versions have gone back" in process.log_text()
        process.kill()
