"""Events that tell a job's users of its phases. Pure."""

from tranche.kube.resources import TrainingJob
from tranche_operator.actions import EmitEvent
from tranche_operator.observations import TemplateVerdict
from tranche_operator.statuses import Judgement


def phase_events(job: TrainingJob, judgement: Judgement) -> list[EmitEvent]:
    """What there is to tell when the phase in the status is about to become the judged one."""
    before, phase = job.status.phase, judgement.phase
    if before == phase:
        return []
    match phase:
        case "Succeeded":
            return [EmitEvent("Normal", "Completed", judgement.message)]
        case "Failed":
            return [EmitEvent("Warning", "Failed", judgement.message)]
        case "Suspended":
            return [EmitEvent("Normal", "Suspended", "all pods are stopped; progress is kept")]
        case "Starting" | "Running" if before in (None, "Waiting", "Suspended"):
            if job.status.start_time is None:
                return [EmitEvent("Normal", "Started", "the first workers start")]
            return [EmitEvent("Normal", "Resumed", "workers start again; durable progress is kept")]
    return []


def verdict_events(verdict: TemplateVerdict) -> list[EmitEvent]:
    """What there is to tell of a dry run."""
    if verdict.finding.status != "True":
        return []
    return [EmitEvent("Warning", "TemplateRejected", verdict.finding.message)]
