"""A what-if is what the running planner plans when the job is really submitted in that moment."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.live_controller import NOW, reported, resource, taken_over, written
from tranche.client.what_if import PlanningInputs, WhatIf, answer
from tranche.kube.api.resources import TrainingJob
from tranche.live.controller import Controller
from tranche.live.planner_config import PlannerConfig
from tranche.model import JobPlan
from tranche.model.explanation_text import as_what_if, without_moments

PRIMES = (61, 127, 251, 509, 1021, 2039, 4093)
"""Seconds: no two amounts of work are equal, for where they are, rounding decides."""
JOBS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(PRIMES)), min_size=1, max_size=6, unique_by=lambda job: job[1]
)
CONFIG = PlannerConfig("chunk")


def job(number: int, chunks: int, seconds: int) -> TrainingJob:
    return resource(f"job-{number}", f"{seconds}s", data={"chunks": chunks})


def as_written(controller: Controller) -> PlanningInputs:
    """The cluster once the controller has written the statuses of all jobs."""
    objects = controller.watches.objects.snapshot()
    jobs: dict[str, TrainingJob] = {}
    for key, known in objects.jobs.items():
        status = written(controller, known.metadata.name)
        body = {**known.model_dump(mode="json", by_alias=True, exclude_none=True), "status": status}
        jobs[key] = TrainingJob.model_validate(body)
    return PlanningInputs(replace(objects, jobs=jobs), CONFIG)


async def both(present: list[tuple[int, int]], asked: tuple[int, int]) -> tuple[WhatIf, JobPlan]:
    controller = await taken_over(policy="chunk")
    for number, (chunks, seconds) in enumerate(present):
        one = job(number, chunks, seconds)
        reported(controller, "jobs", one.key, one)
    inputs = as_written(controller)
    new = job(99, *asked)
    guess = answer(new, inputs, NOW)
    reported(controller, "jobs", new.key, new)
    controller.planner.forecast(NOW)
    return guess, controller.planner.plan_of(new.key, NOW)


@settings(max_examples=60)
@given(JOBS)
def test_a_what_if_is_the_plan_that_the_job_gets(jobs: list[tuple[int, int]]) -> None:
    guess, plan = asyncio.run(both(jobs[1:], jobs[0]))
    assert guess.planned_start is not None
    assert guess.planned_completion is not None
    assert guess.planned_start.timestamp() == pytest.approx(plan.estimated_start, abs=2.0)
    assert guess.planned_completion.timestamp() == pytest.approx(plan.estimated_completion, abs=2.0)
    assert without_moments(guess.explanation) == without_moments(as_what_if(plan.explanation, len(plan.windows)))
    assert guess.workers == len(plan.windows)


def test_whatif_leaves_stores_unchanged() -> None:
    async def asked() -> tuple[list[str], list[str]]:
        controller = await taken_over(job(1, 2, 600), policy="chunk")
        inputs = as_written(controller)
        before = sorted(inputs.objects.jobs)
        answer(job(99, 1, 60), inputs, NOW)
        return before, sorted(inputs.objects.jobs)

    before, after = asyncio.run(asked())
    assert before == after == ["default/job-1"]
