"""The admission policies, as tenants with different rights meet them on a real API server."""

import asyncio
import json
from typing import Any

import pytest

from support.doc_pages import ROOT, blocks
from support.waiting import eventually
from support.yaml_text import load_yaml
from tranche.demo.local_stack import manifests
from tranche.kube.client.client import ApiClient, ApiError
from tranche_testcluster import Cluster, ClusterError

OPERATOR = "system:serviceaccount:tranche-system:tranche-operator"
SCHEDULER = "system:serviceaccount:tranche-system:tranche-scheduler"
EDITOR, OWNER = "editor", "owner"
"""A user with the role edit, and one with a role `*` on `*`, both in namespace default."""
LIMITS = {
    "maxWeight": "10",
    "highestPriorityClass": "tranche-normal",
    "allowNever": "false",
    "maxGraceSeconds": "600",
    "maxRestartSeconds": "600",
    "allowAtChunkEnd.lab": "true",
    "maxWeight.research": "100",
    "highestPriorityClass.research": "tranche-high",
    "allowNever.research": "true",
    "maxGraceSeconds.research": "7200",
    "maxRestartSeconds.research": "7200",
}
LABELLED = {"labels": {"tranche.dev/job": "cats"}}
JOBS = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs"


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Cluster:
    """The cluster with the policies, tenants with rights and limits, and a job of earlier with claims above them."""
    everything = ["--verb=*", "--resource=*.*"]
    cluster.kubectl("create", "namespace", "lab")
    cluster.kubectl("create", "namespace", "research")
    for namespace in ("default", "lab", "research"):
        binding = ["-n", namespace, "create", "rolebinding"]
        cluster.kubectl(*binding, "editor", "--clusterrole=edit", f"--user={EDITOR}")
        cluster.kubectl("-n", namespace, "create", "role", "owner", *everything)
        cluster.kubectl(*binding, "owner", "--role=owner", f"--user={OWNER}")
    applied(cluster, job("earlier", weight=500, preemption={"restartOverhead": "1h"}))
    enforce_policies(cluster)
    return cluster


def enforce_policies(cluster: Cluster) -> None:
    """Apply the limits and the policies, and wait until the API server enforces them."""
    metadata = {"name": "tranche-tenancy", "namespace": "tranche-system"}
    applied(cluster, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": LIMITS})
    for name in ("admission-policies.yaml", "page-policy.yaml"):
        cluster.kubectl("apply", "-f", str(manifests() / name))
    eventually(lambda: "only tranche-scheduler" in refusal(cluster, status("earlier"), OWNER), "policy tranche-status")
    eventually(lambda: "weight" in refusal(cluster, job("probe", weight=11)), "policy tranche-claims")
    eventually(lambda: "leave" in refusal(cluster, pod("probe")), "policy tranche-pods")
    eventually(
        lambda: "gives a pod no" in bound(cluster, "probe", "pods/probe/binding", LABELLED)[1],
        "policy tranche-bindings",
    )
    paged = job("earlier", weight=500, estimatedDuration="1h", preemption={"restartOverhead": "1h"})
    eventually(lambda: "may change only" in refusal(cluster, paged, SCHEDULER), "policy tranche-page-actions")


def job(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "worker", "image": "train"}]}}
    return {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"workers": {"maxReplicas": 1, "template": template}, **spec},
    }


def pod(name: str, labelled: bool = True, **metadata: Any) -> dict[str, Any]:
    labels = {"tranche.dev/job": "cats", "tranche.dev/role": "ps", "tranche.dev/index": "0", "tranche.dev/attempt": "7"}
    whole = {"name": name, "namespace": "default", "labels": labels if labelled else {}, **metadata}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": whole, "spec": spec}


def status(name: str) -> dict[str, Any]:
    return {**job(name), "status": {"plan": {"term": 2147483647, "revision": 1, "observedGeneration": 1}}}


COLLECTIONS = {
    "TrainingJob": "/apis/tranche.dev/v1alpha1/namespaces/{namespace}/trainingjobs",
    "Site": "/apis/tranche.dev/v1alpha1/sites",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
}


