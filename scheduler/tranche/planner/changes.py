"""How each event changes the state; what to do about it is decided afterwards, in `tranche.planner.machines`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tranche.planner import (
    arrivals,
    farewells,
    gangs,
    ledgers,
    lessons,
    places,
    refusals,
    releases,
    renewals,
    reports,
    site_uses,
    stagings,
    transfers,
)
from tranche.planner.events import (
    ChiefEnded,
    ChunksRequested,
    ChunkStaged,
    Event,
    EvictionRefused,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    ParameterServerLost,
    ProgressReported,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
    StagingEnded,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.quotas import quota_changed, quotas_differ
from tranche.policies import Hosts, JobState, Run
from tranche.policies.las import NEARLY

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def apply(planner: Planner, event: Event, now: float) -> None:
    """Note one fact; a Tick is only its time."""
    refusals.expire(planner, now)
    if farewells.puts_off(planner, event, now):
        return
    for end in farewells.due(planner, event, now):
        _worker(planner, end, now)
    match event:
        case JobSubmitted() | JobChanged() | JobRemoved():
            _job(planner, event, now)
        case WorkerRejected() | EvictionRefused() | ParameterServerLost() | ChiefEnded():
            _pods(planner, event, now)
        case NodeChanged() | NodeRemoved() | SiteChanged() | SiteRemoved():
            places.change(planner, event)
        case QuotaChanged(quota=quota):
            quota_changed(planner, quota)
        case QuotaRemoved(namespace=namespace, name=name):
            planner.cluster.quotas.remove(namespace, name)
            quotas_differ(planner, namespace)
        case WorkerBound() | WorkerStarted() | WorkerEnded() | WorkerUnschedulable():
            _worker(planner, event, now)
        case ChunkStaged() | ProgressReported() | StagingEnded():
            _told(planner, event, now)
        case ChunksRequested():
            renewals.renew(planner, event, now)


def _told(planner: Planner, event: ChunkStaged | ProgressReported | StagingEnded, now: float) -> None:
    """A job's pods say how far they are."""
    if isinstance(event, ProgressReported):
        reports.count(planner, event)
    elif isinstance(event, StagingEnded):
        stagings.ended(planner, event, now)
    elif (copied := planner.cluster.jobs.get(event.job)) is not None:
        transfers.staged(planner, copied, event.chunk, event.site, event.seconds)


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
        refusals.forgive(planner, node.node.name, state.job.key)
    if not run.closing:
        planner.count_share(state, -1)
    planner.cluster.quotas.give(state.job.key, run.window.attempt)
    planner.quota_grew(state.job.namespace)


def _worker(
    planner: Planner, event: WorkerBound | WorkerStarted | WorkerEnded | WorkerUnschedulable, now: float
) -> None:
    state = planner.cluster.jobs.get(event.job)
    run = state.runs.get(event.attempt) if state is not None else None
    if state is not None and run is None and isinstance(event, WorkerUnschedulable):
        releases.found_no_place(planner, event, now)
    if state is None or run is None:
        return  # an attempt that is closed and counted: nothing of it counts any more
    match event:
        case WorkerBound(node=name):
            run.bound = True
            if run.window.node != name:
                _moved(planner, state, run, name)
        case WorkerStarted(at=at):
            if run.started is None:
                end, cost = run.window.end, state.restart_seconds
                run.started = run.since = at = max(at, run.window.start) if run.window.renewed else at
                state.windows_changed()
                lessons.note_start(planner.cluster, state, run)
                if state.first_started is None:
                    state.first_started = at
                if planner.queue is not None and planner.policy.preemptive:
                    planner.queue.stale[event.job] = None  # its rank falls from now on
                rest = state.left_of(run) * run.batch_seconds
                run.window = replace(run.window, start=at, end=at + rest)
                if run.window.end > end + NEARLY or state.restart_seconds < cost:
                    _weigh_anew(planner, state)
                refusals.has_started(planner, state)  # nothing to publish: the pod itself says that it runs
        case WorkerEnded():
            _ended(planner, state, run, event, now)
        case WorkerUnschedulable():
            refusals.found_no_place(planner, state, run, event.message, now)
            unbind(planner, state, run.window.chunks)


