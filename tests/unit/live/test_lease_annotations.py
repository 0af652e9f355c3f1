"""Learned values of a scheduler as text on its Lease, and their use by a controller."""

import asyncio

import pytest

from support.live_controller import taken_over
from tranche.live.lease_annotations import LEARNED_ANNOTATION, learned_annotation, read_learned_state
from tranche.planner.learned_state import LearnedLink, LearnedState

LEARNED = LearnedState([LearnedLink("edge-a", "edge-b", 8e6, 0.125)], {"n1": 1.5}, 20.0, 3.0)


def test_what_is_written_is_read() -> None:
    assert read_learned_state(learned_annotation(LEARNED)) == LEARNED
    assert read_learned_state(learned_annotation(LearnedState())) == LearnedState()


@pytest.mark.parametrize("text", ["", "[", "[]", '{"nodes": {"n1": "fast"}}', 7])
def test_what_cannot_be_read_is_nothing(text: object) -> None:
    assert read_learned_state({LEARNED_ANNOTATION: text}) == LearnedState()
    assert read_learned_state({}) == LearnedState()


def test_a_later_version_may_know_more_and_an_earlier_one_less() -> None:
    assert read_learned_state({LEARNED_ANNOTATION: '{"nodes": {"n1": 1.5}, "weather": "fine"}'}) == LearnedState(
        nodes={"n1": 1.5}
    )


def test_controller_writes_learned_state_only_while_leading() -> None:
    controller = asyncio.run(taken_over(policy="chunk"))
    controller.restore(LEARNED)
    assert read_learned_state(controller.learned_annotations()).nodes == {"n1": 1.5}
    controller.reports.restored = False
    assert controller.learned_annotations() == {}, "what is on the Lease stays there"


def test_annotation_keeps_its_name_over_versions() -> None:
    assert list(learned_annotation(LearnedState())) == ["tranche.dev/memory"]
