"""Gangs that require or prefer a topology level, under every queue policy."""

from collections import Counter
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.estimate import LevelNetwork
from tranche.model import Constraints, Job, Node, Preemption, Site, Tier
from tranche.model.topology import NODE_LEVEL, RACK_LEVEL, SITE_LEVEL
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, WorkerEnded
from tranche.planner.scheduling.placement_trial import PlacementTrial, PreemptionRequest
from tranche.policies import POLICIES, QueuePolicy
from tranche.simulation.scenario import Scenario, run

NETWORK = LevelNetwork((300e9, 100e9, 10e9, 1e9))
QUEUES = sorted(name for name, one in POLICIES.items() if isinstance(one, QueuePolicy) and one.traits.supports_gangs)
WAITS = "consolidate"
"""Policy under which gangs wait for a narrow level although they may run at a wider one."""


def racks(*free: str) -> list[Node]:
    """Return nodes named by rack and number, with one GPU for each digit given: ``a2`` is a node of two GPUs."""
    return [node(f"n{i}", gpus=int(one[1]), labels={RACK_LEVEL: one[0]}) for i, one in enumerate(free)]


def rack_gang(name: str, submitted: float = 0.0, members: int = 2, **changes: Any) -> Job:
    return gang(name, submitted, members, **{"required_level": RACK_LEVEL, **changes})


def racks_of(opened: list[OpenWindow], nodes: list[Node]) -> set[str]:
    labels = {one.name: one.labels[RACK_LEVEL] for one in nodes}
    return {labels[one.window.node or ""] for one in opened}


@pytest.mark.parametrize("policy", QUEUES)
def test_required_rack_holds_all_members(policy: str) -> None:
    nodes = racks("a1", "b1", "c1", "b1", "c1", "c1")
    p = planner(policy, nodes)
    opened = of_type(OpenWindow, p.handle(JobSubmitted(rack_gang("g", members=3)), 0.0))
    assert len(opened) == 3
    assert racks_of(opened, nodes) == {"c"}


def blocker(rack: str, gpus: int = 1, **changes: Any) -> Job:
    """Return a job of one pod that runs in this rack."""
    shape = worker(gpus, constraints=Constraints(selector=((RACK_LEVEL, rack),)))
    return job(f"in-{rack}", **{"worker": shape, **changes})


@pytest.mark.parametrize("policy", QUEUES)
def test_required_rack_without_room_is_waited_for(policy: str) -> None:
    p = planner(policy, racks("a1", "b1", "b1"))
    p.handle(JobSubmitted(blocker("b", preemption=Preemption.NEVER)), 0.0)
    assert not of_type(OpenWindow, p.handle(JobSubmitted(rack_gang("g", 1.0)), 1.0))
    opened = of_type(OpenWindow, p.handle(WorkerEnded("default/in-b", 1, "Succeeded", 100.0), 100.0))
    assert sorted(one.window.node or "" for one in opened) == ["n1", "n2"]


@pytest.mark.parametrize("policy", [name for name in QUEUES if name != WAITS])
def test_preferred_rack_without_room_is_not_waited_for(policy: str) -> None:
    p = planner(policy, racks("a1", "b1", "b1"))
    p.handle(JobSubmitted(blocker("b", preemption=Preemption.NEVER)), 0.0)
    wish = gang("g", 1.0, preferred_level=RACK_LEVEL)
    assert len(of_type(OpenWindow, p.handle(JobSubmitted(wish), 1.0))) == 2


def test_preferred_rack_with_room_is_used() -> None:
    nodes = racks("a1", "b2", "b2")
    for wish, expected in (("", {"a", "b"}), (RACK_LEVEL, {"b"})):
        p = planner("fifo", nodes)
        opened = of_type(OpenWindow, p.handle(JobSubmitted(gang("g", members=3, preferred_level=wish)), 0.0))
        assert racks_of(opened, nodes) == expected


@pytest.mark.parametrize(
    ("policy", "gradient_bits", "network", "expected"),
    [
        ("chunk", 1e9, NETWORK, {"b"}),
        ("chunk:levels=0", 1e9, NETWORK, {"a", "b"}),
        ("chunk", 0.0, NETWORK, {"a", "b"}),
        ("chunk", 1e9, None, {"a", "b"}),
        ("srsf", 1e9, NETWORK, {"a", "b"}),
    ],
)
def test_chunk_prefers_the_narrowest_level_of_known_capacity(
    policy: str, gradient_bits: float, network: LevelNetwork | None, expected: set[str]
) -> None:
    nodes = racks("a1", "b2", "b2")
    p = planner(policy, nodes, level_network=network)
    one = gang("g", members=3, gradient_bits=gradient_bits)
    assert racks_of(of_type(OpenWindow, p.handle(JobSubmitted(one), 0.0)), nodes) == expected


@pytest.mark.parametrize("policy", ["chunk:aging=0", "srsf"])
def test_preemption_makes_room_within_one_rack(policy: str) -> None:
    p = planner(policy, racks("a1", "a1", "b1"))
    p.handle(JobSubmitted(blocker("a", seconds=10_000.0, priority=-1000)), 0.0)
    instructions = p.handle(JobSubmitted(rack_gang("g", 1.0, seconds=10.0)), 1.0)
    assert [one.job for one in of_type(CloseWindow, instructions)] == ["default/in-a"]
    assert sorted(one.window.node or "" for one in of_type(OpenWindow, instructions)) == ["n0", "n1"]