def apply(cluster: Cluster, obj: dict[str, Any], user: str | None = None, *, keep: bool = True) -> str:
    """Send what ``kubectl apply --server-side`` sends; return the error, or "" if it is accepted."""
    place = COLLECTIONS[obj["kind"]].format(namespace=obj["metadata"].get("namespace"))
    path = f"{place}/{obj['metadata']['name']}{'/status' if 'status' in obj else ''}"
    query = f"fieldManager=kubectl&force=true&fieldValidation=Strict{'' if keep else '&dryRun=All'}"
    code, answer = cluster.request("PATCH", f"{path}?{query}", obj, "application/apply-patch+yaml", user or "")
    return "" if code in (200, 201) else str(answer["message"])


def applied(cluster: Cluster, obj: dict[str, Any], user: str | None = None) -> None:
    """Apply an object that is accepted."""
    assert apply(cluster, obj, user) == ""


def refusal(cluster: Cluster, obj: dict[str, Any], user: str | None = EDITOR) -> str:
    """Try to apply an object without keeping it; return the error, or "" if it is accepted."""
    return apply(cluster, obj, user, keep=False)


@pytest.mark.parametrize("user", [OWNER, None])
def test_status_write_by_other_users_is_denied(guarded: Cluster, user: str | None) -> None:
    assert "only tranche-scheduler and tranche-operator write this status" in refusal(guarded, status("earlier"), user)


@pytest.mark.parametrize("user", [SCHEDULER, OPERATOR])
def test_both_programs_write_a_job_status(guarded: Cluster, user: str) -> None:
    assert refusal(guarded, status("earlier"), user) == ""


def test_only_the_programs_write_the_status_of_a_site(guarded: Cluster) -> None:
    site = {"apiVersion": "tranche.dev/v1alpha1", "kind": "Site", "metadata": {"name": "edge"}}
    applied(guarded, {**site, "spec": {"nodeSelector": {"zone": "edge"}}})
    told = {**site, "status": {"nodes": 5}}
    assert "only tranche-scheduler" in refusal(guarded, told, None)
    assert refusal(guarded, told, SCHEDULER) == ""


@pytest.mark.parametrize("user", [EDITOR, OWNER, None])
@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"weight": 11}, "spec.weight: namespace default may use at most 10, and this job has 11"),
        ({"weight": 1_000_000}, "spec.weight: namespace default may use at most 10, and this job has 1000000"),
        ({"weight": 10.5}, "spec.weight: namespace default may use at most 10, and this job has 10.5"),
        (
            {"priorityClassName": "tranche-high"},
            "spec.priorityClassName: namespace default may use at most tranche-normal, and this job has tranche-high",
        ),
        (
            {"preemption": {"policy": "Never"}},
            "spec.preemption.policy: namespace default may not use Never: use Immediate",
        ),
        (
            {"preemption": {"policy": "AtChunkEnd"}, "data": {"chunks": 1}},
            "spec.preemption.policy: namespace default may not use AtChunkEnd: use Immediate",
        ),
        (
            {"utility": {"priority": 501, "target": "1h"}},
            "spec.utility.priority: namespace default may use at most 500, and this job has 501",
        ),
        (
            {"preemption": {"restartOverhead": "10m1s"}},
            "spec.preemption.restartOverhead: namespace default may use at most 600 s, and this job has 10m1s",
        ),
    ],
)
def test_claim_above_the_limit_is_refused(
    guarded: Cluster, user: str | None, claims: dict[str, Any], told: str
) -> None:
    assert told in refusal(guarded, job("greedy", **claims), user)


def patient(seconds: int) -> dict[str, Any]:
    """A template with a grace period."""
    spec = {"containers": [{"name": "worker", "image": "train"}], "terminationGracePeriodSeconds": seconds}
    return {"template": {"spec": spec}}


@pytest.mark.parametrize(
    "claims",
    [
        {"workers": {"maxReplicas": 1, **patient(601)}},
        {"chief": patient(601)},
        {"parameterServers": patient(601), "chief": patient(30)},
    ],
    ids=["worker", "chief", "server"],
)
def test_grace_period_above_the_limit_is_refused(guarded: Cluster, claims: dict[str, Any]) -> None:
    told = "terminationGracePeriodSeconds: namespace default may use at most 600, and a template of this job has 601"
    assert told in refusal(guarded, job("slow", **claims))
    assert refusal(guarded, job("slow", "research", **claims)) == ""


