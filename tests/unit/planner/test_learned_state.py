"""Learned values of links, nodes and restarts that a planner hands to the one that takes over."""

from math import log

import pytest

from support.builders import job, node, planner
from tranche.model import Link, Site
from tranche.planner import JobSubmitted, Planner, SiteChanged
from tranche.planner.learned_state import (
    MAX_ENTRIES,
    MAX_MOVE_NODES,
    LearnedGang,
    LearnedLink,
    LearnedState,
    LearnedWaits,
    learned_state_of,
    recall,
)

PROMISED = 1e9


def sites(promised: float = PROMISED) -> list[Site]:
    return [Site("here", links={"there": Link(promised)}), Site("there")]


def fresh(promised: float = PROMISED, policy: str = "chunk") -> Planner:
    return planner(policy, [node("n1", "here"), node("n2", "there")], sites(promised))


def taught() -> Planner:
    p = fresh()
    p.handle(JobSubmitted(job("j", data_site="here", chunk_bytes=PROMISED)), 0.0)
    p.cluster.copy_measured(p.cluster.jobs["default/j"], "there", 32.0, 0.0)
    p.cluster.speed_model.observe("default/j", "", "there", "n2", 2.0, 1000.0)
    p.cluster.restarts.started("default", 20.0)
    p.cluster.restarts.saved("default", 3.0)
    return p


def delta(p: Planner) -> float:
    p.handle(JobSubmitted(job("next", data_site="here", chunk_bytes=PROMISED)), 0.0)
    return p.cluster.transfer_seconds(p.cluster.jobs["default/next"], "there")


def test_links_nodes_and_restarts_are_handed_on() -> None:
    first, second = taught(), fresh()
    assert delta(second) == 8.0, "as promised"
    recall(second.context, learned_state_of(first.cluster, 0.0))
    assert delta(second) == pytest.approx(32.0)
    known = first.cluster.speed_model.node_factor("n2")
    assert known > 1.1
    assert (
        second.cluster.nodes["n2"].learned_factor
        == second.cluster.speed_model.node_factor("n2")
        == pytest.approx(known, 1e-5)
    )
    assert second.cluster.restarts.of_job("default").seconds == 23.0
    assert learned_state_of(second.cluster, 0.0) == learned_state_of(first.cluster, 0.0)


def test_a_planner_that_has_learnt_nothing_hands_on_nothing() -> None:
    assert learned_state_of(fresh().cluster, 0.0) == LearnedState()


def test_measured_link_is_reset_when_its_bandwidth_changes() -> None:
    slower = fresh(PROMISED / 2)
    recall(slower.context, learned_state_of(taught().cluster, 0.0))
    assert delta(slower) == 16.0
    p = taught()
    p.handle(SiteChanged(sites(PROMISED / 2)[0]), 1.0)
    assert delta(p) == 16.0
    p = taught()
    p.handle(SiteChanged(Site("there", unlimited=True)), 1.0)
    assert delta(p) == pytest.approx(32.0), "nothing of the link has changed"


def test_missing_nodes_and_non_learning_policies_recall_no_speed() -> None:
    p = fresh()
    recall(p.context, LearnedState(nodes={"gone": 2.0}))
    assert not p.cluster.speed_model.nodes
    p = fresh(policy="fifo")
    recall(p.context, LearnedState(nodes={"n1": 2.0}))
    assert p.cluster.nodes["n1"].learned_factor == 1.0


def test_only_so_much_is_handed_on_and_that_is_what_says_most() -> None:
    p = fresh()
    for number in range(MAX_ENTRIES + 50):
        p.cluster.speed_model.recall_node(f"node-{number:03}", 1.0 + number / 100)
        p.cluster.uploads.corrections.recall(("here", f"site-{number:03}"), "", log(1.0 + number / 100))
    learned = learned_state_of(p.cluster, 0.0)
    assert list(learned.nodes) == [f"node-{number:03}" for number in range(50, MAX_ENTRIES + 50)]
    assert [one.target for one in learned.links] == [f"site-{number:03}" for number in range(50, MAX_ENTRIES + 50)]
    assert learned.links[0] == LearnedLink("here", "site-050", 100e6, 1.5)


GANGS = LearnedState(
    waits=[LearnedWaits("tranche.dev/rack", 2, (10.0, 20.5))],
    gangs={"default/a": LearnedGang(30.0, {"kubernetes.io/hostname": 70.0}), "default/b": LearnedGang(0.0, {"x": 1.0})},
    moves={"default/c": ("n1", "n1")},
)


def test_waits_clocks_and_moves_of_gangs_are_handed_on() -> None:
    p = fresh(policy="dally-like")
    recall(p.context, GANGS)
    p.cluster.locality.jobs["default/a"].decline(100.0)
    known = learned_state_of(p.cluster, 105.0)
    assert (known.waits, known.moves) == (GANGS.waits, GANGS.moves)
    assert known.gangs == {"default/a": LearnedGang(35.0, {"kubernetes.io/hostname": 70.0})}, "there is no level x"


def test_gangs_are_not_recalled_by_other_policies() -> None:
    p = fresh(policy="srsf")
    recall(p.context, GANGS)
    assert learned_state_of(p.cluster, 0.0) == LearnedState()


def test_moves_are_handed_on_up_to_a_number_of_nodes() -> None:
    p = fresh(policy="dally-like")
    p.cluster.locality.moving["default/first"] = ("n1", "n2")
    p.cluster.locality.moving["default/large"] = ("n1",) * MAX_MOVE_NODES
    assert learned_state_of(p.cluster, 0.0).moves == {"default/first": ("n1", "n2")}
