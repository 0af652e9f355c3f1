"""Rules for creating pods and the Service, and for adding and removing a gang's scheduling gates. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from tranche.kube.api import names
from tranche.kube.api.resources import PlannedChief, PlannedStaging, PlannedWindow, SiteSpec, TrainingJob
from tranche.kube.convert.site_membership import DEFAULT_SITE
from tranche.model import format_chunks, parse_chunks
from tranche_operator.manifests import pod as manifests
from tranche_operator.manifests.environment import is_alone
from tranche_operator.reconcile.actions import (
    Action,
    CreatePod,
    CreateService,
    EmitEvent,
    RequeueAfter,
    UngatePod,
    UpdateService,
    WithdrawPod,
)
from tranche_operator.reconcile.observed import Entry, Observed, PodView, Rejection, ServiceState, is_current, is_open
from tranche_operator.reconcile.status import ConditionUpdate, condition_of
from tranche_operator.reconcile.stuck_pod import SLACK
from tranche_operator.settings import Settings

STALE_SERVICE_SECONDS = 5.0
"""Delay in which the garbage collector removes the Service of a deleted job of the same name."""

MAX_CHUNKS_LENGTH = 80
"""Characters of the numbers of chunks in a message."""


def missing_pods(observed: Observed, job: TrainingJob, entries: Mapping[str, Entry], now: datetime) -> dict[str, Entry]:
    """Return planned pods that should exist and do not, by name.

    A pod whose name is taken, by a pod of a deleted job of the same name, is not missing yet: the end of that pod
    causes another reconcile. A pod that no TrainingJob controls never ends because of the plan, and a pod that should
    be gone may stay for any time, so they do not count: the creation is refused, and condition PodsRejected says why.
    """
    if not is_current(job) or job.spec.suspend:
        return {}
    taken = {pod.name for pod in observed.pods if _holds_name(pod, job, now)}
    return {name: entry for name, entry in entries.items() if is_open(entry) and name not in taken}


def _holds_name(pod: PodView, job: TrainingJob, now: datetime) -> bool:
    """Return whether the pod is one of the job, or should go soon."""
    if pod.owner == job.metadata.uid:
        return True
    overdue = pod.ends_by is not None and now >= pod.ends_by + SLACK
    return not overdue and (pod.owner is not None or pod.terminating)


def open_service(observed: Observed, job: TrainingJob, entries: Mapping[str, Entry], now: datetime) -> list[Action]:
    """Create the Service of a job that has pods planned, by which they resolve each other's names."""
    if not is_current(job) or job.spec.suspend or is_alone(job):
        return []
    planned = [entry for entry in entries.values() if is_open(entry)]
    rejection = observed.rejection
    if rejection is not None and rejection.is_of_service:
        if standing_rejection(rejection, {}, entries) is not None and now < rejection.until:
            return []
        planned = [entry for entry in planned if isinstance(entry, PlannedWindow)]
    if not planned:
        return []
    match observed.service:
        case ServiceState.ABSENT:
            return [CreateService(manifests.service(job))]
        case ServiceState.STALE:
            return [RequeueAfter(STALE_SERVICE_SECONDS)]
        case ServiceState.FOREIGN if needs_service(job):
            return [CreateService(manifests.service(job))]  # the refusal names the Service
        case ServiceState.FOREIGN:
            return [EmitEvent("Warning", "ServiceNameTaken", name_taken(job))]
        case ServiceState.OUTDATED:
            return [UpdateService(manifests.former_selector(job), manifests.service(job)["spec"]["selector"])]
        case ServiceState.OWN:
            return []


def needs_service(job: TrainingJob) -> bool:
    """Return whether pods of the job connect to each other, so that none may run without the Service."""
    spec = job.spec
    is_connected = spec.data is None or spec.parameter_servers is not None or spec.chief is not None
    return is_connected and not is_alone(job)


def name_taken(job: TrainingJob) -> str:
    """Return the message that another Service has the name of the job's Service."""
    return (
        f"Service {job.metadata.name} does not belong to this job, so its pods cannot "
        "resolve each other's names: delete that Service"
    )


def awaits_service(observed: Observed, job: TrainingJob) -> bool:
    """Return whether new pods have to wait for the Service, because it was refused before."""
    rejection = observed.rejection
    was_refused = rejection is not None and rejection.is_of_service
    exists = observed.service in (ServiceState.OWN, ServiceState.OUTDATED)
    return was_refused and needs_service(job) and not exists


def needs_site(entry: Entry) -> bool:
    """Return whether the pod's manifest needs the Site, because the entry names no node.

    Without Site objects, all nodes form one site, so that a staging pod may run on any of them.
    """
    if isinstance(entry, PlannedStaging):
        return entry.site != DEFAULT_SITE
    return entry.node is None


def open_pods(observed: Observed, job: TrainingJob, missing: Mapping[str, Entry], settings: Settings) -> list[Action]:
    """Create the missing pods."""
    actions: list[Action] = []
    is_gated = waits_for_all(job, observed.rejection)
    for name, entry in missing.items():
        site = observed.sites.get(entry.site)
        if site is None and needs_site(entry):
            message = f"pod {name} cannot be created: Site {entry.site} does not exist"
            actions.append(EmitEvent("Warning", "SiteMissing", message))
            continue
        pod = _manifest(job, entry, settings, site)
        pod = manifests.with_gate(pod) if is_gated else pod
        is_staging = isinstance(entry, PlannedStaging)
        actions.append(CreatePod(pod, _describe(entry), entry.site, is_staging=is_staging))
    return actions


