"""A what-if on the live state: the plan that a job would get if it were submitted, and the jobs that it would delay.

Two rollouts start from the same state, one of them with the job. Neither changes the planner.
"""

from dataclasses import replace

from tranche.model import Delay, WhatIf
from tranche.model.explanation_text import as_what_if
from tranche.model.job import Admission
from tranche.planner.context import PlannerContext
from tranche.planner.events import JobSubmitted
from tranche.planner.forecast.estimates import SIMULATED_JOBS
from tranche.planner.forecast.explanation import explain
from tranche.planner.forecast.rollout import DECISIONS, PlannerFactory, Rollout, prepare
from tranche.planner.forecast.steps import Steps, run_to_completion

MIN_DELAY_SECONDS = 1.0
"""Delays below this are not reported: they are within the error of a forecast."""


def what_if(context: PlannerContext, new_planner: PlannerFactory, asked: JobSubmitted, now: float) -> Steps[WhatIf]:
    """Return the plan of a job that is not submitted, in steps.

    Args:
        context: Context of the planner, which is not changed.
        new_planner: Makes the planner that decides in a rollout.
        asked: The submission. Its pods count as admitted.
        now: Clock, in seconds.

    Raises:
        ValueError: the job exists.
    """
    later = context.queue.waiting()[SIMULATED_JOBS:] if context.queue is not None else ()
    key = asked.job.key
    if key in context.cluster.jobs:
        raise ValueError(f"TrainingJob {key} already exists: choose another name")
    # Both copies in one step, so that no event is in one of them only.
    without, rollout = (run_to_completion(prepare(context, new_planner, later, now)) for _ in range(2))
    yield
    yield from without.play(DECISIONS)
    playing = rollout.play(DECISIONS, asked._replace(job=replace(asked.job, admission=Admission.PASSED)))
    next(playing, None)
    cluster = rollout.planner.context.cluster
    state = cluster.jobs[key]
    explained, workers = explain(cluster, context.policy, state, None, now), len(state.runs)
    yield
    yield from playing
    start, completion = rollout.starts.get(key), rollout.completions.get(key)
    return WhatIf(
        start=start.at if start is not None else None,
        completion=completion,
        site=start.site if start is not None else "",
        behind=(start.behind or "") if start is not None and start.at > now else "",
        explanation=as_what_if(explained.text, workers),
        workers=workers,
        delays=_delays(without, rollout),
        cut_short=without.cut_short or rollout.cut_short,
        completion_interval=(
            context.cluster.forecast_errors.completion(now, completion, state.size_sigma)
            if completion is not None
            else None
        ),
    )


def _delays(without: Rollout, rollout: Rollout) -> tuple[Delay, ...]:
    """Return the jobs that complete later, the longest delay first; only jobs that both rollouts completed."""
    found = [
        Delay(key, before, rollout.completions[key])
        for key, before in without.completions.items()
        if rollout.completions.get(key, 0.0) - before >= MIN_DELAY_SECONDS
    ]
    return tuple(sorted(found, key=lambda one: (one.before - one.after, one.job)))
