"""Refusals of the API server become a condition, an event and a pause; never a crash."""

import copy
from typing import Any

import pytest

from support.operator_lab import TEMPLATE, Lab, Process, window
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")


def set_quota(lab: Lab, pods: int) -> None:
    path = lab.core("resourcequotas", "pods") + "?fieldManager=test&force=true"
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "pods"},
        "spec": {"hard": {"pods": str(pods)}},
    }
    lab.ask("PATCH", path, body, "application/apply-patch+yaml")

    def is_counted() -> bool:
        status = lab.ask("GET", lab.core("resourcequotas", "pods")).get("status", {})
        return bool(status.get("hard", {}).get("pods") == str(pods))

    eventually(is_counted)


def test_exhausted_quota_sets_condition_and_creation_is_retried(lab: Lab, operator: Process) -> None:
    lab.create()
    eventually(lambda: lab.condition("InvalidTemplate").get("status") == "False")
    set_quota(lab, 1)
    lab.plan(window(0, 1), window(1, 2), window(2, 3))
    eventually(lambda: lab.condition("PodsRejected").get("status") == "True")
    rejected = lab.condition("PodsRejected")
    assert rejected["reason"] == "QuotaExceeded"
    assert "exceeded quota: pods" in rejected["message"]
    assert lab.events()["PodsRejected"]["type"] == "Warning"
    assert len(lab.pods()) == 1
    set_quota(lab, 3)
    eventually(lambda: len(lab.pods()) == 3)
    eventually(lambda: lab.condition("PodsRejected")["status"] == "False")
    assert operator.process.poll() is None


def test_the_planner_ends_a_rejection_by_closing_the_window(lab: Lab) -> None:
    lab.create()
    set_quota(lab, 0)
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


def test_foreign_pod_with_same_name_sets_name_taken_condition(lab: Lab) -> None:
    taken = {"metadata": {"name": "cats-worker-0-1"}, "spec": TEMPLATE["spec"]}
    lab.ask("POST", lab.core("pods"), taken)
    lab.create()
    lab.plan(window(0, 1))
    eventually(lambda: lab.condition("PodsRejected").get("reason") == "NameTaken")
    lab.ask("DELETE", lab.core("pods", "cats-worker-0-1"))
    lab.has_pods("cats-worker-0-1")
