"""One sentence per job: what it does, or what it waits for; status, event, API and CLI have this text from here."""

from collections import Counter

from tranche.model import Job, Measure, until
from tranche.planner.forecast.estimates import Estimate
from tranche.planner.forecast.wait_reason import Constraint, Limit, Precedence, binding_constraint
from tranche.policies import Policy
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState
from tranche.state.phases import JobPhase
from tranche.state.quota_usage import Shortage

LONGEST = 2000
"""Characters of an explanation; messages of the API server are cut."""


def explain(
    cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float
) -> tuple[str, str]:
    """The sentence for status.plan.explanation, and the kind of what the job waits for, empty if it does not."""
    text, waits_for = _activity(state, now), ""
    if not text:
        constraint = binding_constraint(cluster, policy, state, estimate, now)
        text, waits_for = describe(constraint, cluster, policy, state, now), constraint.limit.value
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…", waits_for


def _activity(state: JobState, now: float) -> str:
    """What the job does, or why it never will do anything; empty if it waits."""
    job = state.job
    done = f"{len(state.done)} of {job.chunks} {'members' if job.is_gang else 'chunks'} done"
    match state.phase(now):
        case JobPhase.FINISHED:
            return f"finished: {done}"
        case JobPhase.FAILED:
            return f"failed: {state.failures} pods failed, more than runPolicy.backoffLimit {job.backoff_limit} allows"
        case JobPhase.UNPLANNABLE if state.unplannable is not None:
            return state.unplannable[1]
        case JobPhase.SUSPENDED:
            return f"suspended by spec.suspend; {done}"
        case JobPhase.RUNNING:
            return f"{_workers(state)}; {done}"
    return ""


def _workers(state: JobState) -> str:
    """How many workers the job has at which sites; of a gang whose workers have ended, where its chief is."""
    active = [run for run in state.runs.values() if not run.closing]
    if not active and state.chief is not None:
        return f"its chief goes on at {state.chief.planned.site}"
    where = Counter(run.window.site for run in active)
    places = ", ".join(f"{count} at {site}" for site, count in sorted(where.items()))
    most = ", all that maxReplicas allows" if state.unassigned and len(active) >= state.job.max_workers else ""
    return f"{len(active)} worker{'s' if len(active) > 1 else ''} ({places}){most}"


def describe(constraint: Constraint, cluster: ClusterState, policy: Policy, state: JobState, now: float) -> str:
    """The sentence that names what a job waits for."""
    moment = until(constraint.until, now)
    site = constraint.site or "any site"
    match constraint.limit:
        case Limit.SUSPENDED:
            return "suspended by spec.suspend"
        case Limit.HELD:
            return f"held{moment}: {constraint.reason}"
        case Limit.DATA if constraint.reason:
            return f"its data cannot be brought to {site}: {constraint.reason}"
        case Limit.DATA:
            return f"its data are on the way to {site}{moment}"
        case Limit.SERVER:
            behind = f"{moment}, behind {constraint.behind}" if constraint.behind else ""
            return f"waits for room for its parameter server at {site}{behind}"
        case Limit.AVOIDED:
            need = _gpus(state.job.gpus)
            return f"waits for {need} at {site}: {constraint.node} refused its pod and is avoided{moment}"
        case Limit.QUOTA if constraint.shortage is not None:
            return _quota(constraint.shortage)
        case Limit.UNKNOWN:
            return f"waits for {_gpus(state.job.gpus)}: {policy.name} has not placed it yet"
        case Limit.ROOM:
            return _room(constraint, cluster, policy, state, moment)
    return _never(constraint, cluster, state)


def _never(constraint: Constraint, cluster: ClusterState, state: JobState) -> str:
    """What waiting alone does not change."""
    need = _gpus(state.job.gpus)
    match constraint.limit:
        case Limit.NO_NODES:
            return f"waits for {need}: the cluster has no nodes"
        case Limit.SIZE:
            return _too_small(cluster, state, need)
        case Limit.NODE:
            return f"no node takes a worker: {constraint.count} of {len(cluster.nodes)} nodes {constraint.reason}"
        case Limit.GANG:
            return f"needs {_gang(state.job, need)} at once, more than the cluster can hold"
        case Limit.SERVER_SIZE:
            return f"no node at {constraint.site or 'any site'} can ever hold its parameter server"
    return "its workers do not fit beside its parameter servers"


def _quota(short: Shortage) -> str:
    """Names the limit as its quota does."""
    name, measure = short.limit.resource.removeprefix("requests."), short.limit.measure
    used, asked, hard = (_measured(n, measure) for n in (short.used, short.asked, short.limit.hard))
    if short.hopeless:
        return f"needs {asked} {name} at once, more than the quota {short.quota.key} allows: {hard}"
    return f"waits for the quota {short.quota.key}: {used} of {hard} {name} in use, and {asked} needed"


def _gang(job: Job, need: str) -> str:
    """All pods that start together."""
    parts = [f"{job.chunks} workers of {need}"]
    parts += ["a chief"] if job.chief is not None else []
    parts += [f"{job.servers} parameter server{'s' if job.servers > 1 else ''}"] if job.servers else []
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _measured(number: int, measure: Measure) -> str:
    match measure:
        case "cpu":
            return f"{number / 1000:g}"
        case "memory":
            return f"{number / 2**30:.3g} GiB"
        case _:
            return str(number)


def _room(constraint: Constraint, cluster: ClusterState, policy: Policy, state: JobState, moment: str) -> str:
    room = " and ".join(_amount(state, resource) for resource in constraint.resources)
    place = f" at {constraint.site}" if constraint.site else ""
    if constraint.behind is None:
        return f"next for {room}{place}{moment}"
    why = _precedence(constraint, cluster, policy)
    return f"waits for {room}{place}{moment}, behind {constraint.behind}, {why}"


def _precedence(constraint: Constraint, cluster: ClusterState, policy: Policy) -> str:
    match constraint.precedence:
        case Precedence.ORDER:
            return policy.traits.precedence_reason
        case Precedence.POLICY:
            other = cluster.jobs[constraint.behind or ""]
            if other.eviction_blocked:
                return "whose pods a disruption budget keeps from being stopped"
            return f"which may not be stopped (preemption.policy {other.job.preemption})"
        case Precedence.COST:
            return "which is not worth stopping"
        case Precedence.RUNNING:
            return "which has it already"


def _amount(state: JobState, resource: str) -> str:
    """So much of a resource as a worker needs, or all members of a gang together."""
    request, members = state.job.worker.requests, state.job.min_available
    match resource:
        case "cpu":
            return f"{members * request.cpu / 1000:g} CPU"
        case "memory":
            return f"{members * request.memory / 2**30:.3g} GiB of memory"
        case "pods":
            return "a place for its pod" if members == 1 else f"places for its {members} pods"
    return _gpus(members * request.gpus)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count > 1 else ''}"


def _too_small(cluster: ClusterState, state: JobState, need: str) -> str:
    largest = max(node.capacity.gpus for node in cluster.nodes.values())
    request = state.job.worker.requests
    return (
        f"no node can hold a worker ({need}, {request.cpu / 1000:g} CPU, {request.memory / 2**30:.3g} GiB): "
        f"the largest has {largest} GPU{'s' if largest != 1 else ''} for training"
    )
