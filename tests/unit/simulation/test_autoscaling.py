"""Nodes that come on demand and go when they are idle, in virtual time."""

import pytest

from support.builders import gang, job, node, worker
from tranche.model import Job, Node, Site, Tier
from tranche.planner import PlannerSettings
from tranche.planner.journal import Fact, JournaledPlanner
from tranche.policies import get_policy
from tranche.simulation.engine.autoscaling import Autoscaling, Machines
from tranche.simulation.engine.control_plane_delays import DelayedSimulation, Delays
from tranche.simulation.engine.result import JobResult
from tranche.simulation.engine.simulation import prepare

DELAYS = Delays(start_seconds=1.0, save_seconds=0.5, handover_seconds=0.25, gang_seconds=0.5, node_seconds=10.0)


def test_pods_share_a_node_that_is_coming_and_one_that_is_there() -> None:
    machines = Machines(Autoscaling(gpus=2, idle_seconds=5.0))
    assert machines.take("a", 1, 0.0, 10.0) == 10.0
    assert machines.take("b", 1, 4.0, 10.0) == 10.0
    assert machines.take("c", 1, 4.0, 10.0) == 14.0
    machines.give("a", 20.0)
    assert machines.take("d", 1, 21.0, 10.0) == 21.0
    assert machines.created == 2


def test_the_fullest_node_is_taken_so_that_others_can_go() -> None:
    machines = Machines(Autoscaling(gpus=2, idle_seconds=5.0))
    for pod in ("a", "b", "c"):
        machines.take(pod, 1, 0.0, 10.0)
    machines.give("a", 20.0)
    machines.give("c", 20.0)  # its node is empty now
    machines.take("d", 1, 21.0, 10.0)
    assert machines.take("e", 2, 26.0, 10.0) == 36.0, "the empty node has gone"
    assert machines.created == 3


def test_an_idle_node_goes_after_its_time_and_not_before() -> None:
    machines = Machines(Autoscaling(gpus=1, idle_seconds=5.0))
    machines.take("a", 1, 0.0, 10.0)
    machines.give("a", 12.0)
    assert machines.take("b", 1, 16.9, 10.0) == 16.9
    machines.give("b", 18.0)
    assert machines.take("c", 1, 23.0, 10.0) == 33.0


def test_node_released_before_arrival_is_idle_from_its_arrival() -> None:
    machines = Machines(Autoscaling(gpus=1, idle_seconds=5.0))
    machines.take("a", 1, 0.0, 10.0)
    machines.give("a", 1.0)
    machines.give("unknown", 1.0)
    assert machines.take("b", 1, 14.0, 10.0) == 14.0


def ran(jobs: list[Job], nodes: list[Node], policy: str = "chunk") -> tuple[dict[str, JobResult], list[Fact]]:
    facts: list[Fact] = []
    planner = JournaledPlanner(get_policy(policy), PlannerSettings(validate=True), facts.append)
    simulation = DelayedSimulation(
        planner, delays=DELAYS, autoscaling={"cloud": Autoscaling(gpus=2, idle_seconds=20.0)}, record=True
    )
    sites = [Site(name) for name in sorted({one.site for one in nodes})]
    prepare(simulation, jobs, nodes, [*sites, Site("cloud", Tier.CLOUD, unlimited=True, start_seconds=10.0)])
    simulation.run()
    result = simulation.result()
    assert not result.unfinished
    return {one.key.removeprefix("default/"): one for one in result.jobs}, facts


@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
def test_first_cloud_start_waits_for_a_node_and_later_ones_not(policy: str) -> None:
    jobs, _ = ran([job("first"), job("second", 30.0), job("third", 300.0)], [], policy)
    assert jobs["first"].started == 10.0
    assert jobs["second"].started == 31.0, "the node has two GPUs"
    assert jobs["third"].started == 310.0, "the node went in the meantime"


def test_a_pod_without_gpus_keeps_its_node_from_going() -> None:
    machines = Machines(Autoscaling(gpus=1, idle_seconds=5.0))
    assert machines.take("worker", 1, 0.0, 10.0) == machines.take("server", 0, 0.0, 10.0) == 10.0
    machines.give("worker", 20.0)
    assert machines.take("next", 1, 60.0, 10.0) == 60.0
    assert machines.created == 1


def test_parameter_server_in_cloud_shares_node_with_its_worker() -> None:
    served = job("served", chunks=1, seconds=200.0, servers=1, server=worker(0))
    jobs, _ = ran([served, job("later", 205.0)], [])
    assert (jobs["served"].started, jobs["later"].started) == (10.0, 206.0)


def test_a_member_of_a_gang_starts_later_than_a_single_worker() -> None:
    jobs, _ = ran([gang("pair"), job("single", 300.0)], [node("n1", gpus=2)])
    assert (jobs["pair"].started, jobs["single"].started) == (1.5, 301.0)
