"""Learnt values of a scheduler as text on its Lease, and their use by a controller."""

import asyncio

import pytest

from support.live_controller import taken_over
from tranche.live.lease_annotations import MEMORY_ANNOTATION, annotations_of, read_memory
from tranche.planner.learned_state import LinkMemory, Memory

MEMORY = Memory([LinkMemory("edge-a", "edge-b", 8e6, 0.125)], {"n1": 1.5}, 20.0, 3.0)


def test_what_is_written_is_read() -> None:
    assert read_memory(annotations_of(MEMORY)) == MEMORY
    assert read_memory(annotations_of(Memory())) == Memory()


@pytest.mark.parametrize("text", ["", "[", "[]", '{"nodes": {"n1": "fast"}}', 7])
def test_what_cannot_be_read_is_nothing(text: object) -> None:
    assert read_memory({MEMORY_ANNOTATION: text}) == Memory()
    assert read_memory({}) == Memory()


def test_a_later_version_may_know_more_and_an_earlier_one_less() -> None:
    assert read_memory({MEMORY_ANNOTATION: '{"nodes": {"n1": 1.5}, "weather": "fine"}'}) == Memory(nodes={"n1": 1.5})


def test_controller_writes_learnt_memory_only_while_leading() -> None:
    controller = asyncio.run(taken_over(policy="chunk"))
    controller.restore(MEMORY)
    assert read_memory(controller.memory_annotations()).nodes == {"n1": 1.5}
    controller.reports.restored = False
    assert controller.memory_annotations() == {}, "what is on the Lease stays there"
