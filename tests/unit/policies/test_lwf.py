"""LWF-κ: places of the published rule, and gangs that are bound to the queues of slots when they arrive."""

from math import inf
from random import Random
from typing import Any

import pytest

from support.builders import gang, job, node, planner, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job
from tranche.model.topology import NODE_LEVEL, Topology
from tranche.planner import JobSubmitted, NodeRemoved, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.policies.binding.lwf import Loaded, least_loaded
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.simulation.scenario import Scenario, run

RACK = "tranche.dev/rack"
GOLDEN = [
    Loaded(load, name, slot, f"{name}{slot}")
    for name, loads in (("a", (5, 1)), ("b", (2, 3)))
    for slot, load in enumerate(loads)
]


@pytest.mark.parametrize(("kappa", "places"), [(1, ["b0", "b1"]), (2, ["a1", "b0"]), (float("inf"), ["a1", "b0"])])
def test_two_workers_take_a_node_or_their_own_least_loaded_gpus(kappa: float, places: list[str]) -> None:
    assert least_loaded(GOLDEN, 2, kappa) == places


def test_single_worker_takes_the_least_loaded_gpu() -> None:
    assert least_loaded(GOLDEN, 1, 1) == ["a1"]


def test_larger_job_takes_nodes_by_mean_load_then_gpus_by_load() -> None:
    assert least_loaded(GOLDEN, 3, 1) == ["b0", "b1", "a1"]
    assert least_loaded(GOLDEN, 5, 1) == []


