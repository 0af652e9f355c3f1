"""How each event changes the state; what to do about it is decided afterwards, in `tranche.planner.machines`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tranche.model import Node, Site
from tranche.planner import arrivals, ledgers, lessons, transfers
from tranche.planner.events import (
    ChunkStaged,
    Event,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    ParameterServerLost,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.quotas import quota_changed, quotas_differ
from tranche.planner.servers import release_servers
from tranche.policies import Hosts, JobState, NodeState, Run, Server

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def apply(planner: Planner, event: Event, now: float) -> None:
    """Note one fact."""
    match event:
        case JobSubmitted() | JobChanged() | JobRemoved() | WorkerRejected() | ParameterServerLost():
            _job(planner, event, now)
        case NodeChanged(node=node):
            _node_changed(planner, node)
        case NodeRemoved(node=name):
            _node_removed(planner, name)
        case SiteChanged(site=site):
            _sites_changed(planner, {**planner.cluster.sites, site.name: site})
        case SiteRemoved(site=name):
            _sites_changed(planner, {k: v for k, v in planner.cluster.sites.items() if k != name})
        case QuotaChanged(quota=quota):
            quota_changed(planner, quota)
        case QuotaRemoved(namespace=namespace, name=name):
            planner.cluster.quotas.remove(namespace, name)
            quotas_differ(planner, namespace)
        case WorkerBound() | WorkerStarted() | WorkerEnded() | WorkerUnschedulable():
            _worker(planner, event, now)
        case ChunkStaged():
            copied = planner.cluster.jobs.get(event.job)
            if copied is not None:
                transfers.staged(planner, copied, event.chunk, event.site, event.seconds, now)
        case Tick():
            pass


# ---- windows


def attach(planner: Planner, state: JobState, run: Run) -> None:
    """Enter a window into the books of its job and node."""
    state.enter(run)
    if state.busy_since is None:
        state.busy_since = run.window.start
    planner.cluster.quotas.take(state.job, run.window.attempt, state.job.worker.requests)
    node = planner.cluster.nodes.get(run.home.node or "")
    if node is not None:
        node.runs[(state.job.key, run.window.attempt)] = (state, run)
        if run.closing:
            node.leaving[(state.job.key, run.window.attempt)] = run
        else:
            node.reserved = node.reserved + state.job.worker.requests
    if not run.closing:
        planner.count_share(state, 1)
    if planner.queue is not None:
        planner.queue.stale[state.job.key] = None


def detach(planner: Planner, state: JobState, run: Run) -> None:
    """Strike a window from the books."""
    state.leave(run)
    node = planner.cluster.nodes.get(run.home.node or "")
    if node is not None and node.runs.pop((state.job.key, run.window.attempt), None) is not None:
        node.leaving.pop((state.job.key, run.window.attempt), None)
        if not run.closing:
            node.reserved = node.reserved - state.job.worker.requests
        planner.room_grew(node.node.name)
    if not run.closing:
        planner.count_share(state, -1)
    planner.cluster.quotas.give(state.job.key, run.window.attempt)
    planner.quota_grew(state.job.namespace)


def _worker(
    planner: Planner, event: WorkerBound | WorkerStarted | WorkerEnded | WorkerUnschedulable, now: float
) -> None:
    state = planner.cluster.jobs.get(event.job)
    run = state.runs.get(event.attempt) if state is not None else None
    if state is None or run is None:
        return  # an attempt that is closed and counted: nothing of it counts any more
    match event:
        case WorkerBound(node=name):
            if run.window.node != name:
                _moved(planner, state, run, name)
        case WorkerStarted(at=at):
            if run.started is None:
                run.started = at
                state.windows_changed()
                if state.first_started is None:
                    state.first_started = at
                if planner.queue is not None and planner.policy.preemptive:
                    planner.queue.stale[event.job] = None  # its rank falls from now on
                rest = sum(state.remaining_batches(c) for c in run.window.chunks) * run.batch_seconds
                run.window = replace(run.window, start=at, end=at + rest)
                planner.rejections.pop(event.job, None)  # nothing to publish: the pod itself says that it runs
        case WorkerEnded():
            _ended(planner, state, run, event, now)
        case WorkerUnschedulable():
            if run.window.node is not None:
                state.avoided[run.window.node] = now + planner.settings.avoid_seconds
                planner.wake(state.avoided[run.window.node], event.job)
            planner.close(state, run)
            _unbind(planner, state, run.window.chunks)


def _moved(planner: Planner, state: JobState, run: Run, name: str) -> None:
    """kube-scheduler took a fallback: the window, its chunks and its reservation follow."""
    detach(planner, state, run)
    _unbind(planner, state, run.window.chunks, forget_site=False)
    node = planner.cluster.nodes.get(name)
    site = node.node.site if node is not None else run.window.site
    run.window = replace(run.window, node=name, site=site)
    run.home = run.home._replace(site=site, node=name if node is not None else None, slots=())
    attach(planner, state, run)
    if planner.binding is not None:
        arrivals.bind_window(planner, planner.binding, state, run, run.window)
    planner.dirty_nodes.add(name)
    planner.publish(state.job.key)


def _ended(planner: Planner, state: JobState, run: Run, event: WorkerEnded, now: float) -> None:
    job = state.job
    failures = state.failures
    batches = ledgers.count_end(state, run, event)
    lessons.learn(planner, state, run, event, batches)
    detach(planner, state, run)
    if not state.runs:
        state.idle_since = now
        _count_busy(state, now)
    if state.finished:
        lessons.conclude(planner, state)
    planner.cluster.unbind([state.entries[c] for c in run.window.chunks if c in state.done and c in state.entries])
    if job.rigid and event.outcome != "Succeeded":  # the gang starts again as a whole
        state.done.clear()
        state.ledger_changed()
        state.windows_changed()
        for other in list(state.runs.values()):
            planner.close(state, other)
    if state.failures > failures and not state.failed:
        pause = planner.settings.failure_backoff_seconds * 2 ** (state.failures - 1)
        _hold(planner, state, now, pause, f"worker {run.window.index} failed with exit code {event.exit_code}")
    if state.finished or state.failed:
        _stop(planner, state)
    planner.touch(state)
    planner.publish(job.key)


def _count_busy(state: JobState, now: float) -> None:
    """The job's last window has ended, or the job goes on after it was suspended."""
    if state.busy_since is not None:
        state.busy_seconds += max(0.0, now - state.busy_since)
        state.busy_since = None


