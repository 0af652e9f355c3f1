"""Correction of declared sizes by completed jobs of the namespace."""

from math import exp

import pytest

from tranche.estimate import DeclaredSizes
from tranche.estimate.declared_size import MIN_JOBS
from tranche.estimate.namespace_measurements import MAX_NAMESPACES
from tranche.simulation.named_random import lognormal


def taught(sigma: float, spread: float = 2.0, bias: float = 1.0, jobs: int = 3000) -> DeclaredSizes:
    """Return what jobs of log-normal sizes teach whose declarations are off by a factor of σ."""
    sizes = DeclaredSizes()
    for number in range(jobs):
        actual = 1000.0 * lognormal(spread, 1, number, "size")
        sizes.add("team", actual * bias * lognormal(sigma, 1, number, "declared"), actual)
    return sizes


def test_exact_declarations_are_not_corrected() -> None:
    assert [taught(0.0).factor("team", size) for size in (1.0, 1e3, 1e6)] == pytest.approx([1.0, 1.0, 1.0])


def test_wrong_declarations_shrink_towards_the_mean() -> None:
    """The slope is τ²/(τ² + σ²) = 4/5, so a declaration e² times the median becomes e^1.6 times."""
    sizes = taught(1.0)
    assert sizes.factor("team", 1000.0 * exp(2.0)) == pytest.approx(exp(-0.4), rel=0.08)
    assert sizes.factor("team", 1000.0 * exp(-2.0)) == pytest.approx(exp(0.4), rel=0.08)


def test_declarations_that_are_always_double_are_halved() -> None:
    assert taught(0.0, bias=2.0).factor("team", 500.0) == pytest.approx(0.5)


def test_few_jobs_and_other_namespaces_correct_nothing() -> None:
    assert taught(1.0, jobs=MIN_JOBS - 1).factor("team", 50.0) == 1.0
    assert taught(1.0).factor("other", 50.0) == 1.0


def test_namespaces_that_completed_jobs_last_are_kept() -> None:
    sizes = taught(0.0, bias=2.0, jobs=MIN_JOBS)
    for number in range(MAX_NAMESPACES):
        sizes.add(f"other-{number}", 1.0, 1.0)
    assert sizes.factor("team", 500.0) == 1.0