def test_claims_within_the_limits_are_accepted(guarded: Cluster) -> None:
    assert refusal(guarded, job("modest")) == ""
    assert refusal(guarded, job("modest", workers={"maxReplicas": 1, **patient(600)})) == ""
    assert refusal(guarded, job("modest", weight=10, priorityClassName="tranche-normal")) == ""
    assert refusal(guarded, job("modest", preemption={"restartOverhead": "10m"})) == ""
    assert refusal(guarded, job("modest", utility={"priority": 500, "target": "1h"})) == ""


def test_a_namespace_has_limits_of_its_own(guarded: Cluster) -> None:
    preemption = {"policy": "Never", "restartOverhead": "2h"}
    claims = {"weight": 100, "priorityClassName": "tranche-high", "preemption": preemption}
    assert refusal(guarded, job("more", "research", **claims)) == ""
    assert "at most 100" in refusal(guarded, job("most", "research", weight=101))


def test_policy_at_chunk_end_is_accepted_where_it_is_allowed(guarded: Cluster) -> None:
    def asking(policy: str, namespace: str) -> str:
        return refusal(guarded, job("polite", namespace, data={"chunks": 9}, preemption={"policy": policy}))

    assert asking("AtChunkEnd", "lab") == asking("AtChunkEnd", "research") == ""
    assert "namespace lab may not use Never: use Immediate or AtChunkEnd" in asking("Never", "lab")


@pytest.mark.parametrize(
    ("limit", "value", "claims", "told"),
    [
        ("maxWeight", "ten", {"weight": 2}, "may use at most 1, and"),
        ("maxWeight", "7\n", {"weight": 8}, "may use at most 7, and"),  # a file with a line, as of kubectl create
        ("highestPriorityClass", "high", {"priorityClassName": "tranche-high"}, "may use at most tranche-normal"),
        ("allowNever", "yes", {"preemption": {"policy": "Never"}}, "may not use Never: use Immediate"),
        ("maxRestartSeconds", "10m", {"preemption": {"restartOverhead": "11m"}}, "may use at most 600 s"),
        ("maxGraceSeconds", "10m", {"workers": {"maxReplicas": 1, **patient(31)}}, "may use at most 30, and"),
    ],
)
def test_unreadable_limit_refuses_claims_and_no_other_job(
    guarded: Cluster, limit: str, value: str, claims: dict[str, Any], told: str
) -> None:
    def set_limit(text: str) -> None:
        patch = json.dumps({"data": {f"{limit}.research": text}})
        guarded.kubectl("-n", "tranche-system", "patch", "configmap", "tranche-tenancy", "--type=merge", "-p", patch)

    assert refusal(guarded, job("claiming", "research", **claims)) == ""
    set_limit(value)
    try:
        eventually(lambda: refusal(guarded, job("claiming", "research", **claims)) != "", "the policy has the limit")
        assert told in refusal(guarded, job("claiming", "research", **claims))
        assert refusal(guarded, job("modest", "research")) == ""
    finally:
        set_limit(LIMITS[f"{limit}.research"])
        eventually(lambda: refusal(guarded, job("claiming", "research", **claims)) == "", "the former limit")


def test_job_above_a_later_limit_can_still_be_suspended(guarded: Cluster) -> None:
    slow: dict[str, Any] = {"preemption": {"restartOverhead": "1h"}}
    assert refusal(guarded, job("earlier", weight=500, suspend=True, **slow)) == ""
    assert refusal(guarded, job("earlier", weight=5)) == ""
    assert "at most 10" in refusal(guarded, job("earlier", weight=501, **slow))
    assert "at most 600 s" in refusal(guarded, job("earlier", weight=500, preemption={"restartOverhead": "2h"}))


@pytest.mark.parametrize("user", [EDITOR, OWNER, None])
def test_tenant_cannot_create_a_pod_of_a_job_in_advance(guarded: Cluster, user: str | None) -> None:
    uid = load_yaml(guarded.kubectl("get", "trainingjob", "earlier", "-o", "json"))["metadata"]["uid"]
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "earlier", "uid": uid}
    for labelled in (True, False):
        made = pod("earlier-ps-0-7", labelled, ownerReferences=[{**owner, "controller": True}])
        assert "only tranche-operator creates pods of TrainingJobs: leave" in refusal(guarded, made, user)
        assert refusal(guarded, made, OPERATOR) == ""


