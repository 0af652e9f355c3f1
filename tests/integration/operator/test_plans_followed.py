"""The operator does what a hand-written plan says."""

from typing import Any

import pytest

from support.object_history import History
from support.operator_lab import SITE, TEMPLATE, Lab, Process, server, window
from support.quotas import impose_quota
from support.stopped_process import stopped
from support.waiting import changes, eventually
from tranche_testcluster import Cluster

pytestmark = pytest.mark.usefixtures("operator")

MERGE = "application/merge-patch+json"


def service_is_collected(lab: Lab) -> None:
    """Garbage collection learns of a new CRD within 30 s."""
    eventually(lambda: lab.cluster.request("GET", lab.core("services", "cats"))[0] == 404)


def has_pod(lab: Lab, name: str) -> None:
    eventually(lambda: name in lab.pods())


def has_ended(lab: Lab, name: str) -> None:
    eventually(lambda: lab.pods()[name]["status"]["phase"] in ("Succeeded", "Failed"))


def test_open_windows_and_servers_get_their_pods(lab: Lab) -> None:
    lab.create(parameterServers={"replicas": 1, "template": TEMPLATE})
    lab.plan(window(0, 2), window(3, 3), servers=[server(0, 1)])
    lab.has_pods("cats-ps-0-1", "cats-worker-0-2", "cats-worker-3-3")
    pod = lab.pods()["cats-worker-3-3"]
    assert pod["metadata"]["finalizers"] == ["tranche.dev/ledger"]
    assert pod["spec"]["schedulerName"] == "tranche"
    assert pod["spec"]["priority"] == -9
    assert pod["spec"]["preemptionPolicy"] == "Never"
    eventually(lambda: lab.cluster.request("GET", lab.core("services", "cats"))[0] == 200)
    service = lab.ask("GET", lab.core("services", "cats"))
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["ownerReferences"][0]["uid"] == lab.job()["metadata"]["uid"]
    eventually(lambda: lab.status().get("phase") == "Starting")
    lab.bind("cats-worker-0-2")
    eventually(lambda: lab.status().get("phase") == "Running")
    status = lab.status()
    assert (status["activeWorkers"], status["activeParameterServers"], status["sites"]) == (2, 1, SITE)
    assert lab.condition("Running")["status"] == "True"
    eventually(lambda: {"WindowOpened", "ParameterServerOpened", "Started"} <= set(lab.events()))


def test_a_plan_for_another_generation_is_not_followed(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1), generation=7)
    eventually(lambda: lab.status().get("observedGeneration") == 1)
    lab.plan(window(1, 2))
    lab.has_pods("cats-worker-1-2")


def test_closing_window_is_evicted_while_the_job_changes(lab: Lab) -> None:
    """A tenant could edit its job all the time, so that no plan is for the present specification."""
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    lab.plan(window(0, 1, "Closing", preemptedBy="default/dogs"), window(1, 2), generation=7)
    eventually(lambda: lab.is_stopping_or_gone("cats-worker-0-1"))
    assert "cats-worker-1-2" not in lab.pods()


def test_a_closing_window_is_evicted_counted_and_cleared(lab: Lab) -> None:
    template: dict[str, Any] = {
        **TEMPLATE,
        "metadata": {"annotations": {"kwok.tranche.dev/checkpoint-seconds": "0.5"}},
    }
    lab.create(template=template)
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    lab.plan(window(0, 1, "Closing", preemptedBy="default/dogs"), window(0, 2, node=f"{SITE}-1"))

    def stopped() -> dict[str, Any]:
        pod = lab.pods()["cats-worker-0-1"]
        assert pod["status"]["phase"] == "Failed"
        assert pod["metadata"]["deletionGracePeriodSeconds"] in (0, 7)
        return pod

    pod = eventually(stopped)
    conditions = {condition["type"] for condition in pod["status"]["conditions"]}
    assert "DisruptionTarget" not in conditions, "no budget is there to be asked"
    assert pod["metadata"]["finalizers"] == ["tranche.dev/ledger"], "not counted yet"
    has_pod(lab, "cats-worker-0-2")
    event = eventually(lambda: lab.events().get("Preempting", {}))
    message = "Preempted by default/dogs: pod cats-worker-0-1 stops within 7 s (grace period)."
    assert (event["type"], event["message"]) == ("Normal", message)
    lab.plan(window(0, 2, node=f"{SITE}-1"), progress={"preemptions": 1, "attempts": []})
    lab.has_pods("cats-worker-0-2")


