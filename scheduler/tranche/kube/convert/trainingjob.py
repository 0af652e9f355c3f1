"""Conversion between TrainingJobs and Sites and the values of the planner."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import blake2b
from itertools import accumulate
from math import ceil, inf
from typing import Any

from tranche.kube.api.condition import find_condition
from tranche.kube.api.core_types import Pod
from tranche.kube.api.fields import MAX_SITES, MAX_UNPLACED_MESSAGE, MAX_UNPLACED_NODES
from tranche.kube.api.job_decoder import UnreadableJob
from tranche.kube.api.names import (
    CONDITION_CLAIMS_LIMITED,
    CONDITION_INVALID_TEMPLATE,
    CONDITION_PLANNED,
    CONDITION_PRIORITY_IGNORED,
    CONDITION_UNPLACED,
    GPU_RESOURCES,
    PRIORITIES,
    REASON_NO_DRY_RUN,
    ROLE_CHIEF,
    ROLE_SERVER,
    ROLE_WORKER,
    GpuResources,
)
from tranche.kube.api.resources import (
    API_VERSION,
    Condition,
    Plan,
    PlannedChief,
    Progress,
    SavedProgress,
    SiteLink,
    SiteObject,
    TrainingJob,
    TrainingJobSpec,
)
from tranche.kube.api.resources import Checkpoint as CheckpointSpec
from tranche.kube.api.resources import UnplacedPods as UnplacedStatus
from tranche.kube.api.site_decoder import UnreadableSite
from tranche.kube.api.timestamp import rfc3339
from tranche.kube.convert.admitted_pod import gpu_problem, planned_shape, requests_by_name, server_gpu_problem
from tranche.kube.convert.attempt_history import LONGEST_REASON, attempt_status, read_record
from tranche.kube.convert.pod_shape import pod_of_template, pod_requests
from tranche.kube.convert.size_limit import check_sizes
from tranche.kube.convert.worker_grant import grant_status, read_grant
from tranche.model import (
    UNKNOWN_DURATION_SECONDS,
    Admission,
    Checkpoint,
    Interval,
    Job,
    JobPlan,
    JobProgress,
    Link,
    PlannedServer,
    PlannedStaging,
    PreemptedJob,
    Preemption,
    Site,
    SiteProgress,
    Tier,
    UnplacedPods,
    Utility,
    Window,
    WindowState,
    format_chunks,
    parse_chunks,
)
from tranche.model.quantity import parse_bytes, parse_duration, parse_quantity
from tranche.model.share_text import share_text
from tranche.model.tenancy import SMALLEST_WEIGHT

EXPLANATION_LENGTH = 2048
"""Maximum length of status.plan.explanation, which may quote a webhook."""
MAX_FALLBACKS_LENGTH = 200_000
"""Maximum length of the names of all fallback nodes of a plan; beyond it, windows have only their planned node."""
MAX_REASONS_LENGTH = 50_000
"""Maximum length of the reasons of all closing windows of a plan; beyond it, windows have none."""
PASSING_VOLUMES = frozenset({"emptyDir", "ephemeral"})
"""Volume types that are deleted with their pod."""


def to_job(resource: TrainingJob, gpu_resources: GpuResources = GPU_RESOURCES) -> Job:
    """Convert a TrainingJob to a planner job.

    Raises:
        ValueError: a quantity, duration, template or other value that the API server accepted cannot be read, or is too
            large.
    """
    if isinstance(resource, UnreadableJob):
        raise ValueError(resource.problem)
    check_sizes(resource)
    spec, data = resource.spec, resource.spec.data
    chunks = data.chunks if data else spec.workers.max_replicas
    workers = min(spec.workers.max_replicas, chunks)
    servers = spec.parameter_servers
    created = resource.metadata.creation_timestamp
    worker_pod = pod_of_template(spec.workers.template)
    declared = pod_requests(worker_pod, gpu_resources)
    worker = planned_shape(resource, ROLE_WORKER, worker_pod, gpu_resources)
    server_pod = pod_of_template(servers.template) if servers else None
    chief_pod = pod_of_template(spec.chief.template) if spec.chief else None
    topology = spec.workers.topology
    admission, refusal = _admission(resource, has_others=bool(worker.constraints.extended))
    return Job(
        key=resource.key,
        uid=resource.metadata.uid,
        generation=resource.metadata.generation,
        submitted=created.timestamp() if created else 0.0,
        worker=worker,
        gpu_problem=_gpu_problem(worker_pod, server_pod, gpu_resources),
        chunks=chunks,
        epochs=data.epochs if data else 1,
        batches_per_chunk=data.batches_per_chunk if data else 1,
        step_seconds=declared_step_seconds(resource),
        step_seconds_by_kind=_step_seconds_by_kind(spec),
        gradient_bits=_gradient_bits(resource),
        chunk_bytes=parse_bytes(data.chunk_size) if data and data.chunk_size is not None else 0.0,
        data_site=data.site if data else None,
        staged=_is_staged(resource, gpu_resources),
        max_workers=workers,
        is_gang=data is None,
        required_level=topology.required or "" if topology else "",
        preferred_level=topology.preferred or "" if topology else "",
        server=planned_shape(resource, ROLE_SERVER, server_pod, gpu_resources) if server_pod else None,
        servers=servers.replicas if servers else 0,
        chief=planned_shape(resource, ROLE_CHIEF, chief_pod, gpu_resources) if chief_pod else None,
        weight=max(spec.weight, SMALLEST_WEIGHT),
        utility=_utility(spec),
        priority=PRIORITIES[spec.priority_class_name],
        preemption=Preemption(spec.preemption.policy),
        durable=_durable(spec.checkpoint) if spec.checkpoint else None,
        restart_seconds=parse_duration(spec.preemption.restart_overhead or "0s"),
        restart_declared=spec.preemption.restart_overhead is not None,
        suspended=spec.suspend,
        backoff_limit=spec.run_policy.backoff_limit,
        size_declared=bool(_step_time(spec) or spec.estimated_duration),
        template=_template(resource),
        template_requests=declared if declared != worker.requests else None,
        admission=admission,
        refusal=refusal,
    )


def _utility(spec: TrainingJobSpec) -> Utility | None:
    """Return the utility that the job declares, in seconds."""
    if spec.utility is None:
        return None
    declared = spec.utility
    return Utility(declared.priority, declared.decay / 3600.0, parse_duration(declared.target))


def _admission(resource: TrainingJob, *, has_others: bool) -> tuple[Admission, str]:
    """Return what the operator's dry run of the job's pods showed, with the message of a refusal.

    Args:
        resource: The job.
        has_others: Whether its workers request resources of which the planner does not count the use.
    """
    generation, admitted = resource.metadata.generation, resource.status.admitted
    condition = find_condition(resource.status.conditions, CONDITION_INVALID_TEMPLATE)
    if condition is None or condition.observed_generation != generation:
        return Admission.UNCHECKED, ""
    if condition.reason == REASON_NO_DRY_RUN:
        return Admission.UNPROVEN, ""
    if condition.status != "False":
        return Admission.REFUSED, condition.message
    if admitted is None or admitted.generation != generation:  # a full quota ended the dry run
        return Admission.UNPROVEN, ""
    unproven = has_others or any(pod.unplanned for pod in admitted.pods)
    return (Admission.UNPROVEN if unproven else Admission.PASSED), ""


def _durable(checkpoint: CheckpointSpec) -> bool | None:
    """Return whether a pod on any node can load a checkpoint of an earlier pod; None if the volume is not declared."""
    volume = checkpoint.volume
    if checkpoint.scope != "Cluster" or (volume is not None and not PASSING_VOLUMES.isdisjoint(volume)):
        return False
    return True if volume is not None else None


def _gpu_problem(worker: Pod, server: Pod | None, gpu_resources: GpuResources) -> tuple[str, str] | None:
    problem = gpu_problem(requests_by_name(worker), gpu_resources)
    if problem is not None or server is None:
        return problem
    return server_gpu_problem(requests_by_name(server), gpu_resources)


def _is_staged(resource: TrainingJob, gpu_resources: GpuResources) -> bool:
    data = resource.spec.data
    if data is None or data.staging is None:
        return False
    requests = requests_by_name(pod_of_template(data.staging.template))
    asked = [name for name in gpu_resources if name != "cpu" and requests.get(name)]
    if asked:
        raise ValueError(f"spec.data.staging: a staging pod only copies data: remove the request for {asked[0]}")
    return True


def _template(resource: TrainingJob) -> str:
    """Identify the training code: namespace, and a digest of the worker containers."""
    containers = resource.spec.workers.template.get("spec", {}).get("containers", ())
    code = [{name: one.get(name) for name in ("image", "command", "args")} for one in containers]
    digest = blake2b(json.dumps(code, sort_keys=True).encode(), digest_size=8).hexdigest()
    return f"{resource.metadata.namespace}/{digest}"


def declared_step_seconds(resource: TrainingJob) -> float:
    """Return the seconds of a mini-batch as declared, or derived from the job duration with the most workers.

    The whole run of a gang counts as one mini-batch. Without a declaration, the job takes an hour.

    Raises:
        ValueError: a duration that the API server accepted cannot be read.
    """
    spec, data = resource.spec, resource.spec.data
    if step_time := _step_time(spec):
        return parse_duration(step_time)
    known = parse_duration(spec.estimated_duration) if spec.estimated_duration else UNKNOWN_DURATION_SECONDS
    if data is None:
        return known
    workers = min(spec.workers.max_replicas, data.chunks)
    return known / (ceil(data.chunks / workers) * data.epochs * data.batches_per_chunk)


def _gradient_bits(resource: TrainingJob) -> float:
    """Return the size of the gradients of one mini-batch in bits; the whole run of a gang counts as one mini-batch."""
    spec, model = resource.spec, resource.spec.model
    if model is None or model.gradient_size is None:
        return 0.0
    bits = 8.0 * parse_bytes(model.gradient_size)
    if spec.data is None and model.step_time and spec.estimated_duration:
        step_seconds = parse_duration(model.step_time)
        if step_seconds <= 0:
            raise ValueError("spec.model.stepTime: must be longer than zero")
        bits *= max(1.0, parse_duration(spec.estimated_duration) / step_seconds)
    return bits


def _step_seconds_by_kind(spec: TrainingJobSpec) -> dict[str, float]:
    """Return the declared times per mini-batch on single GPU kinds, in seconds, if `_step_time` has one for others."""
    if not _step_time(spec) or spec.model is None:
        return {}
    return {kind: parse_duration(text) for kind, text in spec.model.step_times.items()}


def _step_time(spec: TrainingJobSpec) -> str | None:
    """Return the declared time per mini-batch; None for a gang, whose number of mini-batches is unknown."""
    return spec.model.step_time if spec.model is not None and spec.data is not None else None


def to_site(resource: SiteObject, gpu_resources: GpuResources = GPU_RESOURCES) -> Site:
    """Convert a Site to a planner site.

    Raises:
        ValueError: a quantity, duration or other value cannot be read, or a bandwidth is zero, as under the CRD of an
            early release.
    """
    if isinstance(resource, UnreadableSite):
        raise ValueError(resource.problem)
    spec = resource.spec
    gpus = spec.gpu_resource or gpu_resources[0]
    return Site(
        name=resource.metadata.name,
        tier=Tier(spec.tier),
        unlimited=spec.unlimited,
        links={link.to: Link(_bandwidth(link), parse_duration(link.latency)) for link in spec.links},
        start_seconds=parse_duration(spec.node_startup) if spec.unlimited else 0.0,
        gpu_resource="" if gpu_resources == (gpus,) else gpus,
        gpu_kind=(spec.gpu_kind or "") if spec.unlimited else "",
        labels=dict(spec.node_selector) if spec.unlimited else {},
    )


def _bandwidth(link: SiteLink) -> float:
    bits_per_second = float(parse_quantity(link.bandwidth))
    if bits_per_second <= 0:
        raise ValueError(f"the bandwidth of the link to {link.to} must be above zero")
    return bits_per_second


def read_plan(plan: Plan) -> JobPlan:
    """Read the plan that an earlier planner wrote to status.plan."""
    return JobPlan(
        generation=plan.observed_generation,
        explanation=plan.explanation,
        attempts=plan.attempts,
        homes=plan.homes,
        windows=tuple(
            Window(
                index=w.index,
                attempt=w.attempt,
                site=w.site,
                node=w.node,
                chunks=tuple(w.chunks),
                fallbacks=tuple(w.fallbacks),
                start=_seconds(w.start),
                end=_seconds(w.end),
                state=WindowState(w.state),
                generation=w.generation or 0,
                renewed=w.renewed or 0,
                preempted_by=w.preempted_by or "",
                why=w.why or "",
            )
            for w in plan.workers
        ),
        servers=tuple(
            PlannedServer(
                s.index,
                s.attempt,
                s.site,
                s.node,
                tuple(s.fallbacks),
                WindowState(s.state),
                is_chief=isinstance(s, PlannedChief),
                preempted_by=s.preempted_by or "",
                why=s.why or "",
            )
            for s in (*([plan.chief] if plan.chief else ()), *plan.parameter_servers)
        ),
        staging=tuple(
            PlannedStaging(
                site=s.site,
                attempt=s.attempt or 0,
                chunks=tuple(sorted(parse_chunks(s.chunks))),
                wanted=tuple(sorted(parse_chunks(s.wanted))),
                failures=s.failures,
                given_up=s.given_up,
                why=s.why or "",
            )
            for s in plan.staging
        ),
        unplaced=_read_unplaced(plan.unplaced) if plan.unplaced is not None else None,
        grant=read_grant(plan.grant) if plan.grant is not None else None,
    )


def _read_unplaced(known: UnplacedStatus) -> UnplacedPods:
    return UnplacedPods(
        failures=known.failures,
        nodes=tuple(known.nodes),
        message=known.message,
        failed_at=_seconds(known.failed_at),
        paused_until=_seconds(known.preempts_from),
        held_until=_seconds(known.held_until),
        failed_preemptions=known.failed_preemptions,
        unstarted=known.unstarted,
        sites=tuple(known.sites),
    )


def read_progress(progress: Progress) -> JobProgress:
    """Read the ledger that an earlier planner wrote to status.progress."""
    return JobProgress(
        done=parse_chunks(progress.done),
        partial={p.chunk: p.batches for p in progress.running},
        attained_gpu_seconds=progress.attained_seconds,
        busy_seconds=progress.busy_seconds,
        learnt=progress.learnt if 0 < progress.learnt < inf else 1.0,
        busy_since=progress.busy_since.timestamp() if progress.busy_since else None,
        start_seconds=progress.start_seconds,
        save_seconds=progress.save_seconds,
        preemptions=progress.preemptions,
        failures=progress.failures,
        lost_batches=progress.lost_batches,
        records=tuple(map(read_record, progress.attempts)),
        history=tuple(progress.history),
        ended=progress.attempt_totals,
        victims=tuple(PreemptedJob(one.job, one.workers, one.at.timestamp()) for one in progress.victims),
        preempted_workers=progress.preempted_workers,
        checkpoint=_read_checkpoint(progress.checkpoint) if progress.checkpoint else None,
        sites=tuple(
            SiteProgress(
                site=one.site,
                gpu_seconds=float(one.gpu_seconds),
                trained_gpu_seconds=float(one.trained_gpu_seconds),
                chunks=one.chunks,
                copied_bytes=float(one.copied_bytes),
                in_vain_bytes=float(one.in_vain_bytes),
                unused=parse_chunks(one.unused),
            )
            for one in progress.sites
        ),
    )


def _read_checkpoint(saved: SavedProgress) -> Checkpoint:
    """Read a checkpoint. The API has no batch number for completed chunks; here it is infinite (all batches)."""
    batches = dict.fromkeys(parse_chunks(saved.done), inf) | {p.chunk: p.batches for p in saved.running}
    return Checkpoint(saved.attempt, batches)


def plan_status(plan: JobPlan, uid: str, term: int, revision: int) -> dict[str, Any]:
    """Build status.plan as JSON, for the job with that UID."""
    lengths = accumulate(sum(map(len, w.fallbacks)) for w in plan.windows)
    within = [length <= MAX_FALLBACKS_LENGTH for length in lengths]
    explained = [length <= MAX_REASONS_LENGTH for length in accumulate(len(w.why) for w in plan.windows)]
    status: dict[str, Any] = {
        "jobUid": uid,
        "term": term,
        "revision": revision,
        "observedGeneration": plan.generation,
        "explanation": plan.explanation[:EXPLANATION_LENGTH],
        "attempts": plan.attempts,
        "parameterServers": [_server(one) for one in plan.servers if not one.is_chief],
        "workers": [
            _present(
                index=w.index,
                attempt=w.attempt,
                site=w.site,
                node=w.node,
                fallbacks=list(w.fallbacks) if fits else [],
                chunks=list(w.chunks),
                start=_time(w.start),
                end=_time(w.end),
                state=w.state.value,
                generation=w.generation or None,
                renewed=w.renewed or None,
                preemptedBy=w.preempted_by or None,
                why=w.why or None if has_reason else None,
            )
            for w, fits, has_reason in zip(plan.windows, within, explained, strict=True)
        ],
    }
    if plan.staging:
        status["staging"] = [
            _present(
                site=s.site,
                attempt=s.attempt or None,
                chunks=format_chunks(s.chunks),
                wanted=format_chunks(s.wanted),
                failures=s.failures,
                givenUp=s.given_up,
                why=s.why[:LONGEST_REASON] or None,
            )
            for s in plan.staging
        ]
    return status | _present(
        unplaced=_unplaced(plan.unplaced) if plan.unplaced is not None else None,
        grant=grant_status(plan.grant) if plan.grant is not None else None,
        chief=next((_server(one) for one in plan.servers if one.is_chief), None),
        homes=dict(plan.homes) or None,  # server-side apply turns an emptied map into null
        estimatedStart=_time(plan.estimated_start),
        estimatedCompletion=_time(plan.estimated_completion),
        startInterval=_interval(plan.start_interval),
        completionInterval=_interval(plan.completion_interval),
    )


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"earliest": _time(interval.earliest), "latest": _time(interval.latest)}


def _unplaced(unplaced: UnplacedPods) -> dict[str, Any]:
    return _present(
        failures=unplaced.failures,
        nodes=list(unplaced.nodes[:MAX_UNPLACED_NODES]),
        message=unplaced.message[:MAX_UNPLACED_MESSAGE],
        failedAt=_time(unplaced.failed_at),
        preemptsFrom=_time(unplaced.paused_until),
        heldUntil=_time(unplaced.held_until),
        failedPreemptions=unplaced.failed_preemptions or None,
        unstarted=unplaced.unstarted or None,
        sites=list(unplaced.sites[:MAX_UNPLACED_NODES]) or None,
    )


def _server(planned: PlannedServer) -> dict[str, Any]:
    return _present(
        index=planned.index,
        attempt=planned.attempt,
        site=planned.site,
        node=planned.node,
        fallbacks=list(planned.fallbacks),
        state=planned.state.value,
        preemptedBy=planned.preempted_by or None,
        why=planned.why or None,
    )


def _int64(amount: float) -> int:
    """Round an amount to an integer that the API server accepts: at most 2^63 - 1."""
    return min(round(amount), 2**63 - 1)


def progress_status(progress: JobProgress, job: Job, batches: float, *, estimated: bool) -> dict[str, Any]:
    """Build status.progress as JSON.

    Args:
        progress: The ledger.
        job: The job of the ledger.
        batches: Mini-batches trained in total, from the last reports and the speed of the workers.
        estimated: Whether some worker's part is estimated from its speed alone.
    """
    return {
        "chunks": f"{len(progress.done)}/{job.chunks}",
        "done": format_chunks(progress.done),
        "running": _partial(progress.partial),
        **_present(checkpoint=_saved(progress.checkpoint, job) if progress.checkpoint else None),
        "batches": round(batches, 1),
        "trained": share_text(batches, job.chunks * job.batches_per_chunk_total),
        "estimated": estimated,
        "attainedSeconds": round(progress.attained_gpu_seconds, 3),
        "busySeconds": round(progress.busy_seconds, 3),
        "learnt": float(f"{progress.learnt:.6g}"),
        **_present(
            busySince=_time(progress.busy_since),
            startSeconds=_milliseconds(progress.start_seconds),
            saveSeconds=_milliseconds(progress.save_seconds),
            restartSeconds=_milliseconds(progress.restart_seconds),
        ),
        "preemptions": progress.preemptions,
        "failures": progress.failures,
        "lostBatches": round(progress.lost_batches, 3),
        "attempts": [attempt_status(record) for record in progress.records],
        "history": list(progress.history),
        "attemptTotals": dict(progress.ended),
        "victims": [{"job": one.job, "workers": one.workers, "at": rfc3339(one.at)} for one in progress.victims],
        "preemptedWorkers": progress.preempted_workers,
        **_present(sites=_sites(progress.sites) or None),
    }


def gpu_seconds_per_batch(progress: Progress) -> float:
    """Return the GPU-seconds that a mini-batch of the job took on average, lost ones included; 0.0 before the first."""
    batches = progress.batches + progress.lost_batches
    return progress.attained_seconds / batches if batches > 0 else 0.0


def _sites(sites: Iterable[SiteProgress]) -> list[dict[str, Any]]:
    """Return the site usage by name; beyond the limit of status.progress, only that of the most used sites."""
    most = sorted(sites, key=lambda one: (one.gpu_seconds, one.copied_bytes), reverse=True)[:MAX_SITES]
    return [
        {
            "site": one.site,
            "gpuSeconds": _int64(one.gpu_seconds),
            "trainedGpuSeconds": _int64(one.trained_gpu_seconds),
            "chunks": one.chunks,
            "copiedBytes": _int64(one.copied_bytes),
            "inVainBytes": _int64(one.in_vain_bytes),
            "unused": format_chunks(one.unused),
        }
        for one in sorted(most, key=lambda one: one.site)
    ]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _partial(batches: Mapping[int, float]) -> list[dict[str, Any]]:
    return [{"chunk": chunk, "batches": round(b, 6)} for chunk, b in sorted(batches.items())]


def _saved(checkpoint: Checkpoint, job: Job) -> dict[str, Any]:
    whole = {chunk for chunk, batches in checkpoint.batches.items() if batches >= job.batches_per_chunk_total}
    begun = {chunk: batches for chunk, batches in checkpoint.batches.items() if chunk not in whole and batches > 0}
    return {"attempt": checkpoint.attempt, "done": format_chunks(whole), "running": _partial(begun)}


def planned_condition(plan: JobPlan, generation: int, known: Iterable[Condition], now: float) -> dict[str, Any]:
    """Build the condition Planned; the transition time is kept while the status does not change."""
    status = "False" if plan.unplannable else "True"
    message = plan.explanation if plan.unplannable else "the job has a plan"
    return _condition(CONDITION_PLANNED, status, plan.unplannable or "Planned", message, generation, known, now)


def unplaced_conditions(plan: JobPlan, generation: int, known: Iterable[Condition], now: float) -> list[dict[str, Any]]:
    """Build the condition PodsUnplaced: True while pods of the job find no place or are rejected, False after that."""
    known = list(known)
    if plan.unplaced is not None and (plan.unplaced.failures or plan.unplaced.sites):
        held = plan.unplaced.held_until > now
        reason, message = "Held" if held else "Retrying", plan.unplaced.message[:MAX_UNPLACED_MESSAGE]
        return [_condition(CONDITION_UNPLACED, "True", reason, message, generation, known, now)]
    if find_condition(known, CONDITION_UNPLACED) is not None:
        return [_condition(CONDITION_UNPLACED, "False", "Placed", "all pods found a place", generation, known, now)]
    return []


def _condition(
    kind: str, status: str, reason: str, message: str, generation: int, known: Iterable[Condition], now: float
) -> dict[str, Any]:
    before = find_condition(known, kind)
    since = before.last_transition_time.timestamp() if before and before.status == status else now
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": rfc3339(since),
    }


def claim_conditions(plan: JobPlan, job: Job, known: Iterable[Condition], now: float) -> list[dict[str, Any]]:
    """Build ClaimsLimited and PriorityIgnored if the namespace limits the job's claims, or the policy ignores them."""
    known = list(known)
    claims = (
        (CONDITION_CLAIMS_LIMITED, "NamespaceLimit", job.limited),
        (CONDITION_PRIORITY_IGNORED, "UnsupportedByPolicy", plan.ignored_claims),
    )
    return [
        _condition(kind, "True", reason, message, job.generation, known, now)
        for kind, reason, message in claims
        if message
    ]


def limited_claims(resource: TrainingJob, job: Job) -> dict[str, str]:
    """Return the fields of status.plan for the job's tier and preemption policy if these are not those of its spec."""
    claims = {}
    if job.priority != PRIORITIES[resource.spec.priority_class_name]:
        claims["priorityClassName"] = next(name for name, value in PRIORITIES.items() if value == job.priority)
    if job.preemption != resource.spec.preemption.policy:
        claims["preemptionPolicy"] = job.preemption.value
    return claims


def status_object(resource: TrainingJob, status: Mapping[str, Any], version: str | None = None) -> dict[str, Any]:
    """Build the body of a server-side apply to the job's status, optionally limited to one resource version."""
    metadata = resource.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": _present(name=metadata.name, namespace=metadata.namespace, resourceVersion=version),
        "status": dict(status),
    }


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0


def _time(at: float | None) -> str | None:
    return rfc3339(at) if at else None