def test_pod_without_label_cannot_get_a_job_as_owner(guarded: Cluster) -> None:
    applied(guarded, pod("unlabelled", labelled=False))
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "cats", "uid": "0"}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    with pytest.raises(ClusterError, match="only tranche-operator makes a TrainingJob the owner of a pod"):
        guarded.kubectl("patch", "pod", "unlabelled", f"--as={OWNER}", "--type=merge", "-p", patch)


def test_pods_that_are_not_of_jobs_are_not_affected(guarded: Cluster) -> None:
    assert refusal(guarded, pod("plain", labelled=False)) == ""
    namesake = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": "cats", "uid": "0"}
    assert refusal(guarded, pod("plain", labelled=False, ownerReferences=[namesake])) == ""


@pytest.mark.parametrize("user", [EDITOR, OWNER, None])
def test_pod_of_others_for_second_scheduler_is_denied(guarded: Cluster, user: str | None) -> None:
    made = pod("queued", labelled=False)
    made["spec"]["schedulerName"] = "tranche"
    assert "leave out" in refusal(guarded, made, user)
    assert refusal(guarded, made, OPERATOR) == ""
    made["spec"]["schedulerName"] = "volcano"
    assert refusal(guarded, made, user) == ""


def test_revision_of_the_plan_of_a_pod_cannot_change(guarded: Cluster) -> None:
    applied(guarded, pod("cats-ps-0-6", annotations={"tranche.dev/plan": "1.5"}), OPERATOR)
    for changed in ("tranche.dev/plan=9.9", "tranche.dev/plan-"):
        with pytest.raises(ClusterError, match="has the revision of the plan"):
            guarded.kubectl("annotate", "--overwrite", "pod", "cats-ps-0-6", f"--as={EDITOR}", changed)


def test_identity_of_a_pod_of_a_job_cannot_change(guarded: Cluster) -> None:
    applied(guarded, pod("cats-ps-0-7"), OPERATOR)
    labels = pod("cats-ps-0-7")["metadata"]["labels"]
    for changed in ({**labels, "tranche.dev/attempt": "8"}, {}):
        patch = json.dumps({"metadata": {"labels": changed or None}})
        with pytest.raises(ClusterError, match="identify a pod of a TrainingJob and cannot change"):
            guarded.kubectl("patch", "pod", "cats-ps-0-7", f"--as={OWNER}", "--type=merge", "-p", patch)
    owner = {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "cats",
        "uid": "0",
        "controller": True,
    }
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    with pytest.raises(ClusterError, match="only tranche-operator makes a TrainingJob the owner of a pod"):
        guarded.kubectl("patch", "pod", "cats-ps-0-7", f"--as={OWNER}", "--type=merge", "-p", patch)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"labels": {"tranche.dev/job": None}}, "identify a pod of a TrainingJob and cannot change"),
        ({"labels": {"tranche.dev/attempt": "8"}}, "identify a pod of a TrainingJob and cannot change"),
        ({"annotations": {"tranche.dev/plan": "9.9"}}, "has the revision of the plan"),
        ({"annotations": {"tranche.dev/plan": None}}, "has the revision of the plan"),
    ],
)
def test_status_write_cannot_change_what_a_pod_is(guarded: Cluster, metadata: dict[str, Any], told: str) -> None:
    applied(guarded, pod("cats-ps-0-4", annotations={"tranche.dev/plan": "1.5"}), OPERATOR)
    with pytest.raises(ClusterError, match=told):
        patched_status(guarded, "cats-ps-0-4", {"metadata": metadata})


def test_status_write_cannot_make_a_pod_one_of_a_job(guarded: Cluster) -> None:
    applied(guarded, pod("bystander", labelled=False))
    with pytest.raises(ClusterError, match="identify a pod of a TrainingJob and cannot change"):
        patched_status(guarded, "bystander", {"metadata": {"labels": {"tranche.dev/job": "cats"}}})


def test_status_of_a_pod_of_a_job_can_change(guarded: Cluster) -> None:
    applied(guarded, pod("cats-ps-0-5", annotations={"tranche.dev/plan": "1.5"}), OPERATOR)
    patched_status(guarded, "cats-ps-0-5", {"status": {"message": "as a kubelet writes it"}})
    patched_status(guarded, "cats-ps-0-5", {"metadata": {"annotations": {"note": "x"}}})


def patched_status(cluster: Cluster, name: str, patch: dict[str, Any]) -> None:
    words = ("--subresource=status", "--type=merge", f"--as={OWNER}", "-p", json.dumps(patch))
    cluster.kubectl("patch", "pod", name, *words)


