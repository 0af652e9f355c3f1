"""Places under the simple rules: `least-loaded`, `round-robin`, `random` and `first-fit`."""

from collections import Counter

import pytest

from support.builders import job, node, planner
from tranche.model import Job
from tranche.planner import JobSubmitted, Planner


def submitted(policy: str, jobs: list[Job], *gpus: int, seed: int = 0) -> Planner:
    """Return a planner with nodes n0, n1, … of these GPUs, to which the jobs came one after the other at 0."""
    made = planner(policy, [node(f"n{i}", gpus=count) for i, count in enumerate(gpus)], seed=seed)
    for one in jobs:
        made.handle(JobSubmitted(one), 0.0)
    return made


def bound(made: Planner, name: str) -> list[str]:
    """Return the nodes to which the chunks of a job are bound, in order of the chunks."""
    entries = made.cluster.jobs[f"default/{name}"].entries
    return [entries[chunk].home.node or "" for chunk in sorted(entries)]


def test_chunks_go_to_the_slot_with_the_least_work() -> None:
    """300 s are bound to n0; the chunks of b go to n1 until 300 s are bound there, too, and the next one to n0."""
    made = submitted("least-loaded", [job("a", seconds=300.0), job("b", chunks=4, seconds=100.0)], 1, 1)
    assert bound(made, "a") == ["n0"]
    assert bound(made, "b") == ["n1", "n1", "n1", "n0"]


def test_turn_of_round_robin_goes_on_from_job_to_job() -> None:
    made = submitted("round-robin", [job("a", chunks=2, seconds=900.0), job("b", chunks=4)], 1, 1, 1)
    assert bound(made, "a") == ["n0", "n1"]
    assert bound(made, "b") == ["n2", "n0", "n1", "n2"]


def test_random_places_are_uniform_and_follow_the_seed() -> None:
    """600 chunks on three nodes: 200 on each, with a standard deviation of 11.5."""
    places = [bound(submitted("random", [job("a", chunks=600)], 1, 1, 1, seed=seed), "a") for seed in (1, 2)]
    assert places[0] != places[1]
    for each in places:
        assert all(150 < count < 250 for count in Counter(each).values())


@pytest.mark.parametrize(("policy", "place"), [("first-fit", "n0"), ("fifo-skip", "n1")])
def test_first_fit_takes_the_first_node_and_not_the_fullest(policy: str, place: str) -> None:
    made = submitted(policy, [job("a")], 2, 1)
    assert [run.home.node for run in made.cluster.jobs["default/a"].runs.values()] == [place]
