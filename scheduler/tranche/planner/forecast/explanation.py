"""Explanation of a job's state in one sentence, for its status, its events, the API and the CLI."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tranche.model import Admission, Job, Measure, expected, free_gpus, since, until
from tranche.model.explanation_text import ASSUMED_DURATION
from tranche.model.job import OUTSIDE, UNKNOWN_DURATION_SECONDS, PodShape
from tranche.model.node_constraints import Constraints
from tranche.model.share_text import share_clause, share_text
from tranche.model.tenancy import DEFAULT_CLASS, PRIORITY_CLASSES, class_of
from tranche.planner.forecast.estimates import Estimate
from tranche.planner.forecast.wait_reason import Precedence, WaitReason, WaitReasonKind, wait_reason_of
from tranche.planner.handlers.progress import training_progress
from tranche.policies import Policy, QueuePolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.phases import JobPhase, WindowPhase
from tranche.state.quota_usage import Shortage
from tranche.state.remaining_work import overruns

LONGEST = 2000
"""Longest explanation in characters; longer ones, which contain messages of the API server, are cut."""
NODE_START_FACTOR, MIN_NODE_SECONDS = 2.0, 30.0
"""A worker waits too long for a node of an unlimited site after this multiple of the site's `start_seconds`, and at
least this number of seconds."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a job's state."""

    text: str
    """The sentence for status.plan.explanation."""
    reason: WaitReason | None = None
    """Why the job waits; None if it does not wait."""


