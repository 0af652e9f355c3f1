"""One sentence per job: what it does, or what it waits for; the only source of this text for status, API and CLI."""

from collections import Counter
from datetime import UTC, datetime

from tranche.planner.estimates import Estimate
from tranche.planner.rooms import could_run
from tranche.planner.servers import room_for_servers, server_site
from tranche.policies import ClusterState, JobState, Policy

FAR_SECONDS = 1000 * 365 * 86_400.0
"""Beyond this no date is told."""
LONGEST = 2000
"""Characters of an explanation; messages of the API server are cut."""


def explain(cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float) -> str:
    """The sentence for status.plan.explanation."""
    text = _explain(cluster, policy, state, estimate, now)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _explain(cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float) -> str:
    job = state.job
    done = f"{len(state.done)} of {job.chunks} {'members' if job.rigid else 'chunks'} done"
    if state.finished:
        return f"finished: {done}"
    if state.failed:
        return f"failed: {state.failures} pods failed, more than runPolicy.backoffLimit {job.backoff_limit} allows"
    if state.unplannable:
        return state.unplannable[1]
    if job.suspended:
        return f"suspended by spec.suspend; {done}"
    active = [run for run in state.runs.values() if not run.closing]
    if active:
        where = Counter(run.window.site for run in active)
        places = ", ".join(f"{count} at {site}" for site, count in sorted(where.items()))
        return f"{len(active)} worker{'s' if len(active) > 1 else ''} ({places}); {done}"
    return _waiting(cluster, policy, state, estimate, now)


def _waiting(cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float) -> str:
    if state.held_until > now:
        return f"held until {_clock(state.held_until, now)}: {state.hold_reason}"
    need = f"{state.job.gpus} GPU{'s' if state.job.gpus > 1 else ''}"
    if not cluster.eligible(state.job.worker) and not any(cluster.unlimited_sites()):
        return _no_node(cluster, state, need)
    if state.job.rigid and not could_run(cluster, state):
        return f"needs {state.job.chunks} workers of {need} at once, more than the cluster can hold"
    uploads = [entry.ready_at for entry in state.entries.values()]
    if uploads and min(uploads) > now:
        home = min(state.entries.values(), key=lambda entry: entry.ready_at).home.site
        return f"its data are on the way to {home} until {_clock(min(uploads), now)}"
    if not room_for_servers(cluster, state):
        return f"waits for room for its parameter server at {server_site(cluster, state) or 'any site'}"
    if estimate is None:
        return f"waits for {need}: {policy.name} has not placed it yet"
    place = f" at {estimate.site}" if estimate.site else ""
    until = f" until {_clock(estimate.start, now)}" if estimate.start > now else ""
    if estimate.behind:
        return f"waits for {need}{place}{until}, behind {estimate.behind}, {policy.behind}"
    return f"next for {need}{place}{until}"


def _no_node(cluster: ClusterState, state: JobState, need: str) -> str:
    """Names what keeps most nodes from taking a worker."""
    if not cluster.nodes:
        return f"waits for {need}: the cluster has no nodes"
    objections = Counter(node.objection(state.job.worker) or "" for node in cluster.nodes.values())
    reason, count = objections.most_common(1)[0]
    if reason == "too small":
        largest = max(node.capacity.gpus for node in cluster.nodes.values())
        request = state.job.worker.requests
        return (
            f"no node can hold a worker ({need}, {request.cpu / 1000:g} CPU, {request.memory / 2**30:.3g} GiB): "
            f"the largest has {largest} GPU{'s' if largest != 1 else ''} for training"
        )
    return f"no node takes a worker: {count} of {len(cluster.nodes)} nodes {reason}"


def _clock(at: float, now: float) -> str:
    """Time of day in UTC, with the date if that is another day."""
    if at - now > FAR_SECONDS:
        return "far in the future"
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return moment.strftime("%H:%M:%SZ" if moment.date() == today.date() else "%Y-%m-%d %H:%M:%SZ")
