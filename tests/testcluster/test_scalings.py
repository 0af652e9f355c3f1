"""Decisions of an autoscaled site to add and remove nodes, without a cluster."""

from typing import Any

import pytest

from tranche_testcluster.scaling import (
    AUTOSCALED,
    Autoscaler,
    Decisions,
    Scaling,
    asks_for,
    parse_quantity,
    requests_of,
)
from tranche_testcluster.site import ZONE

UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]


def pod(name: str, *, node: str = "", gpus: int = 1, zone: str = "cloud", conditions: Any = UNSCHEDULABLE) -> Any:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": resources}]}
    if zone:
        spec["nodeSelector"] = {ZONE: zone}
    if node:
        spec["nodeName"] = node
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [] if node else conditions},
    }


def node(name: str, *, gpus: int = 2, cordoned: bool = False) -> Any:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    metadata = {"name": name, "labels": {ZONE: "cloud", AUTOSCALED: "cloud"}}
    return {"metadata": metadata, "spec": {"unschedulable": cordoned}, "status": {"allocatable": allocatable}}


def scaler(**settings: Any) -> Autoscaler:
    shape = {"gpus": 2, "cpu": "4", "memory": "8Gi", "start_seconds": 5.0, "idle_seconds": 3.0}
    return Autoscaler(Scaling("cloud", **{**shape, **settings}))


