"""The competitive bound of the JSAC'22 algorithm, as corrected, against a linear program and the exact optimum.

Source: Wang et al., Preemptive Scheduling for Distributed Machine Learning Jobs in Edge-Cloud Networks, IEEE JSAC
40(8):2411-2425, 2022, Theorem 2: D_max (1 + 1/ε)-competitive with speed 1 + ε. The bound here compares the weighted
flow F, not the fractional flow of the theorem: ``F ≤ (1 + 1/ε)·OPT_LP⁺ ≤ 2 (1 + 1/ε)·OPT``. It is checked, not proved.
``Σ_j (c_j − r_j) ≤ D_max·F`` holds for every schedule. `flow_optima` defines the terms.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node
from support.flow_optimum import (
    augmented,
    drawn_exact,
    drawn_relaxed,
    least_flow_seconds,
    relaxed_flow_seconds,
    weighted_flow_seconds,
)
from tranche.model import Job, Node

EPSILONS = st.sampled_from([0.1, 0.5, 1.0, 2.0])
SEEDS = st.integers(0, 2**32)
MEASURED = 1.4
"""F over OPT at equal speed. No theorem says so: drawn instances reach 1.2, and worse dispatch rules exceed 1.4."""


def completed(jobs: list[Job], nodes: list[Node], epsilon: float) -> float:
    """F of the policy on workers of speed 1 + ε, after a look at the JCTs."""
    result = augmented(jobs, nodes, epsilon)
    flow = weighted_flow_seconds(result)
    largest = max(one.chunks for one in jobs)
    assert sum(one.jct_seconds for one in result.jobs) <= largest * flow * (1 + 1e-9)
    return flow


@given(seed=SEEDS, epsilon=EPSILONS)
@settings(max_examples=120)
def test_flow_at_higher_speed_keeps_the_bound_of_the_relaxation(seed: int, epsilon: float) -> None:
    jobs, nodes = drawn_relaxed(random.Random(seed))
    least, _ = relaxed_flow_seconds(jobs, nodes)
    assert completed(jobs, nodes, epsilon) <= (1 + 1 / epsilon) * least


@given(seed=SEEDS, epsilon=EPSILONS)
@settings(max_examples=120)
def test_flow_at_higher_speed_keeps_the_bound_of_the_optimum(seed: int, epsilon: float) -> None:
    jobs, nodes = drawn_exact(random.Random(seed))
    optimum = least_flow_seconds(jobs, nodes)
    assert relaxed_flow_seconds(jobs, nodes)[0] <= 2 * optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= weighted_flow_seconds(augmented(jobs, nodes, 0.0)) <= MEASURED * optimum
    assert completed(jobs, nodes, epsilon) <= 2 * (1 + 1 / epsilon) * optimum


def test_one_chunk_on_ten_workers_needs_the_processing_term() -> None:
    jobs, nodes = [job("a", seconds=60.0)], [node(f"n{i}") for i in range(10)]
    flow = weighted_flow_seconds(augmented(jobs, nodes, 1.0))
    _, fractional = relaxed_flow_seconds(jobs, nodes, processing=False)
    _, relaxed = relaxed_flow_seconds(jobs, nodes)
    optimum = least_flow_seconds(jobs, nodes[:1])
    assert flow == pytest.approx(30.0)
    assert fractional == pytest.approx(3.0)
    assert 2 * 2 * fractional == pytest.approx(12.0)
    assert relaxed == pytest.approx(63.0)
    assert 2 * relaxed == pytest.approx(126.0)
    assert 2 * 2 * optimum == pytest.approx(240.0)
    assert 2 * 2 * fractional < flow < 2 * relaxed < 2 * 2 * optimum


def test_least_flow_of_known_instances_is_found() -> None:
    preempted = [job("long", seconds=3.0), job("short", 1.0, seconds=1.0)]
    assert least_flow_seconds(preempted, [node("n0")]) == pytest.approx(4 + 1)
    assert least_flow_seconds(preempted, [node("n0"), node("n1")]) == pytest.approx(3 + 1)
    split = [job("long", seconds=4.0), job("short", 1.0, seconds=1.0), job("pair", chunks=2, seconds=2.0)]
    assert least_flow_seconds(split, [node("n0"), node("n1")]) == pytest.approx(4 + 1 + (3 + 5) / 2)
