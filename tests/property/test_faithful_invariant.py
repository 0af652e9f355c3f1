"""The exact invariant of the dispatch rule of JSAC'22, eq. (5), on the production planner: Σ Q = F."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, worker
from tranche.model import Job, Site, Tier
from tranche.planner import JobSubmitted, NodeChanged, Planner, PlannerSettings, SiteChanged
from tranche.policies import Placement
from tranche.policies.binding.chunk_faithful import ChunkFaithful
from tranche.simulation import Simulation
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True)
class Recording(ChunkFaithful):
    """The production policy; notes the cost Q of each dispatched chunk."""

    costs: list[float] = field(default_factory=list)

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        placements, colocated = super().dispatch(cluster, state, chunks, now, sites)
        self.costs.extend(placement.cost for placement in placements)
        return placements, colocated


@st.composite
def workloads(draw: st.DrawFn, width: int = 1) -> list[Job]:
    count = draw(st.integers(1, 12))
    arrivals = draw(st.lists(st.floats(0, 500, allow_nan=False), min_size=count, max_size=count))
    return [
        job(
            f"j{i}",
            submitted,
            chunks=draw(st.integers(1, 6)),
            seconds=draw(st.floats(0.5, 300, allow_nan=False)),
            servers=0,
            weight=draw(st.sampled_from([0.5, 1.0, 2.0])),
            worker=worker(gpus=width),
        )
        for i, submitted in enumerate(sorted(arrivals))
    ]


@given(jobs=workloads(), gpus=st.lists(st.integers(1, 3), min_size=1, max_size=4), cloud=st.booleans())
@settings(max_examples=150)
def test_dispatch_costs_sum_to_weighted_chunk_completion_times(jobs: list[Job], gpus: list[int], cloud: bool) -> None:
    check_sums(jobs, gpus, cloud)


@given(jobs=workloads(width=2), count=st.integers(1, 4), cloud=st.booleans())
@settings(max_examples=50)
def test_costs_of_workers_of_two_gpus_sum_to_completion_times(jobs: list[Job], count: int, cloud: bool) -> None:
    """Nodes of two GPUs: a less dense chunk is delayed once, although it has both slots of a worker."""
    check_sums(jobs, [2] * count, cloud)


def check_sums(jobs: list[Job], gpus: list[int], cloud: bool) -> None:
    policy = Recording()
    simulation = Simulation(Planner(policy, PlannerSettings(validate=True)))
    if cloud:
        simulation.planner.handle(SiteChanged(Site("cloud", Tier.CLOUD, unlimited=True)), 0.0)
    for i, count in enumerate(gpus):
        simulation.planner.handle(NodeChanged(node(f"n{i}", f"edge-{i % 2}", count)), 0.0)
    for one in jobs:
        simulation.at(one.submitted, JobSubmitted(one))
    simulation.run()
    result = simulation.result()
    assert not result.unfinished
    specs = {one.key: one for one in jobs}
    weighted = sum(
        (end - done.submitted) * specs[done.key].weight / specs[done.key].chunks
        for done in result.jobs
        for end in done.chunk_completions
    )
    assert sum(policy.costs) == pytest.approx(weighted, rel=1e-9)