def test_counted_finished_pods_lose_finalizer_and_last_two_stay(lab: Lab) -> None:
    template = {**TEMPLATE, "metadata": {"annotations": {"kwok.tranche.dev/run-seconds": "0.1"}}}
    lab.create(template=template)
    names = [f"cats-worker-0-{attempt}" for attempt in (1, 2, 3)]
    for attempt, name in enumerate(names, start=1):
        lab.plan(window(0, attempt), progress={"done": "" if attempt == 1 else f"0-{attempt - 2}"})
        has_pod(lab, name)
        lab.bind(name)
        has_ended(lab, name)
    assert lab.pods()[names[2]]["metadata"]["finalizers"] == ["tranche.dev/ledger"]
    lab.plan(progress={"done": "0-2"})
    lab.has_pods(*names[1:])
    eventually(lambda: not any(pod["metadata"].get("finalizers") for pod in lab.pods().values()))


def test_a_finished_job_is_complete_and_cleaned_up(lab: Lab) -> None:
    lab.create(parameterServers={"replicas": 1, "template": TEMPLATE})
    lab.plan(window(0, 2), servers=[server(0, 1)])
    lab.has_pods("cats-ps-0-1", "cats-worker-0-2")
    lab.bind("cats-ps-0-1")
    lab.plan(window(0, 2, "Closing"), servers=[server(0, 1)], progress={"done": "0-3"})
    eventually(lambda: lab.condition("Complete").get("status") == "True")
    assert lab.status()["completionTime"]
    lab.plan(progress={"done": "0-3"})
    lab.has_pods()
    # From the start, the time could pass before the plan is written.
    lab.ask("PATCH", lab.path("cats"), {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}}, MERGE)
    eventually(lambda: lab.cluster.request("GET", lab.path("cats"))[0] == 404)
    service_is_collected(lab)


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_running_pods_of_finished_job_follow_clean_pod_policy(lab: Lab, policy: str) -> None:
    lab.create(parameterServers={"replicas": 1, "template": TEMPLATE}, runPolicy={"cleanPodPolicy": policy})
    lab.plan(window(0, 2), servers=[server(0, 1)])
    lab.has_pods("cats-ps-0-1", "cats-worker-0-2")
    lab.bind("cats-ps-0-1")
    lab.plan(window(0, 2, "Closing"), servers=[server(0, 1)], progress={"done": "0-3"})
    eventually(lambda: lab.condition("Complete").get("status") == "True")
    lab.plan(progress={"done": "0-3"})
    if policy == "None":
        seen = [event["object"] for event in changes(lab.cluster, lab.core("pods"), 2)] + [lab.pods()["cats-ps-0-1"]]
        assert not [pod for pod in seen if "deletionTimestamp" in pod["metadata"] and "-ps-" in pod["metadata"]["name"]]
    else:
        eventually(lambda: lab.is_stopping_or_gone("cats-ps-0-1"))


def test_a_deleted_job_leaves_nothing(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1), window(1, 2))
    lab.has_pods("cats-worker-0-1", "cats-worker-1-2")
    lab.bind("cats-worker-0-1")
    lab.ask("DELETE", lab.path("cats"))
    lab.has_pods()
    service_is_collected(lab)


