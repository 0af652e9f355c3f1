"""Network model of the simulator: gangs communicate over the links of the topology level that they share."""

from dataclasses import replace

import pytest

from support.builders import gang, job, node, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job, Node
from tranche.model.topology import RACK_LEVEL
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.model_family import families, with_families

NETWORK = LevelNetwork((400e9, 100e9, 10e9, 1e9))
GANG = gang("a", members=4, seconds=100.0, gradient_bits=1e9)
"""100 mini-batches of 1 s; a ring of four sends 1.5 Gbit in each."""


def nodes(gpus: int, racks: str, sites: str = "aaaa") -> tuple[Node, ...]:
    pairs = enumerate(zip(racks, sites, strict=False))
    return tuple(node(f"n{i}", f"edge-{site}", gpus, labels={RACK_LEVEL: rack}) for i, (rack, site) in pairs)


def simulated(jobs: tuple[Job, ...], cluster: tuple[Node, ...], **changes: object) -> SimulationResult:
    given = {"policy": "fifo", "level_network": NETWORK, **changes}
    return run(Scenario(jobs, cluster, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cluster", "communication"),
    [
        (nodes(4, "x"), 0.375),
        (nodes(1, "xxxx"), 1.5),
        (nodes(1, "xxyy"), 15.0),
        (nodes(1, "xxxx", "aabb"), 150.0),
    ],
)
def test_gang_takes_the_time_of_its_level(cluster: tuple[Node, ...], communication: float) -> None:
    (result,) = simulated((GANG,), cluster).jobs
    assert result.completed == pytest.approx(100 + communication, rel=1e-12)
    assert result.communication_seconds == pytest.approx(communication, rel=1e-9)


def test_without_network_model_communication_takes_no_time() -> None:
    (result,) = simulated((GANG,), nodes(1, "xxyy"), level_network=None).jobs
    assert (result.completed, result.communication_seconds) == (100.0, 0.0)


@pytest.mark.parametrize("misled", [{"unsized": 1.0}, {"estimate_sigma": 2.0, "seed": 3}], ids=str)
def test_wrong_duration_does_not_change_communication(misled: dict[str, float]) -> None:
    elastic = job("b", gradient_bits=1e9, servers=1, server=worker(0), data_site="edge-a")
    for known, cluster in ((GANG, nodes(1, "xxyy")), (elastic, nodes(1, "x"))):
        (right,), (wrong,) = simulated((known,), cluster).jobs, simulated((known,), cluster, **misled).jobs
        assert wrong.completed == pytest.approx(right.completed, rel=1e-9)


def test_one_pod_with_four_gpus_communicates_within_its_node() -> None:
    one = job("a", gradient_bits=1e9, worker=worker(4))
    (result,) = simulated((one,), nodes(4, "x")).jobs
    assert result.completed == pytest.approx(100.375, rel=1e-12)


def test_server_in_the_same_rack_is_reached_over_its_link() -> None:
    elastic = job("a", gradient_bits=1e9, servers=1, server=worker(0), data_site="edge-a")
    (result,) = simulated((elastic,), nodes(1, "x")).jobs
    assert result.completed == pytest.approx(100 + 100 * 2 / 400, rel=1e-12)


def test_jobs_of_families_last_as_logged_on_one_node() -> None:
    logged = [replace(GANG, key=f"default/{i}", uid=f"u{i}", gradient_bits=0.0) for i in range(20)]
    drawn = with_families(logged, [""] * 20, NETWORK, 1)
    for one in drawn:
        (result,) = simulated((one,), nodes(4, "x")).jobs
        assert result.completed == pytest.approx(100.0, rel=1e-9)
    assert len({one.step_seconds for one in drawn}) > 5
    assert any(one.gradient_bits > 0 for one in drawn)


def test_family_on_several_nodes_takes_the_measured_time() -> None:
    family = families()["LM (batch size 20)"]
    together, apart = family.seconds[8]
    plain = LevelNetwork((1e30, 10e9))
    one = replace(gang("a", members=8), batches_per_chunk=1, step_seconds=together)
    (drawn,) = with_families([one], [family.name], plain, 1)
    assert drawn.step_seconds + plain.ring_seconds(drawn, 1) == pytest.approx(apart, rel=1e-6)
