from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.extender_objects import Stores, stranger, window, worker
from tranche.extender.verbs import filter_nodes, preempt, prioritize
from tranche.extender.wire_format import FilterResult, MetaPod, MetaVictims
from tranche.kube.api.core_types import Metadata, NodeObject, Pod, PodSpec

LEAVING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
NODES = ["n1", "n2", "n3"]
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NOW = 1_800_000_000.0


def scores(pod: Pod, stores: Stores, names: list[str]) -> dict[str, int]:
    return {entry.host: entry.score for entry in prioritize(pod, names, stores.view)}


class TestPlanned:
    def test_the_planned_node_alone_is_passed(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n2", "n1"))
        result = filter_nodes(worker("cats", 0, 1), NODES, stores.view)
        assert result == FilterResult(["n2"], {"n1": "planned for n2", "n3": "planned for n2"})

    def test_a_planned_parameter_server_goes_to_its_node(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n1"), servers=[window(0, 1, "n3")])
        assert filter_nodes(worker("cats", 0, 1, role="ps"), NODES, stores.view).node_names == ["n3"]

    def test_a_window_without_a_node_may_go_anywhere(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, None))
        assert filter_nodes(worker("cats", 0, 1), NODES, stores.view) == FilterResult(NODES)

    def test_a_pod_newer_than_the_plan_that_was_seen_is_let_through(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", stamp=(3, 7))
        for newer in ("3.8", "4.1"):
            assert filter_nodes(worker("cats", 0, 1, plan=newer), NODES, stores.view) == FilterResult(NODES)

    def test_a_pod_of_a_job_that_has_not_been_seen_is_let_through(self) -> None:
        stores = Stores(NODES)
        assert filter_nodes(worker("cats", 0, 1), NODES, stores.view) == FilterResult(NODES)
        stores.add_job("cats", planned=False)
        assert filter_nodes(worker("cats", 0, 1), NODES, stores.view) == FilterResult(NODES)

    @pytest.mark.parametrize("stamp", ["3.7", "3.6", "2.9", "", "garbage", "3", "9.9.9"])
    def test_filter_rejects_pod_whose_window_newer_plan_lacks(self, stamp: str) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 2, "n1"), window(1, 1, "n1"), stamp=(3, 7))
        result = filter_nodes(worker("cats", 0, 1, plan=stamp), NODES, stores.view)
        assert result.node_names == []
        assert result.failed_and_unresolvable_nodes["n1"] == "window 0 (attempt 1) of ns/cats is closed in plan 3.7"

    def test_a_closing_window_rejects_its_pod(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n1", state="Closing"))
        result = filter_nodes(worker("cats", 0, 1), NODES, stores.view)
        assert list(result.failed_and_unresolvable_nodes) == NODES


class TestFallbacks:
    def test_filter_returns_fallback_if_planned_node_is_not_offered(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n1", "n2"))
        result = filter_nodes(worker("cats", 0, 1), ["n2", "n3"], stores.view)
        assert result.node_names == ["n2"]
        assert result.failed_and_unresolvable_nodes == {
            "n3": "planned for n1, which is not available now; this node is not a fallback"
        }

    def test_a_fallback_that_another_plan_has_reserved_is_not(self) -> None:
        stores = Stores(NODES, gpus=1)
        stores.add_job("cats", window(0, 1, "n1", "n2"))
        stores.add_job("dogs", window(0, 1, "n2"))
        result = filter_nodes(worker("cats", 0, 1), ["n2"], stores.view)
        assert result == FilterResult([], {"n2": "n2 is reserved for ns/dogs-worker-0-1"})
        stores.add_pod(worker("dogs", 0, 1, "n3"))
        assert filter_nodes(worker("cats", 0, 1), ["n2"], stores.view).node_names == ["n2"]

    def test_filter_with_overlapping_fallbacks_blocks_neither_job(self) -> None:
        stores = Stores(["n1", "n2"])
        stores.add_job("small", window(0, 1, "n2", "n1"), gpus=1)
        stores.add_job("large", window(0, 1, "n1"), gpus=8)
        small, large = worker("small", 0, 1), worker("large", 0, 1, gpus=8)
        assert filter_nodes(small, ["n1"], stores.view).node_names == []
        assert filter_nodes(small, ["n1", "n2"], stores.view).node_names == ["n2"]
        assert filter_nodes(large, ["n1"], stores.view).node_names == ["n1"]

    @pytest.mark.parametrize("leaving", [True, False])
    def test_filter_waits_for_own_victim_instead_of_fallback(self, leaving: bool) -> None:
        stores = Stores(NODES, gpus=1)
        stores.add_pod(worker("dogs", 0, 1, "n1", **(LEAVING if leaving else {})))
        stores.add_job("dogs", window(0, 1, "n1", state="Open" if leaving else "Closing"))
        stores.add_job("cats", window(0, 1, "n1", "n2"))
        result = filter_nodes(worker("cats", 0, 1), ["n2", "n3"], stores.view)
        assert result == FilterResult(
            [], dict.fromkeys(["n2", "n3"], "waiting for ns/dogs-worker-0-1 to terminate on n1")
        )

    @pytest.mark.parametrize(
        "node",
        [
            None,
            {"spec": {"unschedulable": True}, "status": READY},
            {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}, "status": READY},
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
            {"metadata": {"labels": {"gpu": "other"}}, "status": READY},
        ],
        ids=["removed", "cordoned", "tainted", "not ready", "other labels"],
    )
    def test_fallback_is_used_if_planned_node_takes_no_pod(self, node: dict[str, Any] | None) -> None:
        stores = Stores(NODES, gpus=1)
        stores.add_pod(worker("dogs", 0, 1, "n1", **LEAVING))
        stores.add_job("cats", window(0, 1, "n1", "n2"))
        pod = worker("cats", 0, 1)
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector={"gpu": "a100"}))
        stores.add_node("n1", 1, gpu="a100")
        assert filter_nodes(pod, ["n2"], stores.view).node_names == [], "it waits for the room"
        stores.nodes.put("n1", msgspec.convert(node, NodeObject) if node is not None else None)
        assert filter_nodes(pod, ["n2"], stores.view).node_names == ["n2"]

    def test_a_fallback_that_is_not_known_is_not_taken(self) -> None:
        stores = Stores()
        stores.add_job("cats", window(0, 1, "n1", "n2"))
        assert filter_nodes(worker("cats", 0, 1), ["n2"], stores.view).node_names == []


