"""The chart's roles, enforced: our programs run with the release's tokens and settings, and do all that they can.

A refused request fails the test, and so does a right that is never used.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.access_reviews import await_permission
from support.audit_log import Asked, Audit, Right, granted
from support.full_stack import API
from support.installed_release import Installed, Release
from support.waiting import WAIT_SECONDS, eventually
from support.yaml_text import load_all_yaml
from tranche_testcluster import Cluster

pytestmark = pytest.mark.walkthrough

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SYSTEM = "tranche-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RARE = {
    # The admission plugin requires this right of clients that write owner references with blockOwnerDeletion.
    Right("update", "trainingjobs.tranche.dev/finalizers"): "here: without it no pod is created",
    Right("patch", "services"): "whole/test_lost_nodes.py::test_dead_server_of_a_chunked_job_is_replaced",
    Right("get", "pods"): "operator/test_refusals.py::test_foreign_pod_with_same_name_sets_name_taken_condition",
}
"""Rights that no request here shows, each with the test that fails without it."""
SOMETIMES = {
    # For an event that is repeated later, or that an earlier process has created.
    (
        "tranche-operator",
        Right("patch", "events"),
    ): "operator/test_requests.py",
    ("tranche-scheduler", Right("get", "pods")): "whole/test_late_watches.py",
    # After a Service that could not be created because there was one.
    ("tranche-operator", Right("get", "services")): "operator/test_requests.py::test_it_is_known_whose_the_service_is",
}
"""Rights that a run shows or not, as it comes."""
SERVER = {"containers": [{"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def system(helm: Run, audit: Audit) -> Iterator[Installed]:
    """The installed release with its programs, on two sites; the API server checks the right to set an owner."""
    flags = [*audit.flags(), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    with Cluster(extra_flags={"kube-apiserver": flags}) as cluster:
        for name, nodes, gpus in (("edge-a", 2, 1), ("edge-b", 1, 8)):
            cluster.add_site(name, nodes=nodes, gpus=gpus)
        cluster.start_scheduler()
        target = ["-n", SYSTEM, f"--kubeconfig={cluster.kubeconfig}", "--wait", "--timeout=180s"]
        helm("install", "tranche", "tranche", "--create-namespace", *target)
        await_owner_check(cluster)
        for name, other in (("edge-a", "edge-b"), ("edge-b", "edge-a")):
            cluster.request("POST", f"{API}/sites", site(name, other))
        with Release(cluster) as release:
            yield Installed(cluster, release)


def await_owner_check(cluster: Cluster) -> None:
    """Wait until the admission plugin knows TrainingJobs: it learns of new kinds every half minute, or at its start."""
    cluster.stop("kube-apiserver")
    cluster.start("kube-apiserver")
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "j", "uid": "u", "controller": True}
    metadata = {"name": "owned", "ownerReferences": [owner | {"blockOwnerDeletion": True}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None"}}
    # As an administrator the request would pass in any case.
    operator = ("--as=system:serviceaccount:tranche-system:tranche-operator", "--namespace=default")
    create = ("create", *operator, "--dry-run=server", "--filename=-")

    def is_allowed() -> bool:
        return "owned" in cluster.kubectl(*create, input=json.dumps(service), check=False)

    eventually(is_allowed, "the API server finds the owners of a new kind", pause=0.5)


def site(name: str, other: str) -> dict[str, Any]:
    spec = {"nodeSelector": {"topology.kubernetes.io/zone": name}, "links": [{"to": other, "bandwidth": "8M"}]}
    return {"apiVersion": "tranche.dev/v1alpha1", "kind": "Site", "metadata": {"name": name}, "spec": spec}


def report(system: Installed, job: str) -> None:
    """Report for a job's parameter server, with a token as the kubelet projects it."""
    (pod,) = (p for p in system.pods(job) if p["metadata"]["labels"]["tranche.dev/role"] == "ps")
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    spec = {"audiences": ["tranche.dev"], "expirationSeconds": 600, "boundObjectRef": bound}
    status, answer = system.cluster.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": spec}
    )
    assert status == 201, answer
    attempt = int(pod["metadata"]["labels"]["tranche.dev/attempt"])
    body = json.dumps({"attempt": attempt, "applied": {"0": 5}, "checkpointed": {"0": 5}}).encode()
    url = f"{system.release.report_url}/v1/jobs/default/{job}/progress"
    headers = {"Authorization": f"Bearer {answer['status']['token']}"}
    asked = urllib.request.Request(url, body, headers)

    def is_taken() -> bool:
        """The status is 503 while the API's own watch has not shown the pod."""
        try:
            with urllib.request.urlopen(asked, timeout=WAIT_SECONDS, context=system.release.report_context()) as reply:
                return bool(reply.status == 204)
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 503:
                    raise
                return False

    eventually(is_taken, "the report is taken")