def _weigh_anew(planner: Planner, state: JobState) -> None:
    """Stopping the job's workers may pay now for whom it did not: it costs less, or they need longer, than believed."""
    if planner.queue is not None:
        planner.queue.fall(state)


def _moved(planner: Planner, state: JobState, run: Run, name: str) -> None:
    """kube-scheduler took a fallback: the window, its chunks and its reservation follow.

    A node of an unlimited site is only named: nothing is planned or reserved on it.
    """
    if planner.cluster.is_unlimited(run.window.site) and name not in planner.cluster.nodes:
        run.window = replace(run.window, node=name)
        planner.publish(state.job.key)
        return
    detach(planner, state, run)
    unbind(planner, state, run.window.chunks, forget_site=False)
    node = planner.cluster.nodes.get(name)
    site = node.node.site if node is not None else run.window.site
    run.window = replace(run.window, node=name, site=site)
    run.home = run.home._replace(site=site, node=name if node is not None else None, slots=())
    run.told_batch_seconds = planner.cluster.told_batch_seconds(state, site, node=name)
    attach(planner, state, run)
    if planner.binding is not None:
        arrivals.bind_window(planner, planner.binding, state, run, run.window)
    planner.dirty_nodes.add(name)
    planner.publish(state.job.key)


def _ended(planner: Planner, state: JobState, run: Run, event: WorkerEnded, now: float) -> None:
    job = state.job
    failures = state.failures
    count(planner, state, run, event, now)
    planner.cluster.unbind([state.entries[c] for c in run.window.chunks if c in state.done and c in state.entries])
    if job.rigid and (event.outcome != "Succeeded" or (job.chief is not None and state.chief is None)):
        gangs.start_again(planner, state, event.preempted_by)
    if job.rigid and job.chief is None and not (state.runs or state.finished):
        ledgers.level_gang(state)
    if state.failures > failures:
        refusals.failed(planner, state, f"worker {run.window.index} failed with exit code {event.exit_code}", now)
    if state.finished:
        finish(planner, state)
    elif state.failed:
        stop(planner, state)
    planner.touch(state)
    planner.publish(job.key)


def count(planner: Planner, state: JobState, run: Run, event: WorkerEnded, now: float) -> None:
    """Enter the end of a window into the ledger, and strike it from the books."""
    cost = state.restart_seconds
    lessons.note_stop(state, run, event)
    if state.restart_seconds < cost:
        _weigh_anew(planner, state)
    batches = ledgers.count_end(state, run, event)
    site_uses.ended(planner.cluster, state, run, event.at)
    lessons.learn(planner, state, run, event, batches)
    detach(planner, state, run)
    if not state.runs:
        state.idle_since = now
        _count_busy(state, now)
        releases.watch(planner, state)
        releases.follow(planner, state)


def finish(planner: Planner, state: JobState) -> None:
    """All work of the job is done."""
    site_uses.completed(planner.cluster, state, range(state.job.chunks))
    lessons.conclude(planner, state)
    stop(planner, state)
    planner.touch(state)
    planner.publish(state.job.key)


def _count_busy(state: JobState, now: float) -> None:
    """The job's last window has ended, or the job goes on after it was suspended."""
    if state.busy_since is not None:
        state.busy_seconds += max(0.0, now - state.busy_since)
        state.busy_since = None


def settle_busy(state: JobState, now: float) -> None:
    """A job without windows waits, unless it is suspended; nobody may have been there when that changed."""
    if not state.runs and not state.job.suspended:
        _count_busy(state, now)
    elif not state.runs and state.busy_since is None:
        state.busy_since = now


def stop(planner: Planner, state: JobState) -> None:
    """The job goes no further: its windows close, its servers and queue places are given back.

    If the job may go on later, its servers stop with a gang, since a pod has the same host name in every attempt, and
    else when the last worker has ended, which may still tell them something. If not, nobody waits for them.
    """
    for run in list(state.runs.values()):
        planner.close(state, run)
    stagings.halt(state)
    unbind(planner, state, list(state.entries))
    if state.finished or state.failed:
        _drop_servers(planner, state)
    elif state.job.rigid:
        releases.close(planner, state)
    else:
        releases.follow(planner, state)


