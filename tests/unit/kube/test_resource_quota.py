"""ResourceQuotas as the planner reads them."""

from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import QuotaObject
from tranche.kube.convert.pod_shape import template_shape
from tranche.kube.convert.resource_quota import quota_of, used_of
from tranche.model import Quota, QuotaLimit


def observed(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> QuotaObject:
    metadata = {"name": "q", "namespace": "team-a"}
    status = {"hard": hard, "used": used or {}}
    return msgspec.convert({"metadata": metadata, "spec": {"hard": hard, **spec}, "status": status}, QuotaObject)


def expression(name: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"scopeName": name, "operator": operator, "values": list(values)}]}


def test_quota_reads_request_and_pod_limits_and_skips_others() -> None:
    hard = {
        "requests.nvidia.com/gpu": "8",
        "cpu": "1500m",
        "requests.memory": "2Gi",
        "count/pods": "7",
        "limits.cpu": "3",
        "services": "5",
    }
    whole = observed(hard, {"cpu": "1", "requests.nvidia.com/gpu": "3"})
    quota = quota_of(whole)
    assert quota == Quota(
        "team-a",
        "q",
        (
            QuotaLimit("count/pods", "pods", 7),
            QuotaLimit("cpu", "cpu", 1500),
            QuotaLimit("requests.memory", "memory", 2 * 2**30),
            QuotaLimit("requests.nvidia.com/gpu", "gpus", 8),
        ),
    )
    assert used_of(whole, quota) == {
        "count/pods": 0,
        "cpu": 1000,
        "requests.memory": 0,
        "requests.nvidia.com/gpu": 3,
    }


def test_the_gpu_resource_is_a_setting() -> None:
    amd = quota_of(observed({"requests.amd.com/gpu": "2"}), ("amd.com/gpu",))
    assert amd is not None
    assert amd.limits[0].measure == "gpus"
    assert quota_of(observed({"requests.amd.com/gpu": "2"})) is None
    cores = quota_of(observed({"requests.cpu": "2"}), ("cpu",))
    assert cores is not None
    assert cores.limits[0].measure == "cpu"


@pytest.mark.parametrize(
    ("spec", "priorities"),
    [
        ({"scopeSelector": expression("PriorityClass", "In", "tranche-high", "system")}, frozenset({-8})),
        ({"scopeSelector": expression("PriorityClass", "NotIn", "tranche-high")}, frozenset({-9, -10})),
        ({"scopeSelector": expression("PriorityClass", "Exists")}, None),
        ({"scopes": ["NotTerminating"]}, None),
    ],
)
def test_scopes_say_which_tiers_count(spec: dict[str, Any], priorities: frozenset[int] | None) -> None:
    quota = quota_of(observed({"pods": "1"}, **spec))
    assert quota is not None
    assert quota.priorities == priorities


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["Terminating", "NotTerminating"]},
        {"scopes": ["BestEffort", "NotBestEffort"]},
        {"scopes": ["CrossNamespacePodAffinity"]},
        {"scopeSelector": expression("PriorityClass", "In", "system")},
        {"scopeSelector": expression("PriorityClass", "DoesNotExist")},
    ],
)
def test_a_quota_whose_scope_covers_none_of_our_pods_is_left_out(spec: dict[str, Any]) -> None:
    assert quota_of(observed({"pods": "1"}, **spec)) is None


def test_quota_counts_pod_without_cpu_and_memory_as_best_effort() -> None:
    """As the QoS class, which ignores the overhead of a RuntimeClass."""
    quota = quota_of(observed({"pods": "1"}, scopes=["NotBestEffort"]))
    assert quota is not None
    asks = {"cpu": "250m", "memory": "1Gi"}
    for overhead in ({}, asks):
        plain = {"overhead": overhead, "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}
        shape = template_shape({"spec": plain})
        assert not quota.covers(-9, best_effort=shape.is_best_effort(shape.requests), has_deadline=False)
        for name in asks:
            shape = template_shape(
                {"spec": {"overhead": overhead, "containers": [{"resources": {"requests": {name: "1"}}}]}}
            )
            assert quota.covers(-9, best_effort=shape.is_best_effort(shape.requests), has_deadline=False)


@pytest.mark.parametrize("scope", ["Terminating", "NotTerminating"])
def test_scope_of_deadlines_selects_pods_with_or_without_one(scope: str) -> None:
    quota = quota_of(observed({"pods": "1"}, scopes=[scope]))
    assert quota is not None
    assert quota.covers(-9, best_effort=True, has_deadline=True) is (scope == "Terminating")
    assert quota.covers(-9, best_effort=True, has_deadline=False) is (scope == "NotTerminating")


def test_quota_with_unreadable_quantity_raises() -> None:
    with pytest.raises(ValueError, match="'many' is not a quantity"):
        quota_of(observed({"pods": "many"}))