@pytest.mark.parametrize("path", ["pods/{}/binding", "bindings"])
@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        (
            {"annotations": {"tranche.dev/plan": "9.9"}},
            "a binding gives a pod no label and no annotation of",
        ),
        (LABELLED, "a binding gives a pod no label and no annotation of"),
        ({"annotations": {"note": "x"}, "labels": {"note": "x"}}, ""),
        ({}, ""),
    ],
)
def test_binding_cannot_change_what_a_pod_is(guarded: Cluster, path: str, metadata: dict[str, Any], told: str) -> None:
    applied(guarded, pod("bound", labelled=False))
    code, message = bound(guarded, "bound", path.format("bound"), metadata)
    assert code == (403 if told else 201), message
    assert told in message


def bound(cluster: Cluster, name: str, path: str, metadata: dict[str, Any]) -> tuple[int, str]:
    """Try to bind a pod as the owner without keeping it; return the status of the answer and its message."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}
    code, answer = cluster.request("POST", f"/api/v1/namespaces/default/{path}?dryRun=All", body, user=OWNER)
    return code, str(answer.get("message", ""))


def test_tenant_cannot_detach_a_pod_from_its_job(guarded: Cluster) -> None:
    applied(guarded, job("detached"))
    uid = load_yaml(guarded.kubectl("get", "trainingjob", "detached", "-o", "json"))["metadata"]["uid"]
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "detached", "uid": uid}
    owned = pod("detached-worker-0-1", ownerReferences=[{**owner, "controller": True}])
    owned["metadata"]["labels"]["tranche.dev/job"] = "detached"
    applied(guarded, owned, OPERATOR)
    for patch in ('{"metadata": {"ownerReferences": null}}', '{"metadata": {"ownerReferences": []}}'):
        with pytest.raises(ClusterError, match="only the garbage collector removes a TrainingJob as the owner"):
            guarded.kubectl("patch", "pod", "detached-worker-0-1", f"--as={OWNER}", "--type=merge", "-p", patch)
    guarded.kubectl("delete", "trainingjob", "detached", "--cascade=orphan")
    path = "/api/v1/namespaces/default/pods/detached-worker-0-1"
    eventually(lambda: not guarded.request("GET", path)[1]["metadata"].get("ownerReferences"), "the pod is released")


def test_tenant_may_annotate_and_release_a_pod_of_a_job(guarded: Cluster) -> None:
    applied(guarded, pod("cats-ps-0-8", finalizers=["tranche.dev/ledger"]), OPERATOR)
    guarded.kubectl("annotate", "pod", "cats-ps-0-8", f"--as={EDITOR}", "note=x")
    patch = '{"metadata": {"finalizers": null}}'
    guarded.kubectl("patch", "pod", "cats-ps-0-8", f"--as={EDITOR}", "--type=merge", "-p", patch)
    guarded.kubectl("delete", "pod", "cats-ps-0-8", f"--as={EDITOR}", "--wait=false")


def test_policies_have_no_type_errors(guarded: Cluster) -> None:
    """The API server type-checks the expressions against the schemas of the matched kinds."""

    def checked() -> bool:
        found = load_yaml(guarded.kubectl("get", "validatingadmissionpolicies", "-o", "json"))["items"]
        assert {one["metadata"]["name"] for one in found} >= {"tranche-status", "tranche-pods", "tranche-claims"}
        for one in found:
            assert one["status"]["observedGeneration"] == one["metadata"]["generation"]
            assert not one["status"].get("typeChecking", {}).get("expressionWarnings"), one["metadata"]["name"]
        return True

    eventually(checked)


def test_account_of_the_page_creates_jobs_in_dry_runs_only(guarded: Cluster) -> None:
    guarded.kubectl("apply", "-f", str(manifests() / "rbac.yaml"))
    kubeconfig = guarded.service_account_kubeconfig("tranche-system", "tranche-scheduler")

    async def create(**params: str) -> dict[str, Any]:
        async with ApiClient.connect(str(kubeconfig)) as client:
            return await client.request("POST", JOBS, body=job("asked"), params=params)

    assert asyncio.run(create(dryRun="All"))["metadata"]["name"] == "asked"
    with pytest.raises(ApiError, match="may create TrainingJobs in a dry run only"):
        asyncio.run(create())


def test_account_of_the_page_changes_suspension_and_weight_only(guarded: Cluster) -> None:
    applied(guarded, job("paged"))
    guarded.kubectl("apply", "-f", str(manifests() / "rbac.yaml"))

    kubeconfig = guarded.service_account_kubeconfig("tranche-system", "tranche-scheduler")

    def patch(spec: dict[str, Any], **metadata: Any) -> str:
        """Return the error, or "patched"."""

        async def send() -> str:
            async with ApiClient.connect(str(kubeconfig)) as client:
                body = {"metadata": metadata, "spec": spec}
                await client.request("PATCH", f"{JOBS}/paged", body=body, content_type="application/merge-patch+json")
            return "patched"

        try:
            return asyncio.run(send())
        except ApiError as error:
            return error.message

    template = {"spec": {"containers": [{"name": "worker", "image": "mine"}]}}
    refused: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"workers": {"template": template}}, {}),
        ({"priorityClassName": "tranche-low"}, {}),
        ({"suspend": True, "estimatedDuration": "1h"}, {}),
        ({}, {"labels": {"team": "mine"}}),
    ]
    for spec, metadata in refused:
        assert "may change only spec.suspend and spec.weight" in patch(spec, **metadata)
    assert "patched" in patch({"suspend": True, "weight": 3})
    assert "patched" in patch({"suspend": False})


def test_quota_of_page_keeps_gpus_for_training(guarded: Cluster) -> None:
    page = blocks(ROOT / "docs/explanation/multi-tenancy.md")
    quota = load_yaml(next(one.text for one in page if "gpus-for-training-only" in one.text))
    quota["metadata"]["namespace"] = "default"
    guarded.request("POST", "/api/v1/namespaces/default/resourcequotas", quota)
    limits = {"limits": {"nvidia.com/gpu": "1"}}

    def asking(**spec: Any) -> str:
        made = pod("outside", labelled=False)
        made["spec"] = {"containers": [{"name": "c", "image": "i", "resources": limits}], **spec}
        return refusal(guarded, made)

    eventually(lambda: "exceeded quota: gpus-for-training-only" in asking(), "the quota is enforced")
    assert "exceeded quota" in asking(priorityClassName="system-cluster-critical")
    assert asking(priorityClassName="tranche-normal") == ""
    assert refusal(guarded, pod("small", labelled=False)) == ""


def test_quota_of_page_limits_the_number_of_jobs(guarded: Cluster) -> None:
    page = blocks(ROOT / "docs/explanation/multi-tenancy.md")
    quota = load_yaml(next(one.text for one in page if "number-of-jobs" in one.text))
    quota["metadata"]["namespace"] = "lab"
    quota["spec"]["hard"] = dict.fromkeys(quota["spec"]["hard"], "1")
    guarded.request("POST", "/api/v1/namespaces/lab/resourcequotas", quota)
    status = "/api/v1/namespaces/lab/resourcequotas/number-of-jobs"
    eventually(lambda: guarded.request("GET", status)[1].get("status", {}).get("used"), "the quota is counted")
    applied(guarded, job("first", "lab"), EDITOR)
    eventually(lambda: "exceeded quota: number-of-jobs" in refusal(guarded, job("second", "lab")), "it is enforced")
    assert refusal(guarded, job("first", "lab", suspend=True)) == ""


def test_without_the_limits_jobs_cannot_change_or_end(guarded: Cluster) -> None:
    """As after the deletion of the namespace of tranche. Without the bindings of the policies, the deletion ends."""
    applied(guarded, job("left"))
    guarded.kubectl("-n", "tranche-system", "delete", "configmap", "tranche-tenancy")
    try:
        eventually(lambda: "no params found" in refusal(guarded, job("probe")), "the limits are missing")
        guarded.request("DELETE", f"{JOBS}/left", {"propagationPolicy": "Foreground"})
        assert "no params found" in refusal(guarded, job("left", suspend=True), None)
        page = blocks(ROOT / "docs/how-to/recovering.md")
        command = next(one.text for one in page if "validatingadmissionpolicybindings" in one.text)
        guarded.kubectl(*command.split()[1:])
        eventually(lambda: guarded.request("GET", f"{JOBS}/left")[0] == 404, "the deletion ends")
    finally:
        enforce_policies(guarded)
