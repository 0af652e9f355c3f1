"""Learned values of a scheduler as text on its Lease, and their use by a controller."""

import asyncio

import pytest

from support.live_controller import taken_over
from tranche.live.lease_annotations import (
    LEARNED_ANNOTATION,
    MAX_LEARNED_BYTES,
    learned_text,
    read_learned_state,
)
from tranche.planner.learned_state import LearnedGang, LearnedLink, LearnedState

LEARNED = LearnedState([LearnedLink("edge-a", "edge-b", 8e6, 0.125)], {"n1": 1.5}, 20.0, 3.0)


def test_what_is_written_is_read() -> None:
    for learned in (LEARNED, LearnedState()):
        assert read_learned_state({LEARNED_ANNOTATION: learned_text(learned)[0]}) == learned


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
    assert LEARNED_ANNOTATION == "tranche.dev/memory"


def large(*, links: int = 0) -> LearnedState:
    """Return a state with 80 kB of gangs and 40 kB of nodes."""
    return LearnedState(
        [LearnedLink(f"{number:0200}", "site", 8e6, 0.125) for number in range(links)],
        {f"{number:0200}": 1.5 for number in range(200)},
        20.0,
        gangs={f"default/{number:0400}": LearnedGang(1.0) for number in range(180)},
    )


def test_large_learned_state_is_written_without_gangs() -> None:
    text, omitted = learned_text(large())
    read = read_learned_state({LEARNED_ANNOTATION: text})
    assert (len(read.nodes), read.gangs, omitted) == (200, {}, ("moves", "gangs"))


def test_learned_state_of_any_size_is_written_within_bound() -> None:
    text, omitted = learned_text(large(links=1000))
    assert len(text) <= MAX_LEARNED_BYTES
    assert omitted == ("moves", "gangs", "nodes", "waits", "links")
    assert read_learned_state({LEARNED_ANNOTATION: text}) == LearnedState(start_seconds=20.0)


def test_omitted_parts_of_learned_state_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    controller = asyncio.run(taken_over(policy="dally-like"))
    for number in range(200):
        controller.planner.cluster.locality.of(f"default/{number:0600}").decline(0.0)
    assert [controller.learned_annotations() for _ in range(2)]
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [
        "the learned state is too large for the Lease: it is written without moves, gangs"
    ]
