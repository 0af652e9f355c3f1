"""Reading status.plan: which pod belongs to which entry, and whether the plan counts."""

from tranche.kube.api import names
from tranche.kube.api.resources import PlannedChief, PlannedParameterServer, PlannedStaging, PlannedWindow, TrainingJob
from tranche_operator.observations import PodView

Entry = PlannedWindow | PlannedParameterServer | PlannedStaging


def entries_of(job: TrainingJob) -> dict[str, Entry]:
    """All planned pods by name: chief and parameter servers first, then workers, by index and attempt, then staging."""
    plan = job.status.plan
    if plan is None:
        return {}
    servers = sorted(plan.parameter_servers, key=lambda server: (server.index, server.attempt))
    windows = sorted(plan.workers, key=lambda window: (window.index, window.attempt))
    entries: dict[str, Entry] = {}
    chiefs: list[PlannedChief] = [plan.chief] if plan.chief is not None else []
    roles = ((names.ROLE_CHIEF, chiefs), (names.ROLE_SERVER, servers), (names.ROLE_WORKER, windows))
    for role, group in roles:
        for entry in group:
            entries[names.pod_name(job.metadata.name, role, entry.index, entry.attempt)] = entry
    for staging in plan.staging:
        if staging.attempt is not None:
            entries[names.staging_pod_name(job.metadata.name, staging.site, staging.attempt)] = staging
    return entries


def is_open(entry: Entry) -> bool:
    """Whether the entry's pod should exist and run."""
    return isinstance(entry, PlannedStaging) or entry.state == "Open"


def is_current(job: TrainingJob) -> bool:
    """Whether there is a plan for the spec as it is now; another one creates and evicts nothing."""
    return job.status.plan is not None and job.status.plan.observed_generation == job.metadata.generation


def is_newer(pod: PodView, job: TrainingJob) -> bool:
    """Whether the pod was created from a later plan than the one that was read with the job.

    Only another operator process can have done that; its pods are then judged when the later plan has been read.
    """
    plan = job.status.plan
    return plan is not None and pod.plan > (plan.term, plan.revision)
