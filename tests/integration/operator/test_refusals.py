"""Refusals of the API server become a condition, an event and a pause; never a crash."""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.limit_ranges import impose_defaults
from support.operator_lab import TEMPLATE, Lab, Process, window
from support.quotas import impose_quota
from support.waiting import eventually

ADMISSION = "admissionregistration.k8s.io/v1"
pytestmark = pytest.mark.usefixtures("operator")


def test_exhausted_quota_sets_condition_and_creation_is_retried(lab: Lab, operator: Process) -> None:
    lab.create()
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "False")
    quota = impose_quota(lab.cluster, "pods", {"pods": "1"}, lab.namespace)
    lab.plan(window(0, 1), window(1, 2), window(2, 3))
    eventually(lambda: lab.condition("PodsRejected").get("status") == "True")
    rejected = lab.condition("PodsRejected")
    assert rejected["reason"] == "QuotaExceeded"
    assert "exceeded quota: pods" in rejected["message"]
    eventually(lambda: "PodsRejected" in lab.events())  # events follow the status
    assert lab.events()["PodsRejected"]["type"] == "Warning"
    assert len(lab.pods()) == 1
    lab.ask("PATCH", quota, {"spec": {"hard": {"pods": "3"}}}, "application/merge-patch+json")
    eventually(lambda: len(lab.pods()) == 3)
    eventually(lambda: lab.condition("PodsRejected")["status"] == "False")
    assert operator.process.poll() is None


@pytest.mark.parametrize("obstacle", ["quota", "name"])
def test_gang_without_a_service_is_a_refusal(lab: Lab, obstacle: str) -> None:
    """Its workers would fail, because they cannot resolve each other's names."""
    if obstacle == "quota":
        path = impose_quota(lab.cluster, "cats", {"services": "0"}, lab.namespace)
    else:
        path = lab.core("services", "cats")
        lab.ask("POST", lab.core("services"), {"metadata": {"name": "cats"}, "spec": {"ports": [{"port": 80}]}})
    lab.create(chunks=None, workers=2)
    lab.plan(window(0, 1), window(1, 2))
    eventually(lambda: lab.condition("PodsRejected").get("status") == "True")
    rejected = lab.condition("PodsRejected")
    assert rejected["reason"] == "ServiceRejected"
    assert {"quota": "exceeded quota", "name": "delete that Service"}[obstacle] in rejected["message"]
    lab.plan()
    lab.has_pods()
    eventually(lambda: lab.condition("PodsRejected")["status"] == "False")
    lab.plan(window(0, 3), window(1, 4))
    eventually(lambda: lab.condition("PodsRejected")["status"] == "True")
    assert not lab.pods(), "the Service comes first now"
    lab.ask("DELETE", path)
    lab.plan()
    eventually(lambda: lab.condition("PodsRejected")["status"] == "False")
    lab.plan(window(0, 5), window(1, 6))
    lab.has_pods("cats-worker-0-5", "cats-worker-1-6")
    assert lab.ask("GET", lab.core("services", "cats"))["metadata"]["ownerReferences"]
    eventually(lambda: not any(pod["spec"].get("schedulingGates") for pod in lab.pods().values()))


def test_the_planner_ends_a_rejection_by_closing_the_window(lab: Lab) -> None:
    lab.create()
    impose_quota(lab.cluster, "pods", {"pods": "0"}, lab.namespace)
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("PodsRejected").get("status") == "True")
    lab.plan()
    eventually(lambda: lab.condition("PodsRejected")["status"] == "False")


def test_an_invalid_template_is_found_before_anything_is_planned(lab: Lab) -> None:
    template: dict[str, Any] = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "nowhere", "mountPath": "/data"}]
    lab.create(template=template)
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "True")
    condition = lab.condition("InvalidTemplate")
    assert condition["reason"] == "TemplateRejected"
    assert 'volumeMounts[0].name: Not found: "nowhere"' in condition["message"]
    eventually(lambda: "TemplateRejected" in lab.events())
    lab.plan(window(0, 1))
    repaired = {"spec": {"workers": {"template": {"spec": {"containers": TEMPLATE["spec"]["containers"]}}}}}
    lab.ask("PATCH", lab.path("cats"), repaired, "application/merge-patch+json")
    eventually(lambda: lab.condition("InvalidTemplate")["status"] == "False")
    assert lab.condition("InvalidTemplate")["observedGeneration"] == 2
    assert not lab.pods()


def test_pods_that_a_limit_range_makes_invalid_need_no_edit(lab: Lab, operator: Process) -> None:
    """Its default limit is below the request of the template; the operator's settings are those of a user."""
    path = impose_defaults(lab.cluster, "low", {"cpu": "1"}, lab.namespace)
    template: dict[str, Any] = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    lab.create(template=template)
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "True")
    assert "must be less than or equal to cpu limit of 1" in lab.condition("InvalidTemplate")["message"]
    lab.ask("DELETE", path)
    eventually(lambda: lab.condition("InvalidTemplate")["status"] == "False")
    assert lab.condition("InvalidTemplate")["observedGeneration"] == 1
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    assert operator.process.poll() is None