def withdraw(job: TrainingJob, pods: Iterable[PodView], created: Iterable[Action]) -> list[Action]:
    """Withdraw pods from the Service whose host name a later attempt has or gets, as after the loss of their node.

    A pod on a silent node is terminating for as long as the node is away. The Service also has pods that are not ready,
    and so terminating ones: the name would resolve to both, and others would wait for the old pod, or join it.
    """
    if is_alone(job):
        return []
    named = [pod for pod in pods if pod.owner is not None and pod.role != names.ROLE_STAGING]
    attempts = [(pod.host, pod.attempt) for pod in named if pod.owner == job.metadata.uid]
    attempts += [action.named for action in created if isinstance(action, CreatePod) and not action.is_staging]
    latest: dict[str, int] = {}
    for host, attempt in attempts:
        latest[host] = max(attempt, latest.get(host, attempt))
    superseded = [
        pod for pod in named if pod.host in latest and (pod.owner != job.metadata.uid or pod.attempt < latest[pod.host])
    ]
    return [WithdrawPod(pod.name, pod.uid) for pod in superseded if pod.selected and not pod.over]


def waits_for_all(job: TrainingJob, rejection: Rejection | None) -> bool:
    """Return whether new pods of the job have a scheduling gate until all of them exist.

    They have one if the job is a gang that the API server has refused a pod, and has not got all its pods since. Before
    a refusal, all pods of a gang come into existence within milliseconds, and removing their gates would be one more
    request for each.
    """
    if job.spec.data is not None or is_alone(job):
        return False
    condition = condition_of(job, names.CONDITION_PODS_REJECTED)
    return rejection is not None or (condition is not None and condition.status == "True")


def standing_rejection(
    rejection: Rejection | None, missing: Mapping[str, Entry], entries: Mapping[str, Entry]
) -> Rejection | None:
    """Return the last refusal if it concerns a pod that is still missing, or whose Service is; else None."""
    if rejection is None or not rejection.is_of_service:
        return rejection if rejection is not None and rejection.pod in missing else None
    return rejection if rejection.pod in entries and is_open(entries[rejection.pod]) else None


def pause(rejection: Rejection | None, now: datetime) -> list[Action]:
    """Requeue the job until the pause after a refusal ends."""
    if rejection is None or now >= rejection.until:
        return []
    return [RequeueAfter((rejection.until - now).total_seconds())]


def rejection_updates(
    job: TrainingJob, rejection: Rejection | None, missing: Mapping[str, Entry]
) -> list[ConditionUpdate]:
    """Update condition PodsRejected: True while a planned pod is rejected, False once all planned pods exist."""
    if rejection is not None:
        message = f"{rejection.pod}: {rejection.message}"
        return [ConditionUpdate(names.CONDITION_PODS_REJECTED, "True", rejection.reason, message)]
    before = condition_of(job, names.CONDITION_PODS_REJECTED)
    if before is not None and before.status == "True" and not missing:
        return [ConditionUpdate(names.CONDITION_PODS_REJECTED, "False", "NoPodMissing", "all planned pods exist")]
    return []


def ungate(job: TrainingJob, own: tuple[PodView, ...], entries: Mapping[str, Entry]) -> list[Action]:
    """Remove the scheduling gates of a gang once the pods of all open entries exist."""
    gated = [pod for pod in own if names.GANG_GATE in pod.gates and not pod.terminating]
    if not gated or not is_current(job) or job.spec.suspend:
        return []
    existing = {pod.name for pod in own}
    planned = {name for name, entry in entries.items() if is_open(entry)}
    if not planned <= existing:
        return []
    return [UngatePod(pod.name, pod.uid, pod.gates.index(names.GANG_GATE)) for pod in gated if pod.name in planned]


def _manifest(job: TrainingJob, entry: Entry, settings: Settings, site: SiteSpec | None) -> manifests.Manifest:
    """Return the pod of an entry."""
    if isinstance(entry, PlannedWindow):
        return manifests.worker_pod(job, entry, settings, site)
    if isinstance(entry, PlannedStaging):
        return manifests.staging_pod(job, entry, settings, site)
    if isinstance(entry, PlannedChief):
        return manifests.chief_pod(job, entry, settings, site)
    return manifests.server_pod(job, entry, settings, site)


def _describe(entry: Entry) -> str:
    if isinstance(entry, PlannedStaging):
        return f"staging, attempt {entry.attempt}, to site {entry.site}: {_chunks(parse_chunks(entry.chunks))}"
    place = f"at site {entry.site}" + (f", node {entry.node}" if entry.node else "")
    if isinstance(entry, PlannedWindow):
        return f"worker {entry.index}, attempt {entry.attempt}, {place}: {_chunks(entry.chunks)}"
    if isinstance(entry, PlannedChief):
        return f"chief, attempt {entry.attempt}, {place}"
    return f"parameter server {entry.index}, attempt {entry.attempt}, {place}"


def _chunks(chunks: Collection[int]) -> str:
    """Name the chunks, or only their number if that is long."""
    if len(chunks) == 1:
        return f"chunk {format_chunks(chunks)}"
    text = format_chunks(chunks)
    return f"chunks {text}" if len(text) <= MAX_CHUNKS_LENGTH else f"{len(chunks)} chunks"
