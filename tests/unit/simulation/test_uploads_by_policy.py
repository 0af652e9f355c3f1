"""Uploads of all policies share uplinks by one rule."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from support.builders import job, node
from tranche.estimate import LevelNetwork
from tranche.estimate.link_contention import PENALTY_RATIO
from tranche.model import Job, Link, Site, Tier
from tranche.planner import ChunkStaged, Event, Planner, Tick
from tranche.policies import POLICIES
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.engine.shared_uploads import SharedUploads
from tranche.simulation.engine.simulation import Simulation
from tranche.simulation.scenario import Scenario, prepared, run

WAN = 1e9
NETWORK = LevelNetwork((400e9, 100e9, 10e9, WAN))
ALONE = 10.0
"""Seconds of an upload of a chunk of 1.25 GB that shares no link."""
BOTH = ALONE * (2 + PENALTY_RATIO)
"""Seconds of each of two uploads that share an uplink from their first to their last byte."""
BY_POLICY = [
    # Data of chunk 0 go to one site and those of chunk 1 to the other, at the same time.
    ("chunk-faithful", ALONE + 100, BOTH + 100),
    ("lwf", ALONE + 100, BOTH + 100),
    ("srsf:uploads=held", ALONE + 100, BOTH + 100),
    # Data of both chunks go to both sites, those of chunk 0 first.
    ("srsf", 2 * ALONE + 100, 2 * BOTH + 100),
    ("fifo", 2 * ALONE + 100, 2 * BOTH + 100),
    ("tiresias", 2 * ALONE + 100, 2 * BOTH + 100),
]
"""Policy, and completion of a job of two chunks of 100 s, alone and with shared uplinks."""


def scenario(policy: str, jobs: tuple[Job, ...], *, shared: bool, gpus: int = 1) -> Scenario:
    """Return a scenario with data at site a, which has no GPU, and GPUs at b and c."""
    sites = (Site("a", links={"b": Link(WAN), "c": Link(WAN)}), Site("b", links={"c": Link(WAN)}), Site("c"))
    nodes = (node("n-a", "a", 0), node("n-b", "b", gpus), node("n-c", "c", gpus))
    return Scenario(jobs, nodes, sites, policy, level_network=NETWORK, contention=shared)


def two_chunks(**changes: Any) -> Job:
    return job("j", chunks=2, data_site="a", chunk_bytes=WAN * ALONE / 8, **changes)


@pytest.mark.parametrize(("policy", "alone", "shared"), BY_POLICY)
def test_policy_pays_for_the_uplink_that_it_shares(policy: str, alone: float, shared: float) -> None:
    ends = [run(scenario(policy, (two_chunks(),), shared=on)).jobs[0].completed for on in (False, True)]
    assert ends == pytest.approx([alone, shared])


def drawn_jobs() -> tuple[Job, ...]:
    """Return eight jobs of 1 to 4 chunks with data at all sites."""
    draw, jobs = Random(3), []
    for number in range(8):
        chunks, seconds, site = draw.randint(1, 4), draw.choice([20.0, 60.0]), draw.choice("abc")
        sizes: dict[str, Any] = {"chunks": chunks, "seconds": seconds, "chunk_bytes": WAN * ALONE / 8}
        jobs.append(job(f"j{number}", 15.0 * number, data_site=site, **sizes))
    return tuple(jobs)


@pytest.mark.parametrize("name", sorted(name for name in POLICIES if name != "srpt-pool"))
def test_no_policy_sends_faster_than_the_uplink(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All uploads of a site together take at least as long as one after the other; srpt-pool sends nothing."""
    sent: dict[str, list[tuple[float, float]]] = defaultdict(list)
    arrive = SharedUploads.arrive

    def watched(self: SharedUploads, cluster: object, event: ChunkStaged, now: float) -> object:
        found = arrive(self, cluster, event, now)  # type: ignore[arg-type]
        if found[0] is not None:
            assert found[0].seconds >= ALONE * (1 - 1e-9)
            sent[homes[event.job]].append((now - found[0].seconds, now))
        return found

    monkeypatch.setattr(SharedUploads, "arrive", watched)
    simulation = prepared(scenario(name, drawn_jobs(), shared=True, gpus=2))
    homes = {one.key: one.data_site or "" for one in drawn_jobs()}
    context = simulation.planner.context
    context.settings, context.cluster.validate = replace(context.settings, validate=True), True
    assert completed(simulation)
    assert sent
    for uploads in sent.values():
        span, until = 0.0, 0.0
        for began, end in sorted(uploads):
            span += max(0.0, end - max(began, until))
            until = max(until, end)
        assert len(uploads) * ALONE <= span * (1 + 1e-9)


