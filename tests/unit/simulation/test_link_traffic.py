"""Contention between gangs in the simulator: shared uplinks slow them down, and what was trained stays trained."""

from collections import Counter
from random import Random

import pytest

from support.builders import gang, node
from tranche.estimate import LevelNetwork
from tranche.estimate.link_contention import PENALTY_RATIO
from tranche.model import Job, Node
from tranche.model.topology import RACK_LEVEL
from tranche.simulation.engine.link_traffic import LinkTraffic, Sender, Uplink
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.scenario import NodeFailure, Scenario, run
from tranche.state.topology_fit import TopologyIndex

NETWORK = LevelNetwork((400e9, 100e9, 10e9, 1e9))
SHARE = 0.2 / 1.2
"""Part of the time in which a gang of `pair` communicates if it is alone: 0.2 s of each mini-batch of 1.2 s."""


def racks(names: str) -> tuple[Node, ...]:
    """Return a node of one GPU for each letter, in the rack of that name; `pair` takes them two by two."""
    return tuple(node(f"n{at:02}", "edge", labels={RACK_LEVEL: name}) for at, name in enumerate(names))


def pair(name: str, submitted: float = 0.0, batches: int = 100, **changes: object) -> Job:
    """Return a gang of two members: 1 s and, between racks, 0.2 s for each mini-batch."""
    given = {"batches_per_chunk": batches, "step_seconds": 1.0, "gradient_bits": 2e9, **changes}
    return gang(name, submitted, 2, **given)


def simulated(jobs: list[Job], nodes: tuple[Node, ...], **changes: object) -> SimulationResult:
    given = {"policy": "fifo-skip", "level_network": NETWORK, **changes}
    result = run(Scenario(tuple(jobs), nodes, **given))  # type: ignore[arg-type]
    assert not result.unfinished
    return result


def ends(result: SimulationResult) -> dict[str, float]:
    return {one.key.partition("/")[2]: one.completed for one in result.jobs}


def batch(others: int) -> float:
    """Return the time of a mini-batch beside this number of other pairs."""
    return 1 + 0.2 * (1 + others * SHARE * (1 + PENALTY_RATIO))


def test_gang_alone_takes_the_time_without_contention() -> None:
    one, other = (simulated([pair("a")], racks("xy"), contention=on) for on in (True, False))
    assert ends(one) == ends(other) == {"a": 100 * 1.2}


def test_gangs_without_a_common_uplink_do_not_meet() -> None:
    one, other = (simulated([pair("a"), pair("b")], racks("xyzw"), contention=on) for on in (True, False))
    assert ends(one) == ends(other) == {"a": 120.0, "b": 120.0}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_gangs_on_the_same_uplinks_end_together(count: int) -> None:
    result = simulated([pair(str(at)) for at in range(count)], racks("xy" * count))
    assert list(ends(result).values()) == pytest.approx([100 * batch(count - 1)] * count, rel=1e-9)
    communicated = [one.communication_seconds for one in result.jobs]
    assert communicated == pytest.approx([100 * (batch(count - 1) - 1)] * count, rel=1e-9)


def test_gang_that_only_communicates_follows_the_law_of_k() -> None:
    result = simulated([pair(name, step_seconds=1e-12) for name in "abc"], racks("xy" * 3))
    assert list(ends(result).values()) == pytest.approx([100 * 0.2 * (3 + 2 * PENALTY_RATIO)] * 3, rel=1e-9)