def do_everything(system: Installed) -> None:
    """Use every right: reports, data staging, preemption with a budget, a job with a TTL, and a failing job."""
    budget = {"metadata": {"name": "shop"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}}}
    assert system.cluster.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)[0] == 201
    system.submit("served", seconds=600.0, parameterServers={"template": {"spec": SERVER}})
    system.until(
        "server and worker run", lambda: [p["status"]["phase"] for p in system.pods("served")] == ["Running"] * 2
    )
    report(system, "served")
    system.delete("served")

    container = {"name": "copy", "image": "copier:1", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    pod = {"metadata": {"annotations": {"kwok.tranche.dev/run-seconds": "1"}}, "spec": {"containers": [container]}}
    data = {"chunks": 5, "batchesPerChunk": 50, "chunkSize": "1Mi", "site": "edge-a", "staging": {"template": pod}}
    system.submit("staged", chunks=5, seconds=4.0, data=data, runPolicy={"ttlSecondsAfterFinished": 1})

    system.submit("long", chunks=10, seconds=600.0, priorityClassName="tranche-low")
    system.until("its workers run", lambda: any(p["status"]["phase"] == "Running" for p in system.pods("long")))
    system.submit("urgent", chunks=8, seconds=1.0, priorityClassName="tranche-high")
    system.until_phase("urgent", "Succeeded")
    system.until("staged is over and gone", lambda: not system.job("staged"))
    assert system.status("long")["progress"]["preemptions"] > 0
    system.delete("long", "urgent")

    system.submit("failing", exit_code=1, runPolicy={"backoffLimit": 0, "cleanPodPolicy": "All"})
    system.until_phase("failing", "Failed")
    system.until("its pods are deleted", lambda: not system.pods("failing"))
    system.submit("waiting", seconds=1.0, gpus=9)
    system.until("an event says why it waits", lambda: events(system, "waiting"))
    visit(system, "waiting")
    system.delete("failing", "waiting")


def visit(system: Installed, job: str) -> None:
    """Look at a job, ask for the plan of another, set the weight and delete it, as a user with the role edit."""
    system.cluster.kubectl("create", "serviceaccount", "visitor")
    system.cluster.kubectl("create", "rolebinding", "visitor", "--clusterrole=edit", "--serviceaccount=default:visitor")
    await_permission(system.cluster, "system:serviceaccount:default:visitor", [], "create trainingjobs.tranche.dev")
    token = system.cluster.kubectl("create", "token", "visitor", "--audience=page.tranche.dev").strip()
    url = f"{system.release.page_url}/v1/jobs/default/{job}"
    headers = {"Authorization": f"Bearer {token}", "Tranche-Request": "page", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/events", headers=headers)) as reply:
        assert json.load(reply)["events"]
    asked = {"apiVersion": API.removeprefix("/apis/"), "kind": "TrainingJob", "metadata": {"name": "asked"}}
    asked["spec"] = system.job(job)["spec"]
    what_if = json.dumps({"manifest": json.dumps(asked), "namespace": "default"}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{system.release.page_url}/v1/what-if", what_if, headers)
    ) as reply:
        assert json.load(reply)["note"] == ""
    uid = system.job(job)["metadata"]["uid"]
    for action in ({"action": "weight", "weight": 2}, {"action": "delete"}):
        body = json.dumps({**action, "uid": uid}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/actions", body, headers)) as reply:
            assert json.load(reply) == {"done": action["action"]}


def events(system: Installed, job: str) -> list[dict[str, Any]]:
    items = system.cluster.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    return [event for event in items if event["involvedObject"].get("name") == job]


@pytest.fixture(scope="module")
def asked(system: Installed, audit: Audit) -> list[Asked]:
    """All that was asked while everything was done."""
    do_everything(system)
    return list(audit.asked())


def rights(system: Installed, kind: str, name: str) -> set[Right]:
    folder = f"namespaces/{SYSTEM}/roles" if kind == "Role" else "clusterroles"
    status, role = system.cluster.request("GET", f"{RBAC}/{folder}/{name}")
    assert status == 200, role
    return granted(role)


def test_nothing_that_the_programs_ask_for_is_refused(asked: list[Asked]) -> None:
    assert {one.program for one in asked} == {"kube-scheduler", "tranche"}
    refused = {f"{one.account} ({one.program}): {one.right}" for one in asked if one.status in (401, 403)}
    assert not refused


@pytest.mark.parametrize(
    ("kind", "account"), [("ClusterRole", "tranche-scheduler"), ("ClusterRole", "tranche-operator")]
)
def test_every_right_of_a_program_is_used_or_a_test_says_when(
    asked: list[Asked], system: Installed, kind: str, account: str
) -> None:
    used = {one.right for one in asked if one.account == account and one.program == "tranche"}
    given = rights(system, kind, account)
    given -= {right for name, right in SOMETIMES if name == account}
    rare = {right for right in given if right in RARE}
    assert sorted(map(str, given - used - rare)) == []
    assert sorted(map(str, rare & used)) == [], "used after all: take it off the list"


@pytest.mark.parametrize("account", ["tranche-scheduler", "tranche-operator"])
def test_rules_of_a_role_are_all_used(asked: list[Asked], system: Installed, account: str) -> None:
    leases, own = "leases.coordination.k8s.io", ("secrets", "configmaps")
    used = {one.right for one in asked if one.account == account and one.right.resource == leases}
    used |= {
        one.right for one in asked if one.account == account and one.program == "tranche" and one.right.resource in own
    }
    assert rights(system, "Role", account) == used


def test_every_binding_is_what_allowed_something(asked: list[Asked], system: Installed) -> None:
    objects = system.cluster.request("GET", f"{RBAC}/clusterrolebindings?labelSelector=app.kubernetes.io/name=tranche")
    local = system.cluster.request("GET", f"{RBAC}/rolebindings?labelSelector=app.kubernetes.io/name=tranche")
    kinds = (("ClusterRoleBinding", objects, ""), ("RoleBinding", local, "/{namespace}"))
    bindings = {
        f'{kind} "{o["metadata"]["name"]}{suffix.format(**o["metadata"])}"'
        for kind, answer, suffix in kinds
        for o in answer[1]["items"]
    }
    assert len(bindings) == 9
    reasons = " ".join({one.reason for one in asked})
    assert {one for one in bindings if f"RBAC: allowed by {one}" not in reasons} == set()


def test_helm_test_hook_reaches_both_programs_through_services(system: Installed, helm: Run) -> None:
    hooks = helm("get", "hooks", "tranche", "-n", SYSTEM, f"--kubeconfig={system.cluster.kubeconfig}").stdout
    (pod,) = (one for one in load_all_yaml(hooks) if one and one["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    program, *options = container["command"]
    script, *urls = container["args"]
    assert (program, len(urls)) == ("python", 6)
    here = [system.release.address(url) for url in urls]
    environment = {**os.environ, "TRANCHE_CA": str(system.release.report_ca())}
    command = [sys.executable, *options, script, *here]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert answer.returncode == 0, answer.stderr
    assert [line.rpartition(" ")[2] for line in answer.stdout.splitlines()] == ["200"] * 5 + ["401"]
