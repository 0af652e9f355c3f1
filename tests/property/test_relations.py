"""Changes of a scenario that must not change its result: the order of its parts, names, the clock, and idle nodes."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from support.builders import gang, job, node, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job, Link, Site, Tier, Utility
from tranche.model.topology import RACK_LEVEL
from tranche.policies import POLICIES
from tranche.simulation.scenario import Scenario, run

WEEK = 604_800.0
"""A multiple of a slot of `oasis`."""


def drawn(policy: str, seed: int) -> Scenario:
    """Return sites with nodes of different speeds, chunked jobs with and without data and servers, and gangs."""
    draw = Random(seed)
    names = [f"s{i}" for i in range(draw.randint(1, 3))]
    links = {name: {other: Link(draw.choice([1e9, 4e9])) for other in names if other > name} for name in names}
    sites = [Site(name, links=links[name]) for name in names]
    if draw.random() < 0.5:
        sites.append(Site("x-cloud", Tier.CLOUD, unlimited=True))
    speeds = draw.choice([(1.0,), (0.5, 1.0, 4.0)])
    nodes = []
    for i in range(draw.randint(1, 5)):
        speed, labels = draw.choice(speeds), {RACK_LEVEL: draw.choice("xy")}
        labels["nvidia.com/gpu.product"] = f"k{speed}"
        nodes.append(node(f"n{i}", draw.choice(names), draw.choice([1, 2, 4]), speed=speed, labels=labels))
    gpus, jobs, at = sum(one.allocatable.gpus for one in nodes), [], 0.0
    for i in range(draw.randint(2, 9)):
        at += draw.randint(1, 400)
        fields: dict[str, Any] = {"seconds": float(draw.randint(10, 3000)), "weight": draw.choice([1.0, 2.0])}
        if draw.random() < 0.5:
            fields["utility"] = Utility(draw.randint(1, 100), draw.choice([0.0, 1e-3]), draw.randint(600, 20_000))
        if POLICIES[policy].traits.supports_gangs and draw.random() < 0.5:
            jobs.append(gang(f"j{i}", at, draw.randint(1, min(6, gpus)), gradient_bits=1e9, **fields))
            continue
        if draw.random() < 0.6:
            fields |= {"data_site": draw.choice(names), "chunk_bytes": draw.choice([1e9, 5e9])}
        if draw.random() < 0.4:
            fields |= {"server": worker(0), "servers": 1, "gradient_bits": 1e7}
        jobs.append(job(f"j{i}", at, chunks=draw.randint(1, 6), max_workers=draw.randint(1, 6), **fields))
    network = draw.choice([None, LevelNetwork((3e11, 1e11, 1e10, 1e9))])
    restart = draw.choice([0.0, 40.0])
    return Scenario(
        tuple(jobs), tuple(nodes), tuple(sites), policy, seed=1, restart_seconds=restart, level_network=network
    )


def completions(scenario: Scenario, changed: Callable[[Job], Job] = lambda one: one) -> dict[str, float]:
    """Return when each job, by uid, completed after its submission."""
    jobs = tuple(map(changed, scenario.jobs))
    result = run(replace(scenario, jobs=jobs))
    assert not result.unfinished
    uids = {one.key: one.uid for one in jobs}
    return {uids[one.key]: one.completed - one.submitted for one in result.jobs}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_order_names_clock_and_unusable_nodes_change_nothing(policy: str, seed: int) -> None:
    scenario = drawn(policy, seed)
    expected = pytest.approx(completions(scenario), rel=1e-6)
    shuffled: dict[str, Any] = {
        field: tuple(Random(seed).sample(parts, len(parts)))
        for field, parts in (("jobs", scenario.jobs), ("nodes", scenario.nodes), ("sites", scenario.sites))
    }
    assert completions(replace(scenario, **shuffled)) == expected
    assert completions(scenario, lambda one: replace(one, key=f"default/{one.uid[::-1]}")) == expected
    assert completions(scenario, lambda one: replace(one, submitted=one.submitted + WEEK)) == expected
    larger = replace(scenario.nodes[0], name="a-unused", allocatable=node("a", gpus=8).allocatable)
    for unused in (replace(larger, ready=False), replace(larger, unschedulable=True)):
        assert completions(replace(scenario, nodes=(*scenario.nodes, unused))) == expected
