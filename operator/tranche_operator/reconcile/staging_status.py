"""Condition StagingFailed and its events. Pure."""

from collections.abc import Iterable

from tranche.kube.api import names
from tranche.kube.api.resources import PlannedStaging, TrainingJob
from tranche_operator.reconcile.actions import EmitEvent
from tranche_operator.reconcile.observed import Rejection
from tranche_operator.reconcile.status import ConditionUpdate, condition_of


def updates(job: TrainingJob, rejection: Rejection | None) -> list[ConditionUpdate]:
    """Update condition StagingFailed: True while staging pods fail or are rejected, False after that."""
    plan = job.status.plan
    failing = [staging for staging in plan.staging if staging.failures] if plan is not None else []
    messages = [_describe(staging) for staging in failing]
    if rejection is not None:
        messages.append(f"the API server rejected pod {rejection.pod}: {rejection.message}")
    if messages:
        given_up = any(staging.given_up for staging in failing)
        return [
            ConditionUpdate(
                names.CONDITION_STAGING_FAILED, "True", "GivenUp" if given_up else "Retrying", "; ".join(messages)
            )
        ]
    before = condition_of(job, names.CONDITION_STAGING_FAILED)
    if before is not None and before.status == "True":
        return [ConditionUpdate(names.CONDITION_STAGING_FAILED, "False", "NoneFailing", "no staging pod is failing")]
    return []


def events(job: TrainingJob, found: Iterable[ConditionUpdate]) -> list[EmitEvent]:
    """Return the events about a new message of condition StagingFailed."""
    before = condition_of(job, names.CONDITION_STAGING_FAILED)
    known = before.message if before is not None and before.status == "True" else ""
    return [
        EmitEvent("Warning", "StagingFailed", one.message)
        for one in found
        if one.type == names.CONDITION_STAGING_FAILED and one.status == "True" and one.message != known
    ]


def _describe(staging: PlannedStaging) -> str:
    pods = "staging pod" if staging.failures == 1 else "staging pods"
    so = (
        "no more are created for an hour or longer, so chunks train where their data is"
        if staging.given_up
        else "another one is created"
    )
    why = f": {staging.why}" if staging.why else ""
    return f"{staging.failures} {pods} for site {staging.site} failed{why}; {so}"