def explain(
    cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float
) -> Explanation:
    """Return the sentence for status.plan.explanation, with the wait reason on which it is based."""
    text, reason = _activity(state, now), None
    if not text:
        reason = wait_reason_of(cluster, policy, state, estimate, now)
        text = describe(reason, cluster, policy, state, now)
        if cluster.health.exclusions:
            text += _excluded(cluster, state, now)
    if state.active:
        text = "; ".join([text, *_notes(cluster, policy, state, now)])
    return Explanation(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…", reason)


def ignored_claims(policy: Policy, job: Job) -> str:
    """Return which claims of the job have no effect under the policy; "" if there are none."""
    claims = []
    if job.priority != PRIORITY_CLASSES[DEFAULT_CLASS] and not policy.uses_tiers:
        claims.append(f"spec.priorityClassName {class_of(job.priority)}")
    if job.weight != 1.0 and not policy.uses_weights:
        claims.append(f"spec.weight {job.weight:g}")
    return f"the policy {policy.name} does not use {' and '.join(claims)}" if claims else ""


def _notes(cluster: ClusterState, policy: Policy, state: JobState, now: float) -> list[str]:
    """Return notes about a pod without a place, limited claims, an unknown site, and an assumed or overrun duration."""
    job, notes = state.job, []
    if state.runs and state.placement.failures:
        notes.append(f"last failure: {state.placement.message}")
    if state.awaits_faster and job.is_gang:
        notes.append("free GPUs are too far apart, and the job declines them for a time")
    elif state.awaits_faster and state.waiting and cluster.free.of(cluster.hosts(state), ""):
        notes.append("free GPUs are slower and would complete its waiting chunks later")
    if isinstance(policy, QueuePolicy) and (note := policy.note(state, now)):
        notes.append(note)
    if job.limited:
        notes.append(job.limited)
    if job.data_site not in (None, OUTSIDE) and not _is_known(cluster, job.data_site):
        notes.append(f"spec.data.site {job.data_site} is not the name of a Site")
    if not job.size_declared and (state.assumed or not policy.traits.uses_learned_estimates):
        hours = UNKNOWN_DURATION_SECONDS / 3600.0
        notes.append(f"its duration is unknown, and {hours:g} h {ASSUMED_DURATION}")
    elif state.runs and overruns(state, now):
        notes.append("it has overrun its expected training time, and its planned completion is a guess")
    if cluster.clouds and state.runs:
        notes += _awaited_nodes(cluster, state, now)
    return notes


def _awaited_nodes(cluster: ClusterState, state: JobState, now: float) -> list[str]:
    """Return a note for each unlimited site that has no node for workers after twice the time that its nodes need."""
    late: dict[str, list[float]] = {}
    for run in state.runs.values():
        site = cluster.sites.get(run.home.site)
        if site is not None and site.unlimited and run.phase is WindowPhase.PENDING:
            opened = run.held_from or run.opened
            if now - opened > max(MIN_NODE_SECONDS, NODE_START_FACTOR * site.start_seconds):
                late.setdefault(site.name, []).append(opened)
    return [_awaited(cluster, state, site, opened, now) for site, opened in sorted(late.items())]


def _awaited(cluster: ClusterState, state: JobState, site: str, opened: list[float], now: float) -> str:
    """Say how long workers have waited for nodes of a site, and what they need.

    The planner does not know the nodes of an unlimited site, which the autoscaler creates and removes.
    """
    who = f"{len(opened)} workers have" if len(opened) > 1 else "1 worker has"
    usual = cluster.sites[site].start_seconds
    *others, last = _amounts(state).values()
    return (
        f"{who} waited for a node of {site}{since(min(opened), now)}, longer than its nodeStartup {usual:g} s; "
        f"a worker needs {', '.join(others)} and {last}{_wanted_node(state.job.worker.constraints)}"
    )


def _wanted_node(constraints: Constraints) -> str:
    """Say what the labels of a node must be for a worker; "" if every node will do."""
    labels = ", ".join(f"{key}={value}" for key, value in constraints.selector)
    parts = [f"with {labels}"] if labels else []
    parts += ["that matches the required node affinity"] if constraints.affinity is not None else []
    return f" on a node {' and '.join(parts)}" if parts else ""


def _is_known(cluster: ClusterState, site: str | None) -> bool:
    return site in cluster.sites or any(node.node.site == site for node in cluster.nodes.values())


def _excluded(cluster: ClusterState, state: JobState, now: float) -> str:
    """Describe the excluded nodes that would otherwise take a worker of the job; "" if there are none."""
    excluded = (cluster.nodes.get(one.node) for one in cluster.health.lasting() if one.takes_no_pods)
    names = [node.node.name for node in excluded if node is not None and node.misfit(state.job.worker) is None]
    if not names:
        return ""
    first = cluster.health.exclusions[names[0]]
    moment = until(first.until, now) if first.until > now else " during a trial"
    others = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return f"; {first.node}{others} excluded{moment}: {first.reason}"


def _activity(state: JobState, now: float) -> str:
    """Describe what the job does, or why it will never run; "" if it waits."""
    job = state.job
    done = f"{len(state.done)} of {job.chunks} {'members' if job.is_gang else 'chunks'} done"
    match state.phase(now):
        case JobPhase.FINISHED:
            return f"finished: {done}"
        case JobPhase.FAILED if state.end_reason:
            return f"failed: {state.end_reason}; {done}{_share(state, now)}"
        case JobPhase.FAILED:
            return f"failed: {state.failures} pods failed, more than runPolicy.backoffLimit {job.backoff_limit} allows"
        case JobPhase.UNPLANNABLE if state.unplannable is not None:
            return state.unplannable[1]
        case JobPhase.SUSPENDED:
            left = len(state.runs)  # the phase is Running until they have stopped
            stopping = f", {left} worker{'s are' if left > 1 else ' is'} stopping" if left else ""
            return f"suspended by spec.suspend{stopping}; {done}{_share(state, now)}"
        case JobPhase.RUNNING:
            return f"{_workers(state)}; {done}{_share(state, now)}"
    return ""


def _share(state: JobState, now: float) -> str:
    """Say how much of the job is trained, which says more than the number of chunks while the first ones train."""
    known = training_progress(state, now)
    return share_clause(share_text(known.batches, known.total_batches), estimated=known.estimated)


def _workers(state: JobState) -> str:
    """Count the job's workers by site; for a gang whose workers have ended, name the site of its chief."""
    active = [run for run in state.runs.values() if not run.closing]
    if not active and state.chief is not None:
        return f"its chief continues at {state.chief.planned.site}"
    where = Counter(run.window.site for run in active)
    places = ", ".join(f"{count} at {site}" for site, count in sorted(where.items()))
    most = ", all that maxReplicas allows" if state.unassigned and len(active) >= state.job.max_workers else ""
    return f"{len(active)} worker{'s' if len(active) > 1 else ''} ({places}){most}"


def describe(reason: WaitReason, cluster: ClusterState, policy: Policy, state: JobState, now: float) -> str:
    """Write the sentence that names what a job waits for."""
    moment = until(reason.until, now)
    site = reason.site or "any site"
    match reason.kind:
        case WaitReasonKind.SUSPENDED:
            return "suspended by spec.suspend"
        case WaitReasonKind.HELD:
            return f"held{moment}: {reason.detail}"
        case WaitReasonKind.DATA if reason.detail:
            return f"its data cannot be brought to {site}: {reason.detail}"
        case WaitReasonKind.DATA:
            return f"its data are on the way to {site}{moment}"
        case WaitReasonKind.SERVER:
            behind = f"{moment}, behind {reason.behind}" if reason.behind else ""
            return f"waits for room for its parameter server at {site}{behind}"
        case WaitReasonKind.AVOIDED:
            need = _gpus(state.job.gpus, state.job.gpu_resource)
            why = "failed on its pod" if reason.node in state.node_failures else "refused its pod"
            return f"waits for {need} at {site}: {reason.node} {why} and is avoided{moment}"
        case WaitReasonKind.LEVEL:
            need = _gang(state.job, _gpus(state.job.gpus, state.job.gpu_resource))
            free = _free_gpus(cluster, state)
            behind = f", behind {reason.behind}" if reason.behind else ""
            return f"waits for {need} in one group of {state.job.required_level}{free}{moment}{behind}"
        case WaitReasonKind.QUOTA:
            return "; ".join(_quota(short) for short in reason.shortages)
        case WaitReasonKind.UNKNOWN:
            need = _gpus(state.job.gpus, state.job.gpu_resource)
            return f"waits for {need}: the policy {policy.name} has not placed it yet"
        case WaitReasonKind.ROOM:
            return _room(reason, cluster, policy, state, now)
    return _never(reason, cluster, state) + _also(reason)


def _never(reason: WaitReason, cluster: ClusterState, state: JobState) -> str:
    """Write the sentence for a wait reason that waiting alone does not remove."""
    need = _gpus(state.job.gpus, state.job.gpu_resource)
    match reason.kind:
        case WaitReasonKind.NO_NODES:
            return f"waits for {need}: " + ("no Site selects a node" if cluster.sites else "the cluster has no nodes")
        case WaitReasonKind.SIZE:
            return _too_small(cluster.nodes.values(), state)
        case WaitReasonKind.NODE:
            return f"no node takes a worker: {reason.count} of {reason.nodes} nodes {reason.detail}"
        case WaitReasonKind.GANG:
            where = f"{_hosts(cluster, state)} can hold{_all_gpus(cluster, state)}"
            return f"needs {_gang(state.job, need)} at once, more than {where}"
        case WaitReasonKind.LEVEL_SIZE:
            level = state.job.required_level
            if reason.detail:
                return f"requires {level}, {reason.detail}"
            room = f"the largest has room for {cluster.largest_room(state)}"
            return f"needs {_gang(state.job, need)} in one group of {level}, more than any group can hold: {room}"
        case WaitReasonKind.SERVER_SIZE:
            place = reason.site or "any site"
            return f"no node at {place} can ever hold its parameter server{_needs(state.job.server)}"
    return "its workers do not fit beside its parameter servers"


def _needs(shape: PodShape | None) -> str:
    """Continue a sentence with what a pod without GPUs needs."""
    if shape is None:
        return ""
    amounts = f"{_cpu(shape.requests.cpu)} and {_memory(shape.requests.memory)}"
    return f", which needs {amounts}{_wanted_node(shape.constraints)}"


def _hosts(cluster: ClusterState, state: JobState) -> str:
    """Say what cannot hold a gang: the cluster, or only some of its nodes if the others take none of its workers."""
    resource = state.job.worker.requests.gpu_resource
    nodes = [node.capacity.gpu_resource for node in cluster.nodes.values() if node.node.allocatable.gpus]
    count, total = len(cluster.hosts(state)), nodes.count(resource)
    if count >= total:
        return "the cluster"
    if count == 1:
        return f"the only node of {total} that takes its workers"
    return f"the {count} of {total} nodes that take its workers"


def _all_gpus(cluster: ClusterState, state: JobState) -> str:
    """Name all GPUs of the nodes that take the gang's workers, if these are too few."""
    total = sum(node.capacity.gpus for node in cluster.hosts(state))
    few = total < state.job.chunks * state.job.gpus
    return f" ({_gpus(total, state.job.gpu_resource)} in all)" if few else ""


def _also(reason: WaitReason) -> str:
    """Write the quotas that hold the job back beside the main reason."""
    return "".join(f"; also {_quota(short)}" for short in reason.shortages)


def _quota(short: Shortage) -> str:
    """Write the sentence for a quota; it names the limit as the ResourceQuota does."""
    name, measure = short.limit.resource.removeprefix("requests."), short.limit.measure
    used, asked, hard = (_measured(n, measure) for n in (short.used, short.asked, short.limit.hard))
    if short.hopeless:
        return f"needs {asked} {name} at once, more than the quota {short.quota.key} allows: {hard}"
    return f"waits for the quota {short.quota.key}: {used} of {hard} {name} in use, and {asked} needed"


def _gang(job: Job, need: str) -> str:
    """List the pods of a gang."""
    parts = [f"{job.chunks} workers of {need}"]
    parts += ["a chief"] if job.chief is not None else []
    parts += [f"{job.servers} parameter server{'s' if job.servers > 1 else ''}"] if job.servers else []
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _measured(number: int, measure: Measure) -> str:
    match measure:
        case "cpu":
            return f"{number / 1000:g}"
        case "memory":
            return _size(number)
        case _:
            return str(number)


def _room(reason: WaitReason, cluster: ClusterState, policy: Policy, state: JobState, now: float) -> str:
    room = " and ".join(_amount(state, resource) for resource in reason.resources)
    place = f" at {reason.site}" if reason.site else ""
    if state.job.min_available > 1:
        place = f" at once{_free_gpus(cluster, state)}" if "gpus" in reason.resources else " at once"
    if reason.behind is None:
        return f"next in the queue: {room}{place}{expected(reason.until, now)}"
    why = _precedence(reason, cluster, policy, state, now)
    return f"waits for {room}{place}{until(reason.until, now)}, behind {reason.behind}, {why}{_also(reason)}"


def _free_gpus(cluster: ClusterState, state: JobState) -> str:
    """Say how many GPUs are free on the nodes that take the job's workers."""
    return free_gpus(sum(max(0, node.capacity.gpus - node.reserved.gpus) for node in cluster.hosts(state)))


def _precedence(reason: WaitReason, cluster: ClusterState, policy: Policy, state: JobState, now: float) -> str:
    match reason.precedence:
        case Precedence.ORDER:
            return policy.precedence_reason(cluster.jobs[reason.behind or ""], state, cluster, now)
        case Precedence.POLICY:
            other = cluster.jobs[reason.behind or ""]
            if other.eviction_blocked:
                return "whose pods a disruption budget keeps from being stopped"
            return f"which may not be stopped (preemption.policy {other.job.preemption})"
        case Precedence.COST:
            return "which is not worth stopping"
        case Precedence.RUNNING:
            return "which already holds that capacity"
        case Precedence.RESTRAINED:
            return f"which is not stopped for this job{_restraint(cluster, state, now)}"


def _restraint(cluster: ClusterState, state: JobState, now: float) -> str:
    """Say why and until when the job preempts no other."""
    if cluster.scheduler_silent:
        return " while kube-scheduler does not respond"
    record = state.placement
    if record.paused:
        return f"{until(record.paused_until, now)}: {record.message}"
    if state.job.admission is Admission.REFUSED:
        return f", because the API server refuses its pods: {state.job.refusal}"
    restrained = cluster.failed_preemptions.restrained.get(state.job.namespace)
    if restrained is not None and not record.placed:
        return f"{until(restrained, now)}: workers were stopped for jobs of its namespace that were then not placed"
    if state.awaits_place:
        return f" before its last pods {'have started' if record.unstarted else 'are placed'}"
    return " before a dry run has admitted its pods"


def _amount(state: JobState, resource: str) -> str:
    """Format the amount of a resource that a worker needs, or all members of a gang together."""
    request, members = state.job.worker.requests, state.job.min_available
    match resource:
        case "cpu":
            return _cpu(members * request.cpu)
        case "memory":
            return _memory(members * request.memory)
        case "pods":
            return "a place for its pod" if members == 1 else f"places for its {members} pods"
    return _gpus(members * request.gpus, request.gpu_resource)


def _gpus(count: int, resource: str = "") -> str:
    """Format a number of GPUs, with the name of their resource if the installation has several."""
    return f"{count} {resource}" if resource else f"{count} GPU{'' if count == 1 else 's'}"


def _amounts(state: JobState) -> dict[str, str]:
    """Return the resources of a worker in words, by the fields of `Resources`."""
    request = state.job.worker.requests
    return {
        "gpus": _gpus(state.job.gpus, state.job.gpu_resource),
        "cpu": _cpu(request.cpu),
        "memory": _memory(request.memory),
    }


def _too_small(among: Iterable[NodeState], state: JobState) -> str:
    """Name the resources of which no node has enough for a worker, or all of them if only their sum is too large."""
    request, amounts = state.job.worker.requests, _amounts(state)
    nodes = [node for node in among if node.capacity.gpu_resource == request.gpu_resource]
    most = {name: max(getattr(node.capacity, name) for node in nodes) for name in amounts}
    short = [name for name in amounts if getattr(request, name) > most[name]]
    if not short:
        *others, last = amounts.values()
        return f"no node has {', '.join(others)} and {last} for a worker together"
    largest = {"gpus": lambda count: _gpus(count, request.gpu_resource), "cpu": _cpu, "memory": _memory}
    lacks = [f"{amounts[name]} for a worker (the largest has {largest[name](most[name])})" for name in short]
    return f"no node has {' and '.join(lacks)}"


def _cpu(millicores: int) -> str:
    return f"{millicores / 1000:g} CPU"


def _memory(amount: int) -> str:
    return f"{_size(amount)} of memory"


def _size(amount: int) -> str:
    gib = amount / 2**30
    return f"{gib:.3g} GiB" if gib < 999.5 else f"{gib / 2**10:.3g} TiB"
