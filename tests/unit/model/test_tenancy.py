"""Limits of what the jobs of a namespace may claim."""

from dataclasses import replace

import pytest

from tranche.model import Job, PodShape, Preemption, Resources, Utility
from tranche.model.tenancy import ClaimLimits, Tenancy
from tranche.policies.allocation.utility import utility_of
from tranche.state.job import JobState

STRICT = ClaimLimits(max_weight=10, highest_class="tranche-normal", allow_never=False)


def claiming(namespace: str = "lab", weight: float = 1, priority: int = -9, policy: str = "Immediate") -> Job:
    shape = PodShape(Resources(cpu=1000, memory=1, gpus=1))
    return Job(f"{namespace}/cats", "u", 0.0, shape, weight=weight, priority=priority, preemption=Preemption(policy))


def test_job_within_the_limits_is_unchanged() -> None:
    job = claiming(weight=10)
    assert STRICT.limited(job) is job


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (claiming(weight=1e6), "namespace lab limits weight to 10"),
        (claiming(priority=-8), "namespace lab limits priorityClassName to tranche-normal"),
        (claiming(policy="Never"), "namespace lab limits preemption.policy to Immediate"),
    ],
)
def test_claim_beyond_a_limit_is_clamped_and_told(job: Job, told: str) -> None:
    limited = STRICT.limited(job)
    assert (limited.weight, limited.priority, limited.preemption) == (min(job.weight, 10), -9, Preemption.IMMEDIATE)
    assert limited.limited == told


def test_all_exceeded_limits_are_in_one_sentence() -> None:
    limited = STRICT.limited(claiming(weight=50, priority=-8, policy="Never"))
    parts = "weight to 10, priorityClassName to tranche-normal, preemption.policy to Immediate"
    assert limited.limited == f"namespace lab limits {parts}"


def test_declared_restart_cost_is_clamped_and_told() -> None:
    limits = ClaimLimits(max_restart_seconds=600)
    limited = limits.limited(replace(claiming(), restart_seconds=3600.0))
    assert (limited.restart_seconds, limited.limited) == (
        600,
        "namespace lab limits preemption.restartOverhead to 600 s",
    )
    within = limits.limited(replace(claiming(), restart_seconds=600.0))
    assert (within.restart_seconds, within.limited) == (600, "")


def test_declared_utility_is_clamped_to_that_of_the_weight() -> None:
    limited = STRICT.limited(replace(claiming(), utility=Utility(1e6, 0.0, 60.0)))
    assert limited.utility == Utility(500.0, 0.0, 60.0)
    assert limited.limited == "namespace lab limits utility.priority to 500"
    heaviest = replace(claiming(weight=10), utility=Utility(500.0, 0.0, 60.0))
    assert STRICT.limited(heaviest) is heaviest
    assert utility_of(JobState(STRICT.limited(claiming(weight=1e6)))).priority == 500.0


def test_policy_at_chunk_end_is_allowed_like_never_or_on_its_own() -> None:
    job = claiming(policy="AtChunkEnd")
    limited = STRICT.limited(job)
    assert (limited.preemption, limited.limited) == (
        Preemption.IMMEDIATE,
        "namespace lab limits preemption.policy to Immediate",
    )
    assert ClaimLimits(allow_never=True).limited(job) is job
    assert ClaimLimits(allow_never=False, allow_at_chunk_end=True).limited(job) is job


def test_limits_of_a_namespace_replace_the_defaults() -> None:
    tenancy = Tenancy(STRICT, {"research": ClaimLimits()})
    assert tenancy.limited(claiming("research", weight=1e6)).weight == 1e6
    assert tenancy.limited(claiming("lab", weight=1e6)).weight == 10