def _hold(planner: Planner, state: JobState, now: float, seconds: float, reason: str) -> None:
    state.held_until = now + min(seconds, planner.settings.longest_backoff_seconds)
    state.hold_reason = reason
    planner.wake(state.held_until, state.job.key)


def _stop(planner: Planner, state: JobState) -> None:
    """The job goes no further: its windows close, its servers and queue places are given back."""
    for run in list(state.runs.values()):
        planner.close(state, run)
    _unbind(planner, state, list(state.entries))
    _release(planner, state, state.servers)
    for server in state.servers:
        planner.room_grew(server.planned.node)
    state.servers = []


def _release(planner: Planner, state: JobState, servers: Iterable[Server]) -> None:
    """Parameter servers are over: give back what they hold."""
    release_servers(planner.cluster, list(servers))
    for server in servers:
        planner.cluster.quotas.give(state.job.key, server.planned.attempt)
    planner.quota_grew(state.job.namespace)


def _unbind(planner: Planner, state: JobState, chunks: Iterable[int], *, forget_site: bool = True) -> None:
    """Take chunks out of the queues; they are dispatched anew, elsewhere if `forget_site`."""
    entries = [state.entries[c] for c in list(chunks) if c in state.entries]
    planner.dirty_nodes.update(entry.home.node for entry in entries if entry.home.node)
    planner.cluster.unbind(entries)
    if forget_site:
        for entry in entries:
            state.data_sites.pop(entry.chunk, None)
    planner.dirty_jobs.add(state.job.key)


# ---- jobs


def _job(
    planner: Planner, event: JobSubmitted | JobChanged | JobRemoved | WorkerRejected | ParameterServerLost, now: float
) -> None:
    match event:
        case JobSubmitted(job=job) if job.key in planner.cluster.jobs:
            _job_changed(planner, JobChanged(job), now)
        case JobSubmitted():
            arrivals.admit(planner, event, now)
        case JobChanged():
            _job_changed(planner, event, now)
        case JobRemoved(job=key):
            _job_removed(planner, key)
        case WorkerRejected():
            _rejected(planner, event, now)
        case ParameterServerLost():
            _server_lost(planner, event)


def _job_changed(planner: Planner, event: JobChanged, now: float) -> None:
    job = event.job
    state = planner.cluster.jobs.get(job.key)
    if state is None:
        return
    if job == state.job:
        return
    old, resized = state.job, job.worker.requests != state.job.worker.requests
    if resized:  # the books of running windows are kept in the requests that their pods were made with
        for run in list(state.runs.values()):
            planner.close(state, run)
    state.job = job
    state.ledger_changed()
    state.windows_changed()
    state.hosts = (-1, Hosts(()))
    state.nominal_batch_seconds = planner.cluster.nominal_batch_seconds(state)
    if (job.step_seconds, job.sized) != (old.step_seconds, old.sized):
        lessons.restate(planner, state)
    state.unplannable = arrivals.objection(planner.policy, job)
    state.held_until = 0.0
    planner.rejections.pop(job.key, None)
    if not state.runs and job.suspended != old.suspended:
        _count_busy(state, now)
        state.busy_since = now if job.suspended else None
    if job.suspended or state.unplannable or state.failed:
        _stop(planner, state)
    elif replace(old, generation=job.generation) != job:
        _unbind(planner, state, [c for c in state.entries if c not in state.chunk_runs], forget_site=False)
    planner.touch(state)
    planner.publish(job.key)


