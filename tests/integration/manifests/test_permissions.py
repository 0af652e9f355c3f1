"""Each program may do what it needs, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.access_reviews import await_permission, is_allowed
from support.yaml_text import load_all_yaml, load_yaml
from tranche_testcluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "tranche-system"
ALLOWED = {
    "tranche-scheduler": [
        "watch nodes", "list pods", "watch resourcequotas", "watch trainingjobs.tranche.dev", "list sites.tranche.dev",
        "patch trainingjobs.tranche.dev/status", "patch sites.tranche.dev/status",
        f"create leases.coordination.k8s.io -n {SYSTEM}",
        f"update leases.coordination.k8s.io -n {SYSTEM} tranche-scheduler",
        f"update leases.coordination.k8s.io -n {SYSTEM} tranche-kube-scheduler", "create pods/binding",
        "create tokenreviews.authentication.k8s.io",
        "create subjectaccessreviews.authorization.k8s.io", "list events",
        # For the page: page-policy.yaml, which demo clusters have too, grants and limits these rights.
        "patch trainingjobs.tranche.dev", "delete trainingjobs.tranche.dev", "create trainingjobs.tranche.dev",
    ],
    "tranche-operator": [
        "watch trainingjobs.tranche.dev", "delete trainingjobs.tranche.dev", "patch trainingjobs.tranche.dev/status",
        "update trainingjobs.tranche.dev/finalizers", "get sites.tranche.dev",
        "watch pods", "create pods", "patch pods", "delete pods",
        "create pods/eviction", "watch poddisruptionbudgets.policy", "get services", "create services",
        "patch services",
        "create events", "patch events",
        f"create leases.coordination.k8s.io -n {SYSTEM}",
        f"update leases.coordination.k8s.io -n {SYSTEM} tranche-operator",
    ],
}  # fmt: skip
REFUSED = {
    "tranche-scheduler": [
        "patch resourcequotas", "get trainingjobs.tranche.dev", "patch services", "create serviceaccounts/token",
        "create pods", "create pods/eviction", "update trainingjobs.tranche.dev",
        "deletecollection trainingjobs.tranche.dev", "patch nodes", "get secrets", "get configmaps",
        "update leases.coordination.k8s.io -n default", "update trainingjobs.tranche.dev/status",
        f"update leases.coordination.k8s.io -n {SYSTEM} kube-controller-manager",
        f"update leases.coordination.k8s.io -n {SYSTEM} tranche-operator",
    ],
    "tranche-operator": [
        "create trainingjobs.tranche.dev", "patch trainingjobs.tranche.dev", "watch nodes",
        "patch sites.tranche.dev/status", "get secrets", "get configmaps", "list services",
        "delete poddisruptionbudgets.policy", "update services", "delete services",
        "create pods/exec", "create pods/binding", "create tokenreviews.authentication.k8s.io", "list namespaces",
        "list customresourcedefinitions.apiextensions.k8s.io", "delete leases.coordination.k8s.io -n tranche-system",
        "create deployments.apps", "deletecollection pods",
        f"update leases.coordination.k8s.io -n {SYSTEM} kube-controller-manager",
        f"update leases.coordination.k8s.io -n {SYSTEM} tranche-scheduler",
    ],
}  # fmt: skip


def account(name: str) -> tuple[str, list[str]]:
    user = f"system:serviceaccount:{SYSTEM}:{name}"
    return user, ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"]


@pytest.mark.parametrize(("name", "request_"), [(name, r) for name, rs in ALLOWED.items() for r in rs])
def test_a_program_may_do_what_it_needs(installed: Cluster, name: str, request_: str) -> None:
    await_permission(installed, *account(name), request_)


@pytest.mark.parametrize(("name", "request_"), [(name, r) for name, rs in REFUSED.items() for r in rs])
def test_a_program_may_do_nothing_else(installed: Cluster, name: str, request_: str) -> None:
    assert not is_allowed(installed, *account(name), request_)


def test_rights_without_their_policy_are_not_granted(installed: Cluster) -> None:
    objects = list(load_all_yaml(installed.kubectl("kustomize", str(ROOT / "manifests"))))
    assert "ValidatingAdmissionPolicy" not in {one["kind"] for one in objects}
    bindings = [one for one in objects if one["kind"] == "ClusterRoleBinding"]
    held = [one["roleRef"]["name"] for one in bindings if one["subjects"][0]["name"] == "tranche-scheduler"]
    roles = {one["metadata"]["name"]: one["rules"] for one in objects if one["kind"] == "ClusterRole"}
    rules = [rule for name in held for rule in roles.get(name, ()) if "trainingjobs" in rule["resources"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}


def test_edit_role_allows_jobs_of_its_namespace_but_not_sites(installed: Cluster) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "manifests-ada"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    assert installed.request("POST", path, binding)[0] == 201
    try:
        await_permission(installed, "ada", [], "create trainingjobs.tranche.dev")
        await_permission(installed, "ada", [], "list trainingjobs.tranche.dev")
        for refused in ("create sites.tranche.dev", "patch trainingjobs.tranche.dev/status"):
            assert not is_allowed(installed, "ada", [], refused)
        assert not is_allowed(installed, "ada", [], "create trainingjobs.tranche.dev -n kube-system")
    finally:
        installed.request("DELETE", f"{path}/manifests-ada")


@pytest.fixture
def second_scheduler(installed: Cluster) -> Iterator[str]:
    """A kube-scheduler with the shipped configuration, the chart's account, and no extender behind it."""
    name = "manifests-kube-scheduler"
    config = load_yaml((ROOT / "manifests" / "scheduler-config.yaml").read_text(encoding="utf-8"))
    config["clientConnection"]["kubeconfig"] = str(installed.service_account_kubeconfig(SYSTEM, "tranche-scheduler"))
    config["extenders"][0]["urlPrefix"] = "http://127.0.0.1:9"
    nodes = installed.add_site("manifests", 1)
    installed.start_scheduler(config, name)
    yield nodes[0]
    installed.stop(name)
    installed.remove_site("manifests")


def test_second_scheduler_leads_and_binds_with_shipped_config(installed: Cluster, second_scheduler: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "manifests-pod"},
        "spec": {
            "schedulerName": "tranche",
            "priorityClassName": "tranche-normal",
            "nodeName": "",
            "nodeSelector": {"topology.kubernetes.io/zone": "manifests"},
            "containers": [{"name": "a", "image": "a"}],
        },
    }
    status, created = installed.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert status == 201, created
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (-9, "Never")
    path = "/api/v1/namespaces/default/pods/manifests-pod"
    installed.kubectl("wait", "--for=condition=PodScheduled", "pod/manifests-pod", "--timeout=180s")
    assert installed.request("GET", path)[1]["spec"]["nodeName"] == second_scheduler
    installed.request("DELETE", path)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/tranche-kube-scheduler"
    assert installed.request("GET", lease)[1]["spec"]["holderIdentity"]
    assert "forbidden" not in installed.logs("manifests-kube-scheduler")
