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