def test_a_job_created_again_under_its_name_starts_afresh(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    has_pod(lab, "cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    old = lab.pods()["cats-worker-0-1"]["metadata"]["uid"]
    lab.ask("DELETE", lab.path("cats"))
    again = lab.create()["metadata"]["uid"]
    lab.plan(window(0, 1))

    def replaced() -> bool:
        metadata = lab.pods().get("cats-worker-0-1", {}).get("metadata", {"uid": old})
        return bool(metadata["uid"] != old and metadata["ownerReferences"][0]["uid"] == again)

    eventually(replaced)


def test_orphaned_pods_lose_finalizer_and_are_not_deleted(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    has_pod(lab, "cats-worker-0-1")
    path = lab.core("pods", "cats-worker-0-1")
    orphaning = [{"op": "remove", "path": "/metadata/ownerReferences"}]
    lab.ask("PATCH", path, orphaning, "application/json-patch+json")
    eventually(lambda: not lab.ask("GET", path)["metadata"].get("finalizers"))
    assert "deletionTimestamp" not in lab.ask("GET", path)["metadata"]


def collector_has_observed_pods(lab: Lab) -> None:
    """Wait until the garbage collector has deleted a pod without an owner, so that it knows all earlier pods.

    It deletes, and does not orphan, a pod that it observes after the deletion of the job (kubernetes/kubernetes#26120).
    """
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-4000-8000-000000000000"}
    body = {"metadata": {"name": "stray", "ownerReferences": [owner]}, **TEMPLATE}
    lab.ask("POST", lab.core("pods"), body)
    eventually(lambda: lab.cluster.request("GET", lab.core("pods", "stray"))[0] == 404)


def test_deletion_with_orphan_policy_lets_the_pods_run(lab: Lab) -> None:
    name, pods = "cats-worker-0-1", lab.core("pods")
    with History(str(lab.cluster.kubeconfig), pods) as history:
        lab.create()
        lab.plan(window(0, 1))
        has_pod(lab, name)
        lab.bind(name)
        collector_has_observed_pods(lab)
        with stopped(lab.cluster.pid("kube-controller-manager")):
            lab.ask("DELETE", lab.path("cats"), {"propagationPolicy": "Orphan"})
            lab.create("dogs")
            lab.plan(window(0, 1), name="dogs")
            lab.has_pods("dogs-worker-0-1", job="dogs")  # the operator has seen the deletion as well
        eventually(lambda: not history.of(pods, name)[-1]["metadata"].get("finalizers"))
    versions = history.of(pods, name)
    assert not [pod for pod in versions if "deletionTimestamp" in pod["metadata"]]
    assert not versions[-1]["metadata"].get("ownerReferences")
    assert versions[-1]["status"]["phase"] == "Running"


def test_deleted_namespace_ends_with_its_jobs(cluster: Cluster, namespace: str) -> None:
    lab = Lab(cluster, f"{namespace}-gone")
    cluster.kubectl("create", "namespace", lab.namespace)
    eventually(lambda: cluster.request("GET", lab.core("serviceaccounts", "default"))[0] == 200)
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    cluster.kubectl("delete", "namespace", lab.namespace, "--wait=false")
    has_ended(lab, "cats-worker-0-1")  # Kubernetes deletes the pods before all other objects
    assert "deletionTimestamp" not in lab.job()["metadata"]
    lab.plan(window(0, 2))  # as the planner does when it has counted the pod
    eventually(lambda: cluster.request("GET", f"/api/v1/namespaces/{lab.namespace}")[0] == 404)


def test_job_restored_from_a_backup_starts_from_the_beginning(lab: Lab) -> None:
    """A backup tool restores objects without status, and the job's Service and pods with their labels and no owner."""
    volume = {"volume": {"persistentVolumeClaim": {"claimName": "checkpoints"}}}
    lab.create(chunks=None, workers=2, checkpoint=volume)
    lab.plan(window(0, 1), window(1, 2))
    lab.has_pods("cats-worker-0-1", "cats-worker-1-2")
    job, pod = lab.job(), lab.pods()["cats-worker-0-1"]
    eventually(lambda: lab.status().get("checkpointDirectory") == f"cats-{job['metadata']['uid']}")
    eventually(lambda: lab.cluster.request("GET", lab.core("services", "cats"))[0] == 200)
    service = lab.ask("GET", lab.core("services", "cats"))
    lab.ask("DELETE", lab.path("cats"))
    lab.has_pods()
    service_is_collected(lab)
    kept = {field: pod["metadata"][field] for field in ("name", "labels", "annotations", "finalizers")}
    lab.ask("POST", lab.core("pods"), {"metadata": kept, "spec": pod["spec"]})
    kept = {field: service["metadata"][field] for field in ("name", "labels")}
    lab.ask("POST", lab.core("services"), {"metadata": kept, "spec": service["spec"]})
    lab.ask("POST", lab.path(), {**job, "metadata": {"name": "cats"}})
    uid = lab.job()["metadata"]["uid"]
    assert uid != job["metadata"]["uid"]
    lab.plan(window(0, 1), window(1, 2))
    eventually(lambda: lab.condition("PodsRejected").get("reason") == "NameTaken")
    assert lab.condition("PodsRejected")["message"].startswith("cats-worker-0-1: ")
    lab.ask("DELETE", lab.core("pods", "cats-worker-0-1"))

    def mounts() -> list[str]:
        (container,) = lab.pods().get("cats-worker-0-1", pod)["spec"]["containers"]
        return [one["subPath"] for one in container["volumeMounts"] if one["name"] == "tranche-checkpoint"]

    eventually(lambda: mounts() == [f"cats-{uid}"])
    assert lab.status()["checkpointDirectory"] == f"cats-{uid}"
    eventually(lambda: lab.condition("PodsRejected")["status"] == "False")
    lab.has_pods("cats-worker-0-1", "cats-worker-1-2")


def test_gang_waits_at_a_gate_after_a_refusal(lab: Lab) -> None:
    lab.create(chunks=None, workers=2)
    quota = impose_quota(lab.cluster, "one", {"pods": "1"}, lab.namespace)
    lab.plan(window(0, 1), window(1, 2))
    eventually(lambda: lab.condition("PodsRejected").get("status") == "True")
    (alone,) = lab.pods().values()
    assert "schedulingGates" not in alone["spec"], "nothing had been refused"
    lab.plan()
    lab.has_pods()
    # Until the quota controller has counted the deletion, the quota would refuse both pods.
    eventually(lambda: lab.ask("GET", quota)["status"]["used"]["pods"] == "0")
    lab.plan(window(0, 3), window(1, 4))
    second = ("cats-worker-0-3: ", "cats-worker-1-4: ")
    eventually(lambda: lab.condition("PodsRejected").get("message", "").startswith(second))
    # The API server reads the count of the quota from its own watch; until then, it refuses both.
    (alone,) = eventually(lambda: list(lab.pods().values()))
    assert alone["spec"]["schedulingGates"] == [{"name": "tranche.dev/gang"}]
    lab.ask("DELETE", quota)
    lab.has_pods("cats-worker-0-3", "cats-worker-1-4")
    eventually(lambda: not any(pod["spec"].get("schedulingGates") for pod in lab.pods().values()))
    lab.bind("cats-worker-1-4")


def test_chief_is_created_after_all_other_pods(lab: Lab) -> None:
    """Its success would end the job."""
    lab.create(chunks=None, workers=2, chief={"template": TEMPLATE})
    quota = impose_quota(lab.cluster, "two", {"pods": "2"}, lab.namespace)
    lab.plan(window(0, 1), window(1, 2), chief=server(0, 3))
    eventually(lambda: lab.condition("PodsRejected").get("message", "").startswith("cats-chief-0-3: "))
    lab.has_pods("cats-worker-0-1", "cats-worker-1-2")
    lab.ask("DELETE", quota)
    lab.has_pods("cats-worker-0-1", "cats-worker-1-2", "cats-chief-0-3")


def test_suspended_job_stops_on_closing_window_and_resumes(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    eventually(lambda: lab.status().get("startTime"))
    lab.ask("PATCH", lab.path("cats"), {"spec": {"suspend": True}}, MERGE)
    lab.plan(window(0, 1, "Closing"))
    eventually(lambda: lab.status()["phase"] == "Suspended")
    lab.plan()
    lab.has_pods()
    lab.ask("PATCH", lab.path("cats"), {"spec": {"suspend": False}}, MERGE)
    lab.plan(window(0, 2))
    lab.has_pods("cats-worker-0-2")
    eventually(lambda: lab.condition("Suspended")["status"] == "False")
    eventually(lambda: {"Suspended", "Resumed"} <= set(lab.events()))


def test_a_deadline_fails_the_job(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    # From the start, the deadline could pass before the pod runs.
    lab.ask("PATCH", lab.path("cats"), {"spec": {"runPolicy": {"activeDeadlineSeconds": 2}}}, MERGE)
    eventually(lambda: lab.condition("Failed").get("reason") == "DeadlineExceeded")
    gone = {"status": {"phase": "Failed"}}  # it is released a second after its end
    eventually(lambda: lab.pods().get("cats-worker-0-1", gone)["status"]["phase"] == "Failed")
    lab.plan(progress={"preemptions": 1})
    lab.has_pods()


def test_a_window_at_an_unlimited_site_asks_for_its_labels(lab: Lab) -> None:
    site = {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "Site",
        "metadata": {"name": lab.namespace},
        "spec": {"tier": "Cloud", "unlimited": True, "nodeSelector": {"pool": "burst"}},
    }
    lab.create()
    lab.plan(window(0, 1, site=lab.namespace, node=None, fallbacks=[]))
    eventually(lambda: "SiteMissing" in lab.events())
    assert not lab.pods()
    lab.ask("POST", "/apis/tranche.dev/v1alpha1/sites", site)
    lab.plan(window(0, 1, site=lab.namespace, node=None, fallbacks=[]))
    lab.has_pods("cats-worker-0-1")
    affinity = lab.pods()["cats-worker-0-1"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "pool", "operator": "In", "values": ["burst"]}]


def test_the_operator_had_all_the_rights_it_needed(operator: Process) -> None:
    assert 'tranche-operator" cannot' not in operator.log_text()
    assert "Traceback" not in operator.log_text()
