"""The chart on a real control plane: installed, upgraded, removed."""

import copy
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from support.waiting import eventually
from tranche_testcluster import Cluster

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Render = Callable[..., list[dict[str, Any]]]
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster of this module's own, since a release owns objects that other tests apply by hand."""
    with Cluster() as cluster:
        cluster.add_site("node")
        cluster.start_scheduler()
        yield cluster


def test_helm_install_upgrade_uninstall_keeps_jobs(helm: Run, own: Cluster) -> None:
    target = ["tranche", "-n", "tranche-system", f"--kubeconfig={own.kubeconfig}"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tranche-system", "labels": RESTRICTED}}
    assert own.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    installed = helm("install", *target, "tranche", "--wait", "--timeout=180s")
    assert "is installed in the namespace tranche-system" in installed.stdout
    pods = own.request("GET", "/api/v1/namespaces/tranche-system/pods")[1]["items"]
    components = sorted(p["metadata"]["labels"]["app.kubernetes.io/component"] for p in pods)
    assert components == ["operator", "operator", "scheduler", "scheduler"]
    assert "registry.k8s.io/kube-scheduler:v1." in str(pods)

    own.kubectl("apply", "-f", "-", input=installed.stdout.split("<<EOF\n")[1].split("EOF")[0])
    helm("upgrade", *target, "tranche", "--set", "policy=fifo", "--wait", "--timeout=180s")
    helm("uninstall", *target, "--wait", "--timeout=180s")
    assert own.kubectl("get", "trainingjob", "hello", "-o", "name") == "trainingjob.tranche.dev/hello\n"
    assert own.request("GET", "/apis/apps/v1/deployments")[1]["items"] == []
    again = helm("install", *target, "tranche")
    assert "STATUS: deployed" in again.stdout


def test_upgrade_replaces_an_edit_by_hand_only_by_force(helm: Run, own: Cluster) -> None:
    """As the page on the installation says. The release is that of the test before."""
    target = ["tranche", "-n", "tranche-system", f"--kubeconfig={own.kubeconfig}", "tranche"]
    limits = ("configmap", "tranche-tenancy", "-n", "tranche-system")
    own.kubectl("patch", *limits, "--type=merge", "-p", '{"data": {"maxWeight": "5"}}')
    refused = helm("upgrade", *target, "--set", "policy=fifo", check=False)
    assert 'conflict with "kubectl-patch" using v1: .data.maxWeight' in refused.stderr
    helm("upgrade", *target, "--set", "policy=fifo", "--force-conflicts")
    assert own.kubectl("get", *limits, "-o", "jsonpath={.data.maxWeight}") == "1000000"


def is_decided(answer: tuple[int, Any]) -> bool:
    """Return whether an answer is final: admission may refuse a pod until it knows the new service account."""
    return answer[0] != 403 or "serviceaccount" not in str(answer)


@pytest.mark.parametrize(("values", "user"), [((), 65532), (("--set", "runAsUser=0"), None)])
def test_pods_pass_restricted_standard_with_read_only_root(
    render: Render, cluster: Cluster, values: tuple[str, ...], user: int | None
) -> None:
    path = "/api/v1/namespaces/restricted"
    labels = {"name": "restricted", "labels": RESTRICTED}
    cluster.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": labels})
    for deployment in (o for o in render(*values) if o["kind"] == "Deployment"):
        template = copy.deepcopy(deployment["spec"]["template"])
        security = template["spec"]["securityContext"]
        assert (security.get("runAsUser"), security.get("runAsGroup")) == (user, user)
        name = template["spec"]["serviceAccountName"]
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        cluster.request("POST", f"{path}/serviceaccounts", account)
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}
        dry_run = f"{path}/pods?dryRun=All&fieldValidation=Strict"
        post = partial(cluster.request, "POST", dry_run, pod)
        eventually(lambda post=post: is_decided(post()), f"admission sees the account {name}")  # type: ignore[misc]
        status, answer = post()
        assert status == 201, answer
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert {"startupProbe", "livenessProbe", "resources"} <= set(container)


def test_pods_are_admitted_where_a_quota_requires_limits(render: Render, cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "limited")
    cluster.kubectl("create", "quota", "limits", "--hard=limits.cpu=20,limits.memory=20Gi", "-n", "limited")
    programs = ("scheduler", "scheduler.extender", "scheduler.api", "kubeScheduler", "operator")
    objects = render("--set", ",".join(f"{name}.resources.limits.cpu=1" for name in programs), namespace="limited")
    pods = [one["spec"]["template"] for one in objects if one["kind"] == "Deployment"]
    pods += [one for one in objects if one["kind"] == "Pod"]
    assert len(pods) == 3
    for pod in pods:
        spec = {**pod["spec"], "serviceAccountName": "default"}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
        post = partial(cluster.request, "POST", "/api/v1/namespaces/limited/pods?dryRun=All", made)
        eventually(lambda post=post: is_decided(post()), "admission sees the account default")  # type: ignore[misc]
        status, answer = post()
        assert status == 201, answer["message"]


@pytest.mark.parametrize("name", ["123", "1e3", "on", "null"])
def test_names_that_yaml_reads_as_other_types_are_text(helm: Run, cluster: Cluster, name: str) -> None:
    cluster.kubectl("create", "namespace", name)
    values = f"priorityClassName={name},reports.tls.existingSecret={name}"
    text = helm("template", name, "tranche", "-n", name, "--no-hooks", f"--set-string={values}").stdout
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    answer = cluster.kubectl(*apply, input=text)
    assert "deployment.apps/tranche-scheduler serverside-applied" in answer


def test_quota_of_the_release_limits_no_pods_beside_it(render: Render, cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "shared")
    pods, quotas = (f"/api/v1/namespaces/shared/{kind}" for kind in ("pods", "resourcequotas"))
    (quota,) = [one for one in render(namespace="shared") if one["kind"] == "ResourceQuota"]
    assert cluster.request("POST", quotas, quota)[0] == 201
    name = quota["metadata"]["name"]
    eventually(lambda: "hard" in cluster.request("GET", f"{quotas}/{name}")[1]["status"], "the quota is in force")
    containers = [{"name": "agent", "image": "agent"}]
    spec = {"schedulerName": "none", "priorityClassName": "system-cluster-critical", "containers": containers}

    def create(index: int) -> tuple[int, Any]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"agent-{index}"}, "spec": spec}
        return cluster.request("POST", pods, pod)

    eventually(lambda: is_decided(create(0)), "admission sees the account default")
    refused = [answer[1]["message"] for answer in map(create, range(1, 102)) if answer[0] != 201]
    cluster.kubectl("delete", "namespace", "shared", "--wait=false")
    assert refused == []