def affine(*terms: Any) -> Any:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"spec": {"affinity": {"nodeAffinity": required}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def test_unschedulable_pod_gets_a_node_after_provisioning_time() -> None:
    autoscaler = scaler()
    first = autoscaler.decide([pod("a")], [], 100.0)
    assert first.create == []
    assert first.messages == ["node cloud-0 is ordered for default/a and comes in 5 s (1 of 100)"]
    assert autoscaler.next_due() == 105.0
    assert autoscaler.decide([pod("a")], [], 104.9) == Decisions()
    assert autoscaler.decide([pod("a")], [], 105.0).create == ["cloud-0"]


def test_pods_share_the_node_that_was_ordered_first_fit() -> None:
    autoscaler = scaler()
    found = autoscaler.decide([pod("a"), pod("b"), pod("c")], [], 0.0)
    assert [message.split(" for ")[1].split(" and ")[0] for message in found.messages] == ["default/a", "default/c"]
    assert autoscaler.decide([pod("a"), pod("b"), pod("c")], [], 5.0).create == ["cloud-0", "cloud-1"]


def test_free_room_on_a_node_is_used_before_another_is_ordered() -> None:
    autoscaler = scaler()
    pods = [pod("running", node="cloud-0"), pod("a")]
    assert autoscaler.decide(pods, [node("cloud-0")], 0.0).messages == []
    assert len(autoscaler.decide([*pods, pod("b")], [node("cloud-0")], 1.0).messages) == 1


@pytest.mark.parametrize(
    "other",
    [pod("x", zone=""), pod("x", zone="edge"), pod("x", conditions=GATED), pod("x", conditions=[])],
    ids=["no-site", "other-site", "gated", "not-looked-at"],
)
def test_pods_that_do_not_wait_for_the_site_get_no_node(other: Any) -> None:
    autoscaler = scaler()
    assert autoscaler.decide([other], [], 0.0) == Decisions()
    assert autoscaler.next_due() == float("inf")


def test_no_more_nodes_than_the_limit_are_ordered() -> None:
    autoscaler = scaler(most_nodes=1)
    pods = [pod("a", gpus=2), pod("b")]
    found = autoscaler.decide(pods, [], 0.0)
    assert found.messages[1:] == ["no node for default/b: there are as many nodes as allowed"]
    assert autoscaler.decide(pods, [], 1.0) == Decisions(), "it is said once"
    assert autoscaler.decide(pods, [], 5.0).create == ["cloud-0"]
    assert autoscaler.decide([pod("a", gpus=2, node="cloud-0"), pod("b")], [node("cloud-0")], 6.0) == Decisions()


def test_pod_larger_than_a_node_gets_none_and_a_message() -> None:
    assert scaler().decide([pod("a", gpus=3)], [], 0.0).messages == ["no node for default/a: it fits no such node"]


def test_an_idle_node_is_cordoned_and_then_deleted() -> None:
    autoscaler = scaler()
    assert autoscaler.decide([], [node("cloud-4")], 10.0) == Decisions()
    assert autoscaler.decide([], [node("cloud-4")], 12.9) == Decisions()
    assert autoscaler.decide([], [node("cloud-4")], 13.0).cordon == ["cloud-4"]
    assert autoscaler.decide([], [node("cloud-4", cordoned=True)], 13.2).delete == ["cloud-4"]


def test_a_pod_that_comes_before_the_deletion_saves_the_node() -> None:
    autoscaler = scaler(idle_seconds=0.0)
    assert autoscaler.decide([], [node("cloud-0")], 0.0).cordon == ["cloud-0"]
    late = autoscaler.decide([pod("late", node="cloud-0")], [node("cloud-0", cordoned=True)], 0.2)
    assert (late.uncordon, late.delete) == (["cloud-0"], [])


def test_use_of_a_node_restarts_its_idle_time() -> None:
    autoscaler = scaler()
    autoscaler.decide([], [node("cloud-0")], 0.0)
    autoscaler.decide([pod("a", node="cloud-0")], [node("cloud-0")], 2.0)
    autoscaler.decide([], [node("cloud-0")], 4.0)
    assert autoscaler.decide([], [node("cloud-0")], 6.9) == Decisions()
    assert autoscaler.decide([], [node("cloud-0")], 7.0).cordon == ["cloud-0"]


def test_a_node_stays_while_the_pod_it_came_for_is_not_bound() -> None:
    autoscaler = scaler(idle_seconds=0.0)
    assert autoscaler.decide([pod("slow")], [node("cloud-0")], 0.0) == Decisions()
    assert autoscaler.decide([pod("slow")], [node("cloud-0")], 60.0) == Decisions()


def test_nodes_of_others_are_left_alone_and_count_for_nothing() -> None:
    foreign = node("cloud-0")
    del foreign["metadata"]["labels"][AUTOSCALED]
    autoscaler = scaler(idle_seconds=0.0)
    assert autoscaler.decide([], [foreign], 0.0) == Decisions()


def test_names_go_on_after_those_of_an_earlier_autoscaler() -> None:
    autoscaler = scaler()
    found = autoscaler.decide([pod("a", gpus=2), pod("b", node="cloud-7")], [node("cloud-7")], 0.0)
    assert found.messages[0].startswith("node cloud-8 is ordered")


AVOIDING = {
    "matchExpressions": [expression(ZONE, "In", "cloud")],
    "matchFields": [expression("metadata.name", "NotIn", "cloud-0")],
}


def test_pod_that_avoids_a_node_gets_another_one() -> None:
    avoiding = {**pod("a"), "spec": {**pod("a")["spec"], **affine(AVOIDING)["spec"]}}
    (message,) = scaler().decide([avoiding], [node("cloud-0")], 0.0).messages
    assert message.startswith("node cloud-1 is ordered for default/a")
    assert scaler().decide([pod("a")], [node("cloud-0")], 0.0).messages == []


@pytest.mark.parametrize(
    ("terms", "asks"),
    [
        ([{"matchExpressions": [expression(ZONE, "In", "edge", "cloud")]}], True),
        ([{"matchExpressions": [expression(ZONE, "In", "edge")]}], False),
        ([{"matchExpressions": [expression(ZONE, "Exists")]}], True),
        ([{"matchExpressions": [expression(ZONE, "NotIn", "cloud")]}], False),
        ([{"matchExpressions": [expression(ZONE, "In", "cloud"), expression("ssd", "Exists")]}], False),
        ([{"matchExpressions": [expression(ZONE, "In", "cloud"), expression("ssd", "DoesNotExist")]}], True),
        ([{"matchExpressions": [expression(ZONE, "Gt", "1")]}], False),
        ([{"matchFields": [expression("metadata.name", "In", "cloud-0")]}], False),
        ([AVOIDING | {"matchFields": [expression("metadata.name", "In", "cloud-0")]}], False),
        ([AVOIDING], True),
        ([{"matchExpressions": [expression("ssd", "DoesNotExist")]}], False),
    ],
)
def test_required_affinity_says_whether_a_new_node_would_do(terms: Any, asks: bool) -> None:
    assert asks_for(affine(*terms), {ZONE: "cloud", AUTOSCALED: "cloud"}) is asks


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("2", 2.0), ("1Gi", 2.0**30), ("1.5k", 1500.0)])
def test_quantities_are_read_as_kubernetes_means_them(text: str, value: float) -> None:
    assert parse_quantity(text) == value


def test_requests_of_containers_add_up() -> None:
    one = pod("a")
    one["spec"]["containers"].append({"name": "sidecar", "resources": {"requests": {"cpu": "1"}}})
    assert requests_of(one) == {"pods": 1.0, "cpu": 1.5, "memory": 2.0**30, "nvidia.com/gpu": 1.0}


@pytest.mark.parametrize(
    "settings",
    [{"start_seconds": -1.0}, {"idle_seconds": float("nan")}, {"most_nodes": 0}, {"gpus": -1}, {"cpu": "many"}],
)
def test_settings_that_make_no_sense_are_refused(settings: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|no quantity"):
        scaler(**settings)