def _job_removed(planner: Planner, key: str) -> None:
    state = planner.cluster.jobs.get(key)
    if state is None:
        return
    for run in list(state.runs.values()):
        detach(planner, state, run)
    _stop(planner, state)
    planner.touch(state)
    del planner.cluster.jobs[key]
    planner.cluster.lessons.forget_job(key)
    planner.estimates.pop(key, None)
    planner.rejections.pop(key, None)


def _rejected(planner: Planner, event: WorkerRejected, now: float) -> None:
    state = planner.cluster.jobs.get(event.job)
    if state is None or state.finished:
        return
    if event.permanent:
        state.unplannable = (event.reason, event.message)
        _stop(planner, state)
    else:
        count = planner.rejections[event.job] = planner.rejections.get(event.job, 0) + 1
        pause = planner.settings.rejection_backoff_seconds * 2 ** (count - 1)
        _hold(planner, state, now, pause, f"the API server refused its pods ({event.reason}): {event.message}")
        for run in list(state.runs.values()):
            if run.started is None:
                planner.close(state, run)
    planner.touch(state)
    planner.publish(event.job)


def _server_lost(planner: Planner, event: ParameterServerLost) -> None:
    state = planner.cluster.jobs.get(event.job)
    lost = [s for s in state.servers if s.planned.attempt == event.attempt] if state is not None else []
    if state is None or not lost:
        return
    _release(planner, state, lost)
    planner.room_grew(None)
    state.servers = [server for server in state.servers if server not in lost]
    planner.place_servers(state)
    planner.touch(state)
    planner.publish(event.job)


# ---- nodes and sites


def _node_changed(planner: Planner, node: Node) -> None:
    cluster = planner.cluster
    known = cluster.nodes.get(node.name)
    if known is None:
        known = cluster.nodes[node.name] = NodeState(node)
        _readopt(planner, known)
    moved = known.node.site != node.site
    known.set_node(node)
    cluster.nodes_changed()
    gone = {id(entry): entry for queue in known.queues[known.slots :] for entry in queue}
    known.queues += [[] for _ in range(len(known.queues), known.slots)]
    unfit = [e for e in known.entries() if moved or known.objection(e.state.job.worker) is not None]
    displaced: dict[int, tuple[JobState, Run]] = {}
    for entry in (gone | {id(e): e for e in unfit}).values():
        run = entry.state.chunk_runs.get(entry.chunk)
        if run is None or id(entry) in gone:
            _unbind(planner, entry.state, (entry.chunk,))
        if run is not None and id(entry) in gone:
            displaced[id(run)] = (entry.state, run)
    del known.queues[known.slots :]
    for state, run in displaced.values():  # what runs goes on, on the slots that are left
        run.home = run.home._replace(slots=())
        if planner.binding is not None:
            arrivals.bind_window(planner, planner.binding, state, run, run.window)
    planner.dirty_nodes.add(node.name)
    planner.reconsider_unbound()


def _readopt(planner: Planner, node: NodeState) -> None:
    """A node (re)appears: windows and servers that were planned for it reserve there again."""
    name = node.node.name
    for state in planner.cluster.jobs.values():
        for server in state.servers:
            if server.planned.node == name:
                node.reserved = node.reserved + server.requests
        for run in state.runs.values():
            if run.home.node == name:
                node.runs[(state.job.key, run.window.attempt)] = (state, run)
                if run.closing:
                    node.leaving[(state.job.key, run.window.attempt)] = run
                else:
                    node.reserved = node.reserved + state.job.worker.requests


def _node_removed(planner: Planner, name: str) -> None:
    node = planner.cluster.nodes.pop(name, None)
    if node is None:
        return
    planner.cluster.nodes_changed()
    planner.cluster.lessons.forget_node(name)
    for entry in node.entries():
        _unbind(planner, entry.state, (entry.chunk,))
    planner.dirty_nodes.discard(name)
    planner.reconsider_unbound()


def _sites_changed(planner: Planner, sites: dict[str, Site]) -> None:
    planner.cluster.sites = sites
    planner.cluster.nodes_changed()
    for state in planner.cluster.jobs.values():
        state.nominal_batch_seconds = planner.cluster.nominal_batch_seconds(state)
        state.windows_changed()
    planner.reconsider_unbound()
