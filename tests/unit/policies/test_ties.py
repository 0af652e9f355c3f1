"""Ties between jobs of equal size go to the earlier submission."""

import pytest

from support.builders import job, node
from tranche.simulation.scenario import Scenario, run

BATCHES = 7
"""Number of mini-batches at which an hour is 3,600.0000000000005 s once it is divided by it and multiplied again."""


@pytest.mark.parametrize("policy", ["srsf", "srtf", "sjf"])
def test_equal_sizes_tie_whatever_the_number_of_batches(policy: str) -> None:
    assert BATCHES * (3600.0 / BATCHES) > 3600.0
    jobs = (
        job("first", 0.0, seconds=10.0),
        job("early", 1.0, batches_per_chunk=BATCHES, step_seconds=3600.0 / BATCHES),
        job("late", 2.0, batches_per_chunk=1, step_seconds=3600.0),
    )
    ends = {one.key: one.completed for one in run(Scenario(jobs, (node("n1"),), policy=policy)).jobs}
    assert ends["default/early"] < ends["default/late"]


@pytest.mark.parametrize("policy", ["chunk-faithful", "least-loaded", "least-loaded:order=srsf", "lwf"])
def test_equal_chunks_tie_whatever_the_number_of_batches(policy: str) -> None:
    """With 7 mini-batches a chunk of half an hour is less dense by 1e-19, and an hour of two chunks is longer."""
    early, late = (
        job(name, at, chunks=2, batches_per_chunk=batches, step_seconds=3600.0 / (2 * batches), max_workers=1)
        for name, at, batches in (("early", 0.0, 7), ("late", 600.0, 21))
    )
    ends = {one.key: one.completed for one in run(Scenario((early, late), (node("n1"),), policy=policy)).jobs}
    assert ends == pytest.approx({"default/early": 3600.0, "default/late": 7200.0})