def test_many_gangs_send_no_more_than_their_uplink_can_carry() -> None:
    """Twelve gangs that communicate a sixth of the time are twice the capacity of 10 Gbit/s between racks."""
    result = simulated([pair(str(at)) for at in range(12)], racks("xy" * 12))
    assert list(ends(result).values()) == pytest.approx([100 * 12 * 2e9 / 10e9] * 12, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_gangs_on_an_uplink_send_within_its_capacity(seed: int) -> None:
    draw, nodes = Random(seed), [node(f"n{at}", f"s{at % 3}", labels={RACK_LEVEL: f"r{at % 2}"}) for at in range(12)]
    traffic = LinkTraffic(NETWORK, TopologyIndex())
    # Bits and seconds of a mini-batch without contention, and the uplinks.
    bits: dict[Sender, tuple[float, float, tuple[Uplink, ...]]] = {}
    extra: dict[Sender, float] = {}
    for number in range(60):
        chosen, alone = draw.sample(nodes, draw.randint(2, 4)), draw.uniform(0.01, 1.0)
        uplinks, level = traffic.uplinks(chosen)
        batch_seconds, rate = alone * draw.choice([1.0, 3.0, 10.0]), NETWORK.slowest(level)
        sender: Sender = str(number)
        if number % 2 == 0:
            extra |= traffic.begin(str(number), chosen, alone, batch_seconds)
        else:
            sender, rate = (str(number), 1), rate * draw.choice([0.1, 1.0])
            extra |= traffic.begin_exchange(sender, chosen, alone, batch_seconds, rate * alone, outside=False)
        bits[sender] = rate * alone, batch_seconds, uplinks
        used: Counter[Uplink] = Counter()
        for one, (sent, seconds, crossed) in bits.items():
            used.update(dict.fromkeys(crossed, sent / (seconds + extra.get(one, 0.0))))
        assert all(rate <= NETWORK.bits_per_second[uplink[0] + 1] * (1 + 1e-9) for uplink, rate in used.items())


def test_uploads_do_not_stretch_the_computation_of_gangs() -> None:
    """Uploads can fill an uplink at any time: a gang that communicates a sixth of the time waits only in that part."""
    traffic, nodes = LinkTraffic(NETWORK, TopologyIndex()), [node("a", "x"), node("b", "y")]
    traffic.begin("gang", nodes, 0.2, 1.2)
    extra: dict[Sender, float] = {}
    for number in range(4):
        extra |= traffic.begin_upload((f"from {number}", "to"), nodes, 1e9)
    assert extra["gang"] == pytest.approx(0.2 * 4 * (1 + PENALTY_RATIO))


def test_what_was_trained_before_a_change_stays_trained() -> None:
    """The other gang comes after 30 s and goes when its 20 mini-batches are done; alone, a mini-batch takes 1.2 s."""
    result = ends(simulated([pair("a"), pair("b", 30.0, 20)], racks("xyxy")))
    together = 20 * batch(1)
    trained = 30 / 1.2 + together / batch(1)
    assert result["b"] == pytest.approx(30 + together, rel=1e-12)
    assert result["a"] == pytest.approx(30 + together + (100 - trained) * 1.2, rel=1e-12)


def test_gang_that_loses_a_node_leaves_the_links() -> None:
    """The lost gang finds no other node before the first one is done."""
    failure = NodeFailure("n02", 60.0, 500.0)
    result = ends(simulated([pair("a"), pair("b")], racks("xyxy"), failures=(failure,)))
    assert result["a"] == pytest.approx(60 + (100 - 60 / batch(1)) * 1.2, rel=1e-12)
    assert result["b"] == pytest.approx(result["a"] + 120.0, rel=1e-12)


@pytest.mark.parametrize("policy", ["srsf", "lwf", "chunk", "fifo"])
@pytest.mark.parametrize("seed", range(2))
def test_batches_are_conserved_under_any_course(policy: str, seed: int) -> None:
    """Communication and computation add up to the trained time, with preemption too; contention only adds time."""
    draw, jobs, at = Random(seed), [], 0.0
    for number in range(30):
        at += draw.expovariate(1 / 40)
        members, batches = draw.choice([1, 2, 3, 4, 6]), draw.randint(10, 200)
        bits = draw.choice([0.0, 1e9, 5e9])
        jobs.append(gang(str(number), at, members, batches_per_chunk=batches, step_seconds=1.0, gradient_bits=bits))
    result = simulated(jobs, racks("xxyyzzxy"), policy=policy, seed=seed)
    known = {job.key: job for job in jobs}
    for one in result.jobs:
        trained = one.attained_gpu_seconds / known[one.key].chunks
        assert trained == pytest.approx(known[one.key].batches_per_chunk + one.communication_seconds, rel=1e-9)


def test_adding_a_gang_never_speeds_another_up() -> None:
    draw = Random(5)
    traffic = LinkTraffic(NETWORK, TopologyIndex())
    extra: dict[Sender, float] = {}
    nodes = racks("wxyzwxyz")
    for number in range(12):
        changed = traffic.begin(str(number), draw.sample(nodes, draw.randint(2, 4)), 0.2, draw.choice([0.3, 1.0, 4.0]))
        assert all(seconds > extra.get(job, 0.0) for job, seconds in changed.items())
        extra.update(changed)
    for number in range(12):
        changed = traffic.end(str(number))
        assert all(seconds < extra[job] for job, seconds in changed.items())
        extra.update(changed)
    assert not traffic.loads.loads
