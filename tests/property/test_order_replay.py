"""The replay of completed jobs gives them the average JCT that they have in the simulator.

With restart costs it may differ by a restart now and then: the simulator accepts some preemptions that the replay does
not, and the reverse.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tranche.model import UNKNOWN_DURATION_SECONDS
from tranche.policies.queue.order_replay import ORDERS, average_jct_seconds
from tranche.simulation.cluster_spec import pool
from tranche.simulation.job_log import TraceRow
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import gang_jobs
from tranche.state.tenant_usage import CompletedJob

GPUS = 6
ROWS = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, GPUS), st.integers(1, 20_000)), min_size=1, max_size=12)
"""Submission, GPUs and seconds of each job."""


@pytest.mark.parametrize("order", sorted(ORDERS))
@settings(max_examples=50)
@given(rows=ROWS, sizes_known=st.booleans(), restart=st.sampled_from((0, 60)))
def test_replay_agrees_with_the_simulator(
    order: str, rows: list[tuple[int, int, int]], sizes_known: bool, restart: int
) -> None:
    rows = sorted(rows)
    cluster = pool(GPUS)
    jobs = tuple(gang_jobs((TraceRow(f"{n:02}", *row) for n, row in enumerate(rows)), cluster.nodes))
    unsized = 0.0 if sizes_known else 1.0
    scenario = Scenario(jobs, cluster.nodes, cluster.sites, order, restart_seconds=restart, unsized=unsized)
    completed = [
        CompletedJob(
            gpu_seconds=gpus * seconds,
            submitted=submitted,
            gpus=gpus,
            nominal_gpu_seconds=gpus * (seconds if sizes_known else UNKNOWN_DURATION_SECONDS),
            size_declared=sizes_known,
            restart_seconds=restart,
        )
        for submitted, gpus, seconds in rows
    ]
    expected = run(scenario).average_jct_seconds
    near = pytest.approx(expected, rel=0.05) if restart else pytest.approx(expected, abs=0.01)
    assert average_jct_seconds(completed, GPUS, order) == near


def test_jobs_that_do_not_fit_are_left_out() -> None:
    assert average_jct_seconds([CompletedJob(80.0, 0.0, 8, 80.0)], 4, "srsf") == 0.0
    assert average_jct_seconds([CompletedJob(80.0, 0.0, 8, 80.0), CompletedJob(5.0, 0.0, 1, 5.0)], 4, "srsf") == 5.0
