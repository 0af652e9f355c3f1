"""Access to status.plan: entries by pod name, and whether the plan is current."""

from tranche.kube import names
from tranche.kube.resources import PlannedChief, PlannedParameterServer, PlannedStaging, PlannedWindow, TrainingJob
from tranche_operator.observations import PodView

Entry = PlannedWindow | PlannedParameterServer | PlannedStaging


def entries_of(job: TrainingJob) -> dict[str, Entry]:
    """Return all planned pods by name: chief, parameter servers, workers (by index and attempt), staging pods."""
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
    """Return whether the entry's pod should exist and run."""
    return isinstance(entry, PlannedStaging) or entry.state == "Open"


def is_current(job: TrainingJob) -> bool:
    """Return whether the plan is for the current generation of the spec; no other plan creates or evicts pods."""
    return job.status.plan is not None and job.status.plan.observed_generation == job.metadata.generation


def is_newer(pod: PodView, job: TrainingJob) -> bool:
    """Return whether the pod was created from a later plan than the one that was read with the job.

    Only another operator process can have created it. It is ignored until the later plan has been read.
    """
    plan = job.status.plan
    return plan is not None and pod.plan > (plan.term, plan.revision)
