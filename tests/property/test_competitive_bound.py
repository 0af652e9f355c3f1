"""The competitive bound of the JSAC'22 algorithm against the linear relaxation, solved by HiGHS.

Source: Wang et al., IEEE JSAC 40(8), 2022, Theorem 1 (D_max (1 + 1/ε)-competitive with speed 1 + ε); algorithms.md 1.2
[D]: ``Σ_{j,d} (1/D_j)(C_jd − r_j) ≤ (1 + 1/ε)·2·OPT_LP`` and ``Σ_j (C_j − r_j) ≤ D_max`` times the left side.

OPT_LP: chunk c gets x_cwt seconds on worker w in slot t of one second; it is whole when Σ x/p_cw = 1, a worker gives a
second a slot, and a chunk pays its weight × (t − r)/p_cw per second, t the slot's begin. The relaxation in continuous
time is at least this, and at most half a second a job more.
"""

from dataclasses import replace

import highspy
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job, node
from tranche.model import Job, Node
from tranche.policies import get_policy
from tranche.simulation import simulate


def relaxed_flow_seconds(jobs: list[Job], nodes: list[Node]) -> float:
    """OPT_LP: the least weighted fractional flow time of all chunks, at speed 1."""
    chunks = [(one, one.batches_per_chunk_total * one.step_seconds) for one in jobs for _ in range(one.chunks)]
    slowest = min(host.speed for host in nodes)
    slots = int(max(one.submitted for one in jobs) + sum(seconds / slowest for _, seconds in chunks)) + 1
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    rows: dict[tuple[int, int], list[int]] = {}
    columns = 0
    for one, seconds in chunks:
        begin = int(one.submitted)
        served, shares = [], []
        for w, host in enumerate(nodes):
            length = seconds / host.speed
            for t in range(begin, slots):
                solver.addVar(0.0, 1.0)
                solver.changeColCost(columns, (t - begin) / length / one.chunks)
                rows.setdefault((w, t), []).append(columns)
                served.append(columns)
                shares.append(1 / length)
                columns += 1
        solver.addRow(1.0, highspy.kHighsInf, len(served), np.array(served), np.array(shares))
    for used in rows.values():
        solver.addRow(-highspy.kHighsInf, 1.0, len(used), np.array(used), np.ones(len(used)))
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(solver.getObjectiveValue())


CHUNKS = st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(1, 6))
"""Submission, number of chunks, seconds of each."""


@given(
    given_jobs=st.lists(CHUNKS, min_size=1, max_size=4),
    speeds=st.lists(st.sampled_from([1.0, 2.0]), min_size=1, max_size=3),
    epsilon=st.sampled_from([0.1, 0.5, 1.0, 2.0]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_faster_machines_make_the_algorithm_competitive_with_the_relaxed_optimum(
    given_jobs: list[tuple[int, int, int]], speeds: list[float], epsilon: float
) -> None:
    jobs = [job(f"j{i}", float(r), chunks=d, seconds=float(s)) for i, (r, d, s) in enumerate(given_jobs)]
    nodes = [node(f"n{i}", f"edge-{i}", speed=speed) for i, speed in enumerate(speeds)]
    faster = [replace(one, speed=one.speed * (1 + epsilon)) for one in nodes]
    result = simulate(jobs, faster, (), get_policy("chunk-faithful"))
    assert len(result.jobs) == len(jobs)
    flows = [[end - one.submitted for end in one.chunk_completions] for one in result.jobs]
    weighted = sum(sum(chunks) / len(chunks) for chunks in flows)
    flow = sum(one.jct_seconds for one in result.jobs)
    bound = (1 + 1 / epsilon) * 2 * (relaxed_flow_seconds(jobs, nodes) + len(jobs) / 2)
    assert weighted <= bound
    assert flow <= max(one.chunks for one in jobs) * weighted + 1e-9