def test_filter_returns_planned_node_of_chief_or_names_closure() -> None:
    stores = Stores(NODES)
    chief = {"index": 0, "attempt": 5, "site": "edge-a", "node": "n2"}
    stores.add_job("cats", window(0, 1, "n1"), chief=chief)
    found = filter_nodes(worker("cats", 0, 5, gpus=0, role="chief"), NODES, stores.view)
    assert found.node_names == ["n2"]
    older = filter_nodes(worker("cats", 0, 4, gpus=0, role="chief"), NODES, stores.view)
    assert older.failed_and_unresolvable_nodes["n1"] == "chief (attempt 4) of ns/cats is closed in plan 1.1"


class TestStrangers:
    def test_a_service_preempts_training_and_passes_everywhere(self) -> None:
        stores = Stores(NODES, gpus=1)
        stores.add_job("cats", window(0, 1, "n1"))
        assert filter_nodes(stranger("web", priority=0), NODES, stores.view) == FilterResult(NODES)
        assert filter_nodes(stranger("web", priority=None), NODES, stores.view) == FilterResult(NODES)

    def test_filter_keeps_reserved_gpus_from_equal_or_lower_priority(self) -> None:
        stores = Stores(NODES, gpus=2)
        stores.add_job("cats", window(0, 1, "n1"))
        for priority in (-9, -10):
            small = filter_nodes(stranger("batch", gpus=1, priority=priority), NODES, stores.view)
            large = filter_nodes(stranger("batch", gpus=2, priority=priority), NODES, stores.view)
            assert small.node_names == NODES
            assert large.node_names == ["n2", "n3"]
            assert "reserved for ns/cats-worker-0-1" in large.failed_and_unresolvable_nodes["n1"]

    def test_a_pod_without_gpus_passes_everywhere(self) -> None:
        stores = Stores(NODES, gpus=1)
        stores.add_job("cats", window(0, 1, "n1"))
        assert filter_nodes(stranger("batch", gpus=0, priority=-100), NODES, stores.view) == FilterResult(NODES)

    @pytest.mark.parametrize("broken", [{"tranche.dev/index": "x"}, {"tranche.dev/role": "guest"}])
    def test_a_pod_whose_labels_are_not_ours_is_a_stranger(self, broken: dict[str, str]) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n1"))
        made = worker("cats", 0, 1)
        made = Pod(Metadata(labels={**made.metadata.labels, **broken}, namespace="ns"), made.spec)
        assert filter_nodes(made, NODES, stores.view) == FilterResult(NODES)

    @pytest.mark.parametrize("job", ["cats", "none"])
    def test_pod_with_labels_of_a_job_takes_no_reserved_gpus(self, job: str) -> None:
        stores = Stores(NODES, gpus=1)
        stores.add_job("cats", window(0, 1, "n1"))
        copied = worker(job, 0, 1, plan="9.9", ownerReferences=[])
        assert filter_nodes(copied, NODES, stores.view).node_names == ["n2", "n3"]
        assert scores(copied, stores, NODES) == {"n1": 0, "n2": 10, "n3": 10}
        victims = {name: MetaVictims([MetaPod(f"uid-{name}")]) for name in NODES}
        assert list(preempt(copied, victims, stores.view, NOW)) == ["n2", "n3"]

    def test_filter_rejects_pod_with_unreadable_requests_and_reason(self) -> None:
        made = Pod(spec=PodSpec(overhead={"cpu": "lots"}))
        result = filter_nodes(made, NODES, Stores(NODES).view)
        assert "'lots' is not a quantity" in result.failed_and_unresolvable_nodes["n1"]
        assert scores(made, Stores(NODES), NODES) == dict.fromkeys(NODES, 0)


