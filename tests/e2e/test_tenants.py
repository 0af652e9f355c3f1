"""A tenant who may edit in one namespace, by the roles of the installed chart."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.access_reviews import await_permission
from support.real_lab import GPU, Installed, worker_container
from support.training_programs import trains
from support.waiting import WAIT_SECONDS
from tranche_testcluster.binaries import binary_cache

TEAM = "team-a"
JOB = {
    "apiVersion": "tranche.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "cats"},
    "spec": {
        "data": {"chunks": 1, "batchesPerChunk": 50},
        "suspend": True,
        "estimatedDuration": "2s",
        "workers": {
            "maxReplicas": 1,
            "template": {
                "spec": {
                    "containers": [
                        worker_container(["python", "-c", trains(2.0, 50)]) | {"resources": {"limits": {GPU: "1"}}}
                    ]
                }
            },
        },
    },
}


class Tenant:
    """kubectl and its plugin with the rights of a ServiceAccount."""

    def __init__(self, kubeconfig: Path) -> None:
        kubectl, plugin = binary_cache.ensure("kubectl")["kubectl"], Path(sys.executable).parent
        search = os.pathsep.join([str(kubectl.parent), str(plugin), os.environ["PATH"]])
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": search}

    def answer(self, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        """Run kubectl."""
        return subprocess.run(
            ["kubectl", *words],
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *words: str, text: str = "") -> str:
        """Run kubectl in the tenant's namespace, and return its output."""
        done = self.answer(*words, f"--namespace={TEAM}", text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def tenant(installed: Installed) -> Iterator[Tenant]:
    """A ServiceAccount with the ClusterRole edit in a namespace of its own."""
    cluster = installed.cluster
    cluster.kubectl("create", "namespace", TEAM)
    cluster.kubectl("create", "serviceaccount", "ana", f"--namespace={TEAM}")
    binding = ("rolebinding", "ana", "--clusterrole=edit", f"--serviceaccount={TEAM}:ana", f"--namespace={TEAM}")
    cluster.kubectl("create", *binding)
    request = f"create trainingjobs.tranche.dev -n {TEAM}"
    await_permission(cluster, f"system:serviceaccount:{TEAM}:ana", [], request)
    yield Tenant(cluster.service_account_kubeconfig(TEAM, "ana"))
    cluster.kubectl("delete", "namespace", TEAM)


def test_tenant_follows_a_job_of_its_own_namespace(installed: Installed, tenant: Tenant) -> None:
    tenant.run("apply", "--filename=-", text=yaml.safe_dump(JOB))
    assert "cats" in tenant.run("tranche", "queue")
    installed.until("a reason", lambda: "suspended" in tenant.run("tranche", "why", "cats"))
    tenant.run("patch", "trainingjob", "cats", "--type=merge", '--patch={"spec": {"suspend": false}}')
    tenant.run("wait", "trainingjob/cats", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={WAIT_SECONDS:g}s")
    assert "Succeeded" in tenant.run("tranche", "history", "cats")
    assert tenant.run("get", "trainingjob", "cats", "--output=jsonpath={.status.progress.chunks}") == "1/1"
    tenant.run("delete", "trainingjob", "cats")


@pytest.mark.parametrize(
    "words",
    [
        ("tranche", "queue", "--namespace=default"),
        ("delete", "trainingjobs", "--all", "--namespace=default"),
        ("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", f"--serviceaccount={TEAM}:ana"),
    ],
    ids=["queue", "delete", "rights"],
)
def test_tenant_is_refused_outside_its_namespace(tenant: Tenant, words: tuple[str, ...]) -> None:
    refused = tenant.answer(*words)
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr


def test_tenant_may_not_write_a_status(tenant: Tenant) -> None:
    asked = ("auth", "can-i", "patch", "trainingjobs", f"--namespace={TEAM}")
    assert tenant.answer(*asked).stdout.strip() == "yes"
    assert tenant.answer(*asked, "--subresource=status").stdout.strip() == "no"