@pytest.mark.parametrize(
    ("policy", "wish", "stopped"),
    [
        ("chunk:aging=0", "", ["default/first", "default/second"]),
        ("chunk:aging=0:levels=0", "", ["default/second"]),
        ("srsf", "", ["default/second"]),
        ("srsf", RACK_LEVEL, ["default/first", "default/second"]),
    ],
)
def test_preemption_for_a_preferred_level_stays_narrow(policy: str, wish: str, stopped: list[str]) -> None:
    """One GPU in rack b is free; the gang fits into rack a only, or into both racks with one job stopped."""
    p = planner(policy, racks("a1", "a1", "b1"), level_network=NETWORK)
    shape = blocker("a").worker
    for name, seconds in (("first", 10_000.0), ("second", 11_000.0)):
        p.handle(JobSubmitted(job(name, seconds=seconds, worker=shape)), 0.0)
    one = gang("g", 1.0, seconds=10.0, gradient_bits=1e9, preferred_level=wish)
    closed = of_type(CloseWindow, p.handle(JobSubmitted(one), 1.0))
    assert sorted(one.job for one in closed) == stopped


def test_preemption_by_level_tries_no_group_that_is_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    p = planner("chunk:aging=0", racks(*(f"{rack}1" for rack in "aabbccddee")), level_network=NETWORK)
    for number in range(10):
        p.handle(JobSubmitted(job(f"j{number}", seconds=10_000.0)), 0.0)
    calls: Counter[str] = Counter()
    for owner, name in ((PreemptionRequest, "victims"), (PlacementTrial, "find")):
        plain = getattr(owner, name)

        def counted(*args: Any, plain: Any = plain, name: str = name) -> Any:
            calls[name] += 1
            return plain(*args)

        monkeypatch.setattr(owner, name, counted)
    one = gang("g", 1.0, seconds=10.0, gradient_bits=1e9)
    assert len(of_type(CloseWindow, p.handle(JobSubmitted(one), 1.0))) == 2
    assert calls == {"victims": 1, "find": 2}


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_no_job_is_stopped_where_that_makes_no_rack(policy: str) -> None:
    p = planner(policy, racks("a1", "b1"))
    p.handle(JobSubmitted(blocker("a", seconds=10_000.0)), 0.0)
    instructions = p.handle(JobSubmitted(rack_gang("g", 1.0, seconds=10.0)), 1.0)
    assert not of_type(CloseWindow, instructions)
    assert not of_type(OpenWindow, instructions)


def test_fallbacks_are_in_the_same_rack() -> None:
    nodes = racks("a2", "a2", "a2", "b2", "b2")
    p = planner("fifo", nodes, fallbacks=4)
    opened = of_type(OpenWindow, p.handle(JobSubmitted(rack_gang("g", members=3)), 0.0))
    labels = {one.name: one.labels[RACK_LEVEL] for one in nodes}
    assert {labels[name] for one in opened for name in one.window.fallbacks} <= racks_of(opened, nodes)


def test_gang_with_a_chief_keeps_its_members_in_one_rack() -> None:
    nodes = racks("a1", "b2", "b2")
    p = planner("fifo", nodes)
    opened = of_type(OpenWindow, p.handle(JobSubmitted(rack_gang("g", members=3, chief=worker(0))), 0.0))
    assert racks_of(opened, nodes) == {"b"}


def test_explanation_names_the_level_that_is_waited_for() -> None:
    p = planner("fifo", racks("a1", "b1", "b1"))
    p.handle(JobSubmitted(blocker("b", preemption=Preemption.NEVER)), 0.0)
    p.handle(JobSubmitted(rack_gang("g", 1.0)), 1.0)
    p.forecast(1.0)
    plan = p.plan_of("default/g", 1.0)
    assert plan.waits_for == "Level"
    assert "waits for 2 workers of 1 GPU in one group of tranche.dev/rack (2 are free)" in plan.explanation


@pytest.mark.parametrize(
    ("level", "sentence"),
    [
        (
            RACK_LEVEL,
            "needs 3 workers of 1 GPU in one group of tranche.dev/rack, more than any group can hold: "
            "the largest has room for 2",
        ),
        (
            "zone",
            "requires zone, which is not a topology level of this installation "
            f"({NODE_LEVEL}, {RACK_LEVEL}, {SITE_LEVEL})",
        ),
    ],
)
def test_explanation_of_a_level_that_is_impossible(level: str, sentence: str) -> None:
    p = planner("fifo", racks("a1", "b1", "b1"))
    p.handle(JobSubmitted(gang("g", members=3, required_level=level)), 0.0)
    plan = p.plan_of("default/g", 0.0)
    assert plan.waits_for == "LevelSize"
    assert plan.unplannable == "Unschedulable"
    assert plan.explanation.startswith(sentence)


def test_impossible_level_does_not_block_a_strict_queue() -> None:
    p = planner("fifo", racks("a1", "b1"))
    p.handle(JobSubmitted(rack_gang("g")), 0.0)
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("next", 1.0)), 1.0))


@pytest.mark.parametrize(("level", "finished"), [(NODE_LEVEL, 0), (SITE_LEVEL, 1)])
def test_unlimited_site_assures_its_own_level_only(level: str, finished: int) -> None:
    cloud = Site("cloud", Tier.CLOUD, unlimited=True)
    one = gang("g", required_level=level)
    assert len(run(Scenario((one,), (), (cloud,), policy="fifo")).jobs) == finished


def test_requirement_of_one_gang_does_not_block_another() -> None:
    p = planner("srsf", racks("a1", "b1"))
    p.handle(JobSubmitted(rack_gang("g", seconds=10.0)), 0.0)
    assert len(of_type(OpenWindow, p.handle(JobSubmitted(gang("free", 1.0, seconds=50.0)), 1.0))) == 2