class TestScores:
    def test_the_planned_node_is_the_highest(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n2", "n1"))
        found = scores(worker("cats", 0, 1), stores, NODES)
        assert found["n2"] == 10
        assert max(found["n1"], found["n3"]) < 10

    def test_nodes_near_data_and_parameter_server_score_higher(self) -> None:
        stores = Stores()
        for name, site in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")):
            stores.add_node(name, zone=site)
        for site in "abc":
            stores.add_site(site, zone=site)
        server = {"index": 0, "attempt": 1, "site": "a", "node": "a2"}
        stores.add_job("cats", window(0, 1, "gone"), homes={"a": "0-1", "b": "2"}, servers=[server])
        found = scores(worker("cats", 0, 1), stores, ["a1", "a2", "b1", "c1"])
        assert found["a2"] > found["a1"] > found["b1"] > found["c1"]
        assert found["a2"] < 10

    def test_the_node_where_least_is_left_over_scores_higher(self) -> None:
        stores = Stores(["n1", "n2"], gpus=4)
        stores.add_pod(stranger("a", "n1", gpus=3))
        stores.add_job("cats", window(0, 1, "gone"))
        found = scores(worker("cats", 0, 1), stores, ["n1", "n2"])
        assert found["n1"] > found["n2"]

    def test_a_parameter_server_is_drawn_to_its_workers(self) -> None:
        stores = Stores(["n1", "n2"])
        stores.add_job("cats", window(0, 1, "n1"), servers=[window(0, 1, "gone")])
        found = scores(worker("cats", 0, 1, role="ps", gpus=0), stores, ["n1", "n2"])
        assert found["n1"] > found["n2"]

    def test_a_moved_node_is_scored_by_its_new_site(self) -> None:
        stores = Stores()
        stores.add_site("a", zone="a")
        stores.add_node("n1", zone="b")
        stores.add_job("cats", window(0, 1, "gone"), homes={"a": "0"})
        far = scores(worker("cats", 0, 1), stores, ["n1"])["n1"]
        stores.add_node("n1", zone="a")
        near = scores(worker("cats", 0, 1), stores, ["n1"])["n1"]
        stores.sites.put("a", None)
        nowhere = scores(worker("cats", 0, 1), stores, ["n1"])["n1"]
        assert (near - far, nowhere) == (4, far)

    def test_pod_newer_than_the_plan_is_left_to_its_affinity(self) -> None:
        stores = Stores(NODES)
        stores.add_job("dogs", window(0, 1, "n1"))
        stores.add_job("cats", window(0, 1, "n1", "n2"), stamp=(1, 1))
        newer = worker("cats", 0, 1, plan="1.2")
        assert len(set(scores(newer, stores, NODES).values())) == 1

    def test_strangers_keep_off_the_nodes_that_plans_wait_for(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n1"))
        assert scores(stranger("web"), stores, NODES) == {"n1": 0, "n2": 10, "n3": 10}


class TestPreempt:
    VICTIMS = {name: MetaVictims([MetaPod(f"uid-{name}")]) for name in NODES}  # noqa: RUF012 (never changed)

    def test_a_training_pod_may_evict_on_its_planned_node_only(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n2"))
        assert preempt(worker("cats", 0, 1), self.VICTIMS, stores.view, NOW) == {"n2": self.VICTIMS["n2"]}

    def test_a_rejected_pod_may_evict_nowhere(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats")
        assert preempt(worker("cats", 0, 1), self.VICTIMS, stores.view, NOW) == {}

    def test_a_service_may_evict_anywhere(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n2"))
        assert preempt(stranger("web"), self.VICTIMS, stores.view, NOW) == self.VICTIMS

    def test_preempt_keeps_victims_of_reserved_nodes_from_equal_pods(self) -> None:
        stores = Stores(NODES)
        stores.add_job("cats", window(0, 1, "n2"))
        kept = preempt(stranger("batch", priority=-10), self.VICTIMS, stores.view, NOW)
        assert list(kept) == ["n1", "n3"]

    def test_preempt_for_pod_with_unreadable_requests_evicts_none(self) -> None:
        made = Pod(spec=PodSpec(overhead={"cpu": "lots"}))
        assert preempt(made, self.VICTIMS, Stores(NODES).view, NOW) == {}


NAMES = st.lists(st.sampled_from(["n1", "n2", "n3", "n4", "absent"]), max_size=8)
PLANNED = st.fixed_dictionaries(
    {
        "node": st.sampled_from([None, "n1", "n2", "absent"]),
        "fallbacks": st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=3),
        "state": st.sampled_from(["Open", "Closing"]),
    }
)


@given(names=NAMES, planned=PLANNED, used=NAMES, ours=st.booleans(), stamp=st.sampled_from(["1.1", "0.9", "1.2"]))
def test_every_input_node_is_named_exactly_once_in_every_answer(
    names: list[str], planned: dict[str, Any], used: list[str], ours: bool, stamp: str
) -> None:
    stores = Stores(["n1", "n2", "n3"], gpus=2)
    stores.add_job("cats", {**window(0, 1, None), **planned}, gpus=2)
    for number, node in enumerate(used):
        stores.add_pod(stranger(f"s{number}", node))
    pod = worker("cats", 0, 1, plan=stamp) if ours else stranger("web", priority=-9)
    result = filter_nodes(pod, names, stores.view)
    assert result.error == ""
    assert all(result.failed_and_unresolvable_nodes.values())
    assert sorted([*result.node_names, *result.failed_and_unresolvable_nodes]) == sorted(set(names))
    found = prioritize(pod, names, stores.view)
    assert sorted(entry.host for entry in found) == sorted(set(names))
    assert all(0 <= entry.score <= 10 for entry in found)
    victims = dict.fromkeys(names, MetaVictims())
    assert set(preempt(pod, victims, stores.view, NOW)) <= set(names)
