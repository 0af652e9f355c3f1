"""The rendered chart applied by kubectl, again and again, as GitOps tools apply it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.installed_release import Release
from support.waiting import eventually
from tranche_testcluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
APPLY = ("apply", "--server-side", "--field-manager=gitops", "-f", "-")
SECRET = "/api/v1/namespaces/tranche-system/secrets/tranche-reports-tls"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/tranche-system/leases"


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster whose namespace tranche-system admits restricted pods only."""
    with Cluster() as cluster:
        cluster.add_site("node", nodes=2, gpus=1)
        cluster.start_scheduler()
        cluster.kubectl("create", "namespace", "tranche-system")
        cluster.kubectl("label", "namespace", "tranche-system", "pod-security.kubernetes.io/enforce=restricted")
        yield cluster


@pytest.fixture(scope="module")
def rendered(helm: Run) -> str:
    """The chart for the release of the test cluster; a renderer does not ask the cluster."""
    options = ("--no-hooks", "--kube-version=1.37.1", "--namespace=tranche-system")
    return helm("template", "tranche", "tranche", *options).stdout


def test_rendered_chart_has_no_objects_of_hooks(rendered: str) -> None:
    assert "helm.sh/hook" not in rendered
    assert "kind: Lease" not in rendered


def test_client_side_apply_is_accepted_too(own: Cluster, rendered: str) -> None:
    """Its annotation takes 256 KiB, and the definition of TrainingJob needs most of that."""
    assert "trainingjobs.tranche.dev created" in own.kubectl("apply", "--dry-run=server", "-f", "-", input=rendered)


def test_applied_chart_runs_and_is_applied_again_without_change(own: Cluster, rendered: str) -> None:
    own.kubectl(*APPLY, input=rendered)
    with Release(own):
        own.kubectl("apply", "-f", str(ROOT / "docs/samples/first.yaml"))
        done = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s")
        own.kubectl("wait", "trainingjob/first", *done)
        before = own.request("GET", SECRET)[1]
        assert set(before["data"]) >= {"tls.crt", "tls.key", "ca.crt"}, "the scheduler fills the empty Secret"
        own.kubectl("-n", "tranche-system", "rollout", "status", "deployment", "--timeout=180s")  # a diff has a status
        own.kubectl("diff", "--server-side", "--field-manager=gitops", "-f", "-", input=rendered)  # 0: no difference
        own.kubectl(*APPLY, input=rendered)
        assert own.request("GET", SECRET)[1]["data"] == before["data"]
        own.kubectl("delete", "trainingjob", "first")
    leases = {one["metadata"]["name"] for one in own.request("GET", LEASES)[1]["items"]}
    assert {"tranche-scheduler", "tranche-operator"} <= leases


def test_without_the_post_delete_hook_only_leases_remain(own: Cluster, rendered: str) -> None:
    own.kubectl("delete", "--ignore-not-found", "-f", "-", input=rendered)

    def left() -> set[str]:
        names = own.kubectl("get", "all,configmaps,secrets,leases", "-n", "tranche-system", "-o", "name").split()
        return {name.partition("/")[0] for name in names if "kube-root-ca" not in name}

    # The garbage collector deletes the ReplicaSets and pods some time after the Deployments.
    eventually(lambda: left() == {"lease.coordination.k8s.io"}, lambda: f"left: {left()}")