def _drop_servers(planner: Planner, state: JobState) -> None:
    releases.give_back(planner, state, state.servers)
    for server in state.servers:
        planner.room_grew(server.planned.node)
    state.servers = []


def unbind(planner: Planner, state: JobState, chunks: Iterable[int], *, forget_site: bool = True) -> None:
    """Take chunks out of the queues; they are dispatched anew, elsewhere if `forget_site`."""
    entries = [state.entries[c] for c in list(chunks) if c in state.entries]
    planner.dirty_nodes.update(entry.home.node for entry in entries if entry.home.node)
    planner.cluster.unbind(entries)
    if forget_site:
        for entry in entries:
            state.data_sites.pop(entry.chunk, None)
    planner.dirty_jobs.add(state.job.key)


# ---- jobs


def _pods(planner: Planner, event: WorkerRejected | EvictionRefused | releases.HelperEnd, now: float) -> None:
    match event:
        case WorkerRejected():
            _rejected(planner, event, now)
        case EvictionRefused():
            refusals.eviction_refused(planner, event, now)
        case ParameterServerLost() | ChiefEnded():
            releases.ended(planner, event, now)


def _job(planner: Planner, event: JobSubmitted | JobChanged | JobRemoved, now: float) -> None:
    match event:
        case JobSubmitted(job=job) if job.key in planner.cluster.jobs:
            _job_changed(planner, JobChanged(job), now)
        case JobSubmitted():
            arrivals.admit(planner, event, now)
        case JobChanged():
            _job_changed(planner, event, now)
        case JobRemoved(job=key):
            _job_removed(planner, key)


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
            run.obsolete = True
            planner.close(state, run)
    state.job = job
    state.ledger_changed()
    state.windows_changed()
    state.hosts = (-1, Hosts(()))
    state.nominal_batch_seconds = planner.cluster.nominal_batch_seconds(state)
    if (job.step_seconds, job.sized) != (old.step_seconds, old.sized):
        lessons.restate(planner, state)
    state.unplannable = arrivals.objection(planner.policy, job)
    state.held_until, state.reviewed = 0.0, -1
    stagings.renew(planner, state)
    planner.rejections.pop(job.key, None)
    if not state.runs and job.suspended != old.suspended:
        _count_busy(state, now)
        state.busy_since = now if job.suspended else None
    if job.suspended or state.unplannable or state.failed:
        stop(planner, state)
    elif replace(old, generation=job.generation) != job:
        planner.rank_fell(state)
        unbind(planner, state, [c for c in state.entries if c not in state.chunk_runs], forget_site=False)
    planner.touch(state)
    planner.publish(job.key)


def _job_removed(planner: Planner, key: str) -> None:
    state = planner.cluster.jobs.get(key)
    if state is None:
        return
    site_uses.removed(planner.cluster, state, planner.now)
    for run in list(state.runs.values()):
        detach(planner, state, run)
    stop(planner, state)
    _drop_servers(planner, state)
    planner.touch(state)
    del planner.cluster.jobs[key]
    planner.cluster.lessons.forget_job(key)
    planner.estimates.pop(key, None)
    planner.unhosted.discard(key)
    planner.rejections.pop(key, None)


def _rejected(planner: Planner, event: WorkerRejected, now: float) -> None:
    state = planner.cluster.jobs.get(event.job)
    if state is None or state.finished:
        return
    if event.permanent:
        state.unplannable = (event.reason, event.message)
        stop(planner, state)
    else:
        settings = planner.settings
        pause = settings.backoff_seconds(settings.rejection_backoff_seconds, refusals.count(planner, event.job))
        refusals.hold(planner, state, now, pause, f"the API server refused its pods ({event.reason}): {event.message}")
        for run in list(state.runs.values()):
            if run.started is None:
                planner.close(state, run)
    planner.touch(state)
    planner.publish(event.job)