@pytest.mark.parametrize("name", ["srsf:uploads=held", "dally-like", "chunk"])
def test_planner_decides_only_at_events_and_timers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live planner does not learn when contention moves an end, or when a part of a worker's data has arrived."""
    decide = Planner.handle_all

    def watched(self: Planner, events: Iterable[Event], now: float) -> object:
        given, wakeup = tuple(events), self.next_wakeup()
        assert any(not isinstance(event, Tick) for event in given) or (wakeup is not None and wakeup <= now)
        return decide(self, given, now)

    monkeypatch.setattr(Planner, "handle_all", watched)
    assert completed(prepared(scenario(name, drawn_jobs(), shared=True, gpus=2)))


def test_uploads_of_a_complete_job_end() -> None:
    """A policy that uploads everything does not slow down the next job with data that no worker needs."""
    first = replace(two_chunks(), chunks=1, max_workers=1, data_site="b")
    other = job("next", 30.0, data_site="b", chunk_bytes=1e12)
    simulation = prepared(scenario("srsf", (replace(first, step_seconds=0.01), other), shared=True))
    simulation.run()
    assert max(one.completed for one in simulation.completed) == pytest.approx(130.0)
    assert not simulation.traffic.loads.loads  # type: ignore[union-attr]


def test_fetch_of_a_preempted_worker_leaves_the_link() -> None:
    long = job("long", data_site="a", seconds=1000.0, chunk_bytes=WAN * 1000 / 8)
    short = job("short", 5.0, data_site="b", seconds=10.0)
    given = scenario("srsf:uploads=held", (long, short), shared=True)
    nodes = tuple(one for one in given.nodes if one.site != "c")
    simulation = prepared(replace(given, nodes=nodes))
    ends = completed(simulation)
    assert ends["short"] == 15.0
    assert ends["long"] == pytest.approx(15.0 + 1000.0 + 1000.0)


def completed(simulation: Simulation) -> dict[str, float]:
    """Run the simulation; return when each job has completed."""
    simulation.run()
    assert not simulation.result().unfinished
    return {one.key.partition("/")[2]: one.completed for one in simulation.completed}


@pytest.mark.parametrize("policy", ["chunk-faithful", "srsf", "chunk"])
def test_clouds_have_no_uplink_limit(policy: str) -> None:
    """Two jobs with data at two edge sites train in the cloud; only their own uplinks count."""
    sites = (
        Site("a", links={"cloud": Link(WAN)}),
        Site("b", links={"cloud": Link(WAN)}),
        Site("cloud", Tier.CLOUD),
    )
    nodes = (node("n-a", "a", 0), node("n-b", "b", 0), node("n-c", "cloud", 2))
    jobs = tuple(job(f"from-{at}", data_site=at, chunk_bytes=WAN * ALONE / 8) for at in "ab")
    result = run(Scenario(jobs, nodes, sites, policy, level_network=NETWORK))
    assert [one.completed for one in result.jobs] == pytest.approx([ALONE + 100] * 2)


def test_gradients_share_the_uplink_with_uploads() -> None:
    """The worker alone sends for 1 s of each 2 s at the full rate, so it counts as half a transfer for the upload."""
    trained = job("t", seconds=100.0, servers=1, gradient_bits=WAN / 2, bits_per_second=WAN, data_site="a")
    trained = replace(trained, server=replace(trained.worker, requests=replace(trained.worker.requests, gpus=0)))
    alone = run(scenario("chunk-faithful", (trained,), shared=True))
    assert completion(alone, "t") == pytest.approx(200.0)
    other = replace(two_chunks(), chunks=1, max_workers=1)
    both = run(scenario("chunk-faithful", (trained, other), shared=True, gpus=2))
    upload, batch = ALONE * (1 + (1 + PENALTY_RATIO) / 2), 2 + (1 + PENALTY_RATIO)
    assert completion(both, "j") == pytest.approx(upload + 100)
    assert completion(both, "t") == pytest.approx(200 + upload * (1 - 2 / batch))


def completion(result: SimulationResult, name: str) -> float:
    return next(one.completed for one in result.jobs if one.key == f"default/{name}")