@pytest.mark.parametrize("seed", range(20))
def test_up_to_kappa_workers_take_the_n_least_loads(seed: int) -> None:
    draw = Random(seed)
    loads = [Loaded(float(draw.randint(0, 9)), f"n{at}", slot, (at, slot)) for at in range(4) for slot in range(4)]
    load_of = {one.place: one.load for one in loads}
    for workers in range(1, 17):
        kappa = draw.randint(1, 16)
        chosen = [load_of[place] for place in least_loaded(draw.sample(loads, 16), workers, kappa)]
        if workers <= kappa:
            assert chosen == sorted(load_of.values())[:workers]
        else:
            nodes = dict.fromkeys(place[0] for place in least_loaded(loads, workers, kappa))
            assert len(nodes) == -(-workers // 4)


def starts(jobs: list[Job], policy: str = "lwf", gpus: int = 2, nodes: int = 2) -> dict[str, float]:
    result = run(
        Scenario(tuple(jobs), tuple(node(f"n{n}", gpus=gpus) for n in range(nodes)), policy=policy, record=True)
    )
    first: dict[str, float] = {}
    for one in result.occupations:
        first.setdefault(one.job.partition("/")[2], one.opened)
    assert not result.unfinished
    return first


def test_gang_waits_in_the_slots_to_which_arrival_bound_it() -> None:
    """The gang takes n1, whose mean load is less, and waits there although n0 becomes free first."""
    jobs = [
        gang("left", 0.0, 2, seconds=50.0),
        gang("right", 1.0, 2, seconds=40.0),
        job("short", 2.0, seconds=5.0),
        gang("late", 3.0, 2, seconds=10.0),
    ]
    made = planner("lwf", [node("n0", gpus=2), node("n1", gpus=2)])
    for one in jobs:
        made.handle(JobSubmitted(one), one.submitted)
    homes = {
        key: [tuple(entry.home[1:]) for entry in state.entries.values()] for key, state in made.cluster.jobs.items()
    }
    assert homes["default/left"] == [("n0", (0,)), ("n0", (1,))]
    assert homes["default/right"] == [("n1", (0,)), ("n1", (1,))]
    assert homes["default/short"] == [("n1", (0,))]
    assert homes["default/late"] == [("n1", (1,)), ("n1", (0,))]
    assert starts(jobs) == {"left": 0.0, "right": 1.0, "short": 41.0, "late": 46.0}


def test_slot_of_a_waiting_gang_is_kept_from_those_behind_it() -> None:
    """Slot 1 is free, but kept for the gang; the long job behind it starts after the gang."""
    jobs = [
        job("first", 0.0, seconds=30.0),
        gang("gang", 1.0, 2, seconds=10.0),
        job("long", 2.0, seconds=100.0),
    ]
    assert starts(jobs, nodes=1) == {"first": 0.0, "gang": 30.0, "long": 40.0}


def test_shorter_job_passes_a_waiting_gang() -> None:
    jobs = [job("first", 0.0, seconds=30.0), gang("gang", 1.0, 2, seconds=10.0), job("short", 2.0, seconds=15.0)]
    assert starts(jobs, nodes=1) == {"first": 0.0, "short": 2.0, "gang": 30.0}


def test_gang_that_fits_no_cluster_is_not_planned() -> None:
    result = run(Scenario((gang("wide", members=5),), (node("n0", gpus=4),), policy="lwf"))
    assert list(result.unfinished) == ["default/wide"]


def test_members_leave_room_for_their_cpu() -> None:
    """A node of 64 cores holds three members of 20 cores, whatever its GPUs."""
    large = gang("large", members=4, worker=worker(cpu=20_000))
    result = run(Scenario((large,), (node("n0", gpus=8), node("n1", gpus=8)), policy="lwf", record=True))
    assert sorted(one.node for one in result.occupations) == ["n0", "n0", "n0", "n1"]


def test_gang_with_a_server_starts_together_with_it() -> None:
    served = gang("served", members=2, server=worker(gpus=0), servers=1)
    result = run(Scenario((served,), (node("n0", gpus=2),), policy="lwf"))
    assert result.jobs[0].jct_seconds == 100.0


def test_members_that_lose_a_node_are_bound_again_together() -> None:
    made = planner("lwf", [node(f"n{n}", gpus=1) for n in range(4)])
    made.handle(JobSubmitted(job("busy", seconds=50.0, chunks=4)), 0.0)
    made.handle(JobSubmitted(gang("gang", 1.0, 2)), 1.0)
    state = made.cluster.jobs["default/gang"]
    assert {entry.home.node for entry in state.entries.values()} == {"n0", "n1"}
    made.handle(NodeRemoved("n0"), 2.0)
    assert {entry.home.node for entry in state.entries.values()} == {"n1", "n2"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["lwf", "lwf:kappa=inf", "lwf:placement=random"])
def test_gangs_never_wait_for_each_other_in_a_circle(policy: str, seed: int) -> None:
    """All jobs complete, a slot has one worker at a time, and no load is left."""
    draw, submitted, jobs = Random(seed), 0.0, []
    for number in range(25):
        submitted += draw.expovariate(1 / 15)
        if draw.random() < 0.7:
            jobs.append(gang(f"g{number}", submitted, draw.choice([1, 2, 3, 5, 8]), seconds=draw.uniform(5, 200)))
        else:
            jobs.append(job(f"j{number}", submitted, chunks=draw.randint(1, 5), seconds=draw.uniform(5, 100)))
    made = Planner(get_policy(policy), PlannerSettings(seed=seed, validate=True))
    simulation = Simulation(made)
    prepare(
        simulation, jobs, [node(f"n{at}", gpus=draw.choice([1, 2, 4])) for at in range(4)] + [node("n9", gpus=4)], []
    )
    simulation.run()
    assert not simulation.result().unfinished
    assert all(not queue for host in made.cluster.nodes.values() for queue in host.queues)


@pytest.mark.parametrize(("gpus", "load"), [(2, 10.0), (1, 15.0)])
def test_load_of_a_gang_counts_communication_between_nodes(gpus: int, load: float) -> None:
    """100 mini-batches of 0.1 s, and 0.05 s for each if the members are on two nodes."""
    nodes, network = [node("n0", gpus=gpus), node("n1", gpus=gpus)], LevelNetwork((inf, 1e10))
    made = planner("lwf", nodes, topology=Topology((NODE_LEVEL,)), level_network=network)
    made.handle(JobSubmitted(gang("gang", seconds=10.0, gradient_bits=5e8)), 0.0)
    entries = made.cluster.jobs["default/gang"].entries.values()
    assert [entry.remaining_seconds(0.0) for entry in entries] == pytest.approx([load, load])


def racks(policy: str, *rooms: tuple[str, int], **settings: Any) -> Planner:
    """Return a planner of nodes, each with its rack and its number of GPUs."""
    nodes = [node(f"n{n}", gpus=gpus, labels={RACK: rack}) for n, (rack, gpus) in enumerate(rooms)]
    return planner(policy, nodes, topology=Topology((NODE_LEVEL, RACK)), **settings)


def nodes_of(made: Planner, key: str) -> list[str]:
    return sorted(entry.home.node or "" for entry in made.cluster.jobs[key].entries.values())


@pytest.mark.parametrize("policy", ["lwf", "lwf:kappa=inf", "lwf:placement=random"])
@pytest.mark.parametrize("seed", range(5))
def test_gang_is_bound_within_the_level_that_it_requires(policy: str, seed: int) -> None:
    """Slots of both racks are busy, so a gang without the requirement is bound across the racks."""
    made = racks(policy, ("a", 2), ("b", 2), ("a", 2), ("b", 2), seed=seed)
    made.handle(JobSubmitted(job("busy", chunks=2, seconds=9.0)), 0.0)
    made.handle(JobSubmitted(gang("near", 1.0, 4, required_level=RACK)), 1.0)
    assert nodes_of(made, "default/near") in (["n0", "n0", "n2", "n2"], ["n1", "n1", "n3", "n3"])


def test_required_level_takes_the_group_that_is_free_first() -> None:
    made = racks("lwf", ("a", 2), ("b", 2))
    made.handle(JobSubmitted(gang("busy", 0.0, 2, seconds=50.0)), 0.0)
    made.handle(JobSubmitted(gang("near", 1.0, 2, required_level=RACK)), 1.0)
    made.handle(JobSubmitted(gang("next", 2.0, 2, seconds=10.0, required_level=RACK)), 2.0)
    assert [nodes_of(made, f"default/{name}") for name in ("busy", "near", "next")] == [
        ["n0"] * 2,
        ["n1"] * 2,
        ["n0"] * 2,
    ]


@pytest.mark.parametrize(("members", "level"), [(3, RACK), (2, "example.com/row")])
def test_gang_whose_level_has_no_room_is_not_bound(members: int, level: str) -> None:
    made = racks("lwf", ("a", 2), ("b", 2))
    made.handle(JobSubmitted(gang("wide", members=members, required_level=level)), 0.0)
    assert nodes_of(made, "default/wide") == []
    assert made.plan_of("default/wide", 0.0).waits_for == "LevelSize"


def test_random_placement_follows_the_seed() -> None:
    def homes(seed: int) -> list[tuple[str | None, tuple[int, ...]]]:
        made = planner("lwf:placement=random", [node(f"n{n}", gpus=4) for n in range(4)], seed=seed)
        made.handle(JobSubmitted(gang("gang", members=4)), 0.0)
        return [(entry.home.node, entry.home.slots) for entry in made.cluster.jobs["default/gang"].entries.values()]

    assert homes(1) == homes(1) != homes(2)


@pytest.mark.parametrize("text", ["lwf:kappa=0", "lwf:kappa=nan", "lwf:placement=best", "lwf:order=size"])
def test_invalid_options_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=text.split(":")[1].split("=")[0]):
        get_policy(text)