def test_missing_service_account_is_named_and_waited_for(lab: Lab) -> None:
    template: dict[str, Any] = copy.deepcopy(TEMPLATE)
    template["spec"]["serviceAccountName"] = "trainer"
    lab.create(template=template)
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "Unknown")
    assert 'serviceaccount "trainer" not found' in lab.condition("InvalidTemplate")["message"]
    assert lab.status()["phase"] == "Waiting"
    lab.ask("POST", lab.core("serviceaccounts"), {"metadata": {"name": "trainer"}})
    lab.has_pods("cats-worker-0-1")
    eventually(lambda: lab.condition("InvalidTemplate")["status"] == "False")


def test_namesake_of_a_stopping_job_has_its_own_dry_run(lab: Lab) -> None:
    """Both jobs have the generation 1, and the pod that stops keeps the operator from forgetting the first one."""
    lab.create()
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "False")
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    held = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/keep"}]
    pod = lab.core("pods", "cats-worker-0-1")
    lab.ask("PATCH", pod, held, "application/json-patch+json")
    lab.ask("DELETE", lab.path("cats"))
    template: dict[str, Any] = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "nowhere", "mountPath": "/data"}]
    lab.create(template=template)
    eventually(lambda: lab.condition("InvalidTemplate") != {})
    assert lab.condition("InvalidTemplate")["status"] == "True"
    lab.ask("PATCH", pod, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


def test_a_disruption_budget_delays_an_eviction(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    selector = {"matchLabels": {"tranche.dev/job": "cats"}}
    budgets = f"/apis/policy/v1/namespaces/{lab.namespace}/poddisruptionbudgets"
    lab.ask("POST", budgets, {"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": selector}})
    eventually(lambda: lab.ask("GET", f"{budgets}/all").get("status", {}).get("currentHealthy") == 1)
    lab.plan(window(0, 1, "Closing"))
    eventually(lambda: "EvictionRefused" in lab.events())
    assert "deletionTimestamp" not in lab.pods()["cats-worker-0-1"]["metadata"]
    lab.ask("DELETE", f"{budgets}/all")
    eventually(lambda: "deletionTimestamp" in lab.pods()["cats-worker-0-1"]["metadata"])


def test_budget_that_is_never_computed_refuses(lab: Lab) -> None:
    """The disruption controller computes a percentage from the scale subresource, which TrainingJobs do not have."""
    budgets = f"/apis/policy/v1/namespaces/{lab.namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"tranche.dev/job": "cats"}}
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    lab.ask("POST", budgets, {"metadata": {"name": "all"}, "spec": {"minAvailable": "100%", "selector": selector}})
    # The operator deletes the pod if its own watch has not shown the budget yet; the controller has one, too.
    eventually(lambda: lab.ask("GET", f"{budgets}/all").get("status", {}).get("conditions"))
    lab.plan(window(0, 1, "Closing", preemptedBy="lab/dogs"))
    told = eventually(lambda: lab.condition("EvictionsRefused"))
    assert "The disruption budget all is still being processed by the server; if it has a percentage" in told["message"]
    eventually(lambda: "EvictionRefused" in lab.events())


def test_eviction_with_unrelated_budget_uses_eviction_api(lab: Lab) -> None:
    budgets = f"/apis/policy/v1/namespaces/{lab.namespace}/poddisruptionbudgets"
    others = {"matchLabels": {"app": "shop"}}
    lab.ask("POST", budgets, {"metadata": {"name": "shop"}, "spec": {"minAvailable": 1, "selector": others}})
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    lab.plan(window(0, 1, "Closing"))
    stopped = eventually(lambda: lab.pods()["cats-worker-0-1"]["metadata"].get("deletionTimestamp") and lab.pods())
    conditions = stopped["cats-worker-0-1"]["status"]["conditions"]
    (disrupted,) = [condition for condition in conditions if condition["type"] == "DisruptionTarget"]
    assert disrupted["reason"] == "EvictionByEvictionAPI"


def protect_twice(lab: Lab) -> None:
    """Create two budgets that select the pods of the job; the Eviction API does not support that."""
    budgets = f"/apis/policy/v1/namespaces/{lab.namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"tranche.dev/job": "cats"}}
    for name in ("one", "two"):
        lab.ask("POST", budgets, {"metadata": {"name": name}, "spec": {"minAvailable": 0, "selector": selector}})
        eventually(lambda name=name: lab.ask("GET", f"{budgets}/{name}").get("status", {}).get("currentHealthy"))  # type: ignore[misc]


def test_two_budgets_on_a_victim_are_a_condition(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    protect_twice(lab)
    lab.plan(window(0, 1, "Closing", preemptedBy="lab/dogs"))
    told = eventually(lambda: lab.condition("EvictionsRefused"))
    assert told["reason"] == "SeveralBudgets"
    assert "more than one PodDisruptionBudget" in told["message"]
    assert "deletionTimestamp" not in lab.pods()["cats-worker-0-1"]["metadata"]
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("EvictionsRefused")["status"] == "False")
    assert "deletionTimestamp" not in lab.pods()["cats-worker-0-1"]["metadata"]


def test_two_budgets_do_not_keep_a_suspended_job_running(lab: Lab) -> None:
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    lab.bind("cats-worker-0-1")
    protect_twice(lab)
    lab.plan(window(0, 1, "Closing"))
    eventually(lambda: "deletionTimestamp" in lab.pods()["cats-worker-0-1"]["metadata"])
    eventually(lambda: "BudgetsBypassed" in lab.events())


def test_foreign_pod_with_same_name_sets_name_taken_condition(lab: Lab) -> None:
    taken = {"metadata": {"name": "cats-worker-0-1"}, "spec": TEMPLATE["spec"]}
    lab.ask("POST", lab.core("pods"), taken)
    lab.create()
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("PodsRejected").get("reason") == "NameTaken")
    lab.ask("DELETE", lab.core("pods", "cats-worker-0-1"))
    lab.has_pods("cats-worker-0-1")


def test_forged_owner_without_label_sets_name_taken_condition(lab: Lab) -> None:
    lab.create()
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "cats", "controller": True}
    references = [{**owner, "uid": lab.job("cats")["metadata"]["uid"]}]
    taken = {"metadata": {"name": "cats-worker-0-1", "ownerReferences": references}, "spec": TEMPLATE["spec"]}
    lab.ask("POST", lab.core("pods"), taken)
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("PodsRejected").get("reason") == "NameTaken")
    lab.ask("DELETE", lab.core("pods", "cats-worker-0-1"))
    lab.has_pods("cats-worker-0-1")


@dataclass
class DenyingPolicy:
    """A ValidatingAdmissionPolicy that denies the creation of pods in the namespace of a lab, until it is lifted."""

    lab: Lab

    def __post_init__(self) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "not today"}],
        }
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.lab.namespace}}}
        bound = {"policyName": self.lab.namespace, "validationActions": ["Deny"], "matchResources": here}
        for kind, plural, body in (
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", spec),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", bound),
        ):
            whole = {
                "apiVersion": ADMISSION,
                "kind": kind,
                "metadata": {"name": self.lab.namespace},
                "spec": body,
            }
            self.lab.ask("POST", f"/apis/{ADMISSION}/{plural}", whole)

    def lift(self) -> None:
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            self.lab.cluster.request("DELETE", f"/apis/{ADMISSION}/{plural}/{self.lab.namespace}")


@pytest.fixture
def policy(lab: Lab) -> Iterator[DenyingPolicy]:
    """A policy that is in force: the API server does not enforce a new one at once."""
    made = DenyingPolicy(lab)

    def is_denied() -> bool:
        lab.create(name="probe")
        eventually(lambda: lab.condition("InvalidTemplate", "probe"))
        status = lab.condition("InvalidTemplate", "probe")["status"]
        lab.ask("DELETE", lab.path("probe"))
        return bool(status == "Unknown")

    eventually(is_denied)
    yield made
    made.lift()


def test_denial_by_a_policy_is_no_invalid_template(lab: Lab, policy: DenyingPolicy) -> None:
    lab.create()
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "Unknown")
    assert "not today" in lab.condition("InvalidTemplate")["message"]
    eventually(lambda: "PodsNotAdmitted" in lab.events())
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("PodsRejected").get("status") == "True")
    policy.lift()
    began = time.monotonic()
    eventually(lambda: lab.pods())
    lab.bind("cats-worker-0-1")
    eventually(lambda: lab.status()["phase"] == "Running" and lab.condition("InvalidTemplate")["status"] == "False")
    assert time.monotonic() - began < 150.0


def test_admission_is_reported_with_what_it_adds(lab: Lab) -> None:
    impose_defaults(lab.cluster, "small", {"cpu": "250m"}, lab.namespace)
    lab.create()
    eventually(lambda: lab.job("cats").get("status", {}).get("admitted"))
    admitted = lab.job("cats")["status"]["admitted"]
    assert admitted["generation"] == 1
    assert [pod["requests"]["cpu"] for pod in admitted["pods"]] == ["250m"]


def test_limit_range_from_after_the_dry_run_is_reported(lab: Lab) -> None:
    lab.create()
    eventually(lambda: lab.status().get("admitted"))
    assert "cpu" not in lab.status()["admitted"]["pods"][0].get("requests", {})
    limit = {"type": "Container", "defaultRequest": {"cpu": "250m"}}
    lab.ask("POST", lab.core("limitranges"), {"metadata": {"name": "small"}, "spec": {"limits": [limit]}})
    attempts = iter(range(1, 100))

    def is_reported() -> bool:
        """The API server applies a new LimitRange only when it has noticed it."""
        lab.plan(window(0, next(attempts)))
        eventually(lambda: any("deletionTimestamp" not in pod["metadata"] for pod in lab.pods().values()))
        return bool(lab.status()["admitted"]["pods"][0]["requests"].get("cpu") == "250m")

    eventually(is_reported)
