"""Handlers for jobs that are submitted, restored from the status that an earlier planner wrote, changed or removed."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from tranche.model import Admission, Job, JobPlan, parse_chunks
from tranche.planner import data_staging, learning, node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import (
    JobChanged,
    JobFailed,
    JobRemoved,
    JobSubmitted,
    JobUnreadable,
    PodOverdue,
    TenancyChanged,
)
from tranche.planner.handlers import pod
from tranche.planner.job_actions import (
    close_server,
    close_window,
    close_without_site,
    close_workers,
    drop_servers,
    end_window,
    enlarge_job,
    forget_exclusions,
    resume_pause,
    stop,
    stop_gang,
    unbind_chunks,
    watch_idle_servers,
)
from tranche.planner.scheduling import level_relocation, worker_distribution
from tranche.planner.scheduling.slot_scheduler import bind_window, order_again
from tranche.planner.unplaced_pods import abandon_preemption, renew_placement, restore_unplaced
from tranche.policies import Policy, QueuePolicy
from tranche.state import progress_ledger, site_accounting
from tranche.state.cluster import ClusterState
from tranche.state.helper import Server
from tranche.state.job import JobState
from tranche.state.staging import ARRIVED
from tranche.state.window import SlotBinding, TrackedWindow

RESIZED = "the worker template has other requests now"
REVISED = "its template changed before it started"
"""Why windows close after a change of the specification."""


def objection(policy: Policy, job: Job) -> tuple[str, str] | None:
    """Return why the policy can never plan this job, as a CamelCase reason and a sentence; None if it can."""
    if job.gpu_problem is not None:
        return job.gpu_problem
    if job.gpus == 0:
        return (
            "NoGpuRequested",
            "the worker template requests no GPU: add the GPU resource to the limits of a container",
        )
    if job.is_gang and (job.chunks > 1 or job.helper_count) and not policy.traits.supports_gangs:
        return (
            "GangNotPlanned",
            f"policy {policy.name} plans jobs with spec.data only, and this job is a gang of {job.chunks}: add "
            "spec.data, or choose a policy that plans gangs (such as fifo or srsf)",
        )
    if job.staged and not (isinstance(policy, QueuePolicy) and policy.traits.needs_local_data):
        return (
            "StagingNotPlanned",
            f"policy {policy.name} does not plan to which sites data are copied: leave out spec.data.staging, or "
            "choose a policy that does (such as chunk)",
        )
    return None


def submitted(context: PlannerContext, event: JobSubmitted) -> None:
    """Admit a new job; for a known job, apply the change of its specification."""
    if event.job.key in context.cluster.jobs:
        changed(context, JobChanged(event.job))
    else:
        admit(context, event)


def admit(context: PlannerContext, event: JobSubmitted) -> None:
    """Add the job with its ledger and its running windows; chunks are dispatched when all jobs are added."""
    job, cluster, now = context.tenancy.limited(event.job), context.cluster, context.now
    state = cluster.jobs[job.key] = JobState(
        job, idle_since=job.submitted, level_since=now, restarts=cluster.restarts.of_job(job.namespace)
    )
    cluster.uploads.corrections.expect_job(job.namespace)
    state.attempts = event.former_attempts
    state.nominal_batch_seconds = cluster.nominal_batch_seconds(state)
    state.unplannable = objection(context.policy, job)
    if event.progress is not None:
        progress_ledger.restore(state, event.progress)
        if not event.returns:
            cluster.shares.restore(job.tenant, state.counted_gpu_seconds, job.submitted, now)
    if state.finished and not (event.plan is not None and any(one.is_chief for one in event.plan.servers)):
        learning.record_completion(context, state)
    else:
        learning.predict_size(context, state, event.progress.learnt if event.progress is not None else 1.0)
    if event.plan is not None:
        _restore_plan(context, state, event.plan)
        _catch_up(context, state, event)
        close_without_site(context, state)
        if context.policy.traits.places_by_level:
            level_relocation.restore(context, state, event.plan)
        worker_distribution.restore(context, state, event.plan.grant)
    state.settle_busy(now)
    _avoid_failed_nodes(context, state)
    if state.active and state.records:
        resume_pause(context, state)
    if job.suspended or state.unplannable or state.failed:  # perhaps no planner was running then to stop it
        stop(context, state)
    context.touch(state)
    context.publish(job.key)


def _avoid_failed_nodes(context: PlannerContext, state: JobState) -> None:
    """Let the job avoid the nodes on which its last pods failed, as it did under the earlier planner."""
    for record in reversed(state.records if state.active else ()):
        if record.reason != "Failed":
            break
        node_exclusion.avoid_after_failure(context, state, record.node)


def learn_from_completed(context: PlannerContext, event: JobSubmitted) -> None:
    """Learn the service that a completed job needed."""
    state = JobState(event.job)
    state.nominal_batch_seconds = context.cluster.nominal_batch_seconds(state)
    if event.progress is not None:
        progress_ledger.restore(state, event.progress)
    if state.finished:
        learning.record_completion(context, state)


def _restore_plan(context: PlannerContext, state: JobState, plan: JobPlan) -> None:
    state.attempts = plan.attempts
    if plan.unplaced is not None and plan.generation == state.job.generation:
        restore_unplaced(context, state, plan.unplaced)
    job, cluster, now = state.job, context.cluster, context.now
    for planned in plan.servers if not state.finished or any(one.is_chief for one in plan.servers) else ():
        shape = job.chief if planned.is_chief else job.server
        if shape is not None:
            cluster.add_server(state, Server(planned, shape.requests, now, adopted=True))
    _restore_level(context, state, plan)
    state.colocated = context.binding is not None and _is_in_one_cloud(cluster, state, plan)
    for window in plan.windows:
        if any(c in state.chunk_runs or c in state.done or c >= job.chunks for c in window.chunks):
            continue
        state.attempts = max(state.attempts, window.attempt)
        pace = cluster.batch_seconds(state, window.site, node=window.node if cluster.weighs_gpu_kinds else None)
        host = None if cluster.is_unlimited(window.site) else window.node
        declared = cluster.declared_batch_seconds(state, window.site, node=window.node)
        run = TrackedWindow(
            window, SlotBinding(window.site, host), now, pace, declared, adopted=True, held_from=window.start
        )
        cluster.enter_window(state, run, now)
        context.rank_again(state)
        if context.binding is not None:
            bind_window(context, context.binding, state, run, window)
    watch_idle_servers(context, state)
    for site, text in plan.homes.items():
        for chunk in parse_chunks(text):
            if context.queue is None:
                state.data_sites[chunk] = site
            else:
                state.copy(chunk, site, ARRIVED)
    if job.staged:
        data_staging.restore(context, state, plan.staging, now)
    state.burst_sites = cluster.clouds_with_copies(state)


def _is_in_one_cloud(cluster: ClusterState, state: JobState, plan: JobPlan) -> bool:
    """Return whether the parameter servers of a bound job and its unfinished chunks are all at one unlimited site."""
    unfinished = (site for site, text in plan.homes.items() if not state.done.issuperset(parse_chunks(text)))
    servers = (server.planned.site for server in state.servers)
    places = {*unfinished, *servers, *(window.site for window in plan.windows)}
    return state.job.servers > 0 and len(places) == 1 and all(map(cluster.is_unlimited, places))


def _restore_level(context: PlannerContext, state: JobState, plan: JobPlan) -> None:
    """Restore the topology level that the members of a gang share."""
    if state.job.is_gang and plan.windows:
        cluster = context.cluster
        nodes = [cluster.nodes[window.node].node for window in plan.windows if window.node in cluster.nodes]
        state.topology_level = cluster.places.level_of(nodes) if nodes else cluster.fresh_level(state)


def _catch_up(context: PlannerContext, state: JobState, event: JobSubmitted) -> None:
    """Apply a change of the specification that was made while no planner was running; compare `changed`."""
    if event.plan is None or event.plan.generation == state.job.generation:
        return
    revised = any(staging.attempt in event.revised for staging in state.stagings.values() if staging.attempt)
    data_staging.retry_failed(context, state, revised=revised)
    for attempts, why in ((event.outdated, RESIZED), (event.revised, REVISED)):
        for run in [run for attempt, run in state.runs.items() if attempt in attempts]:
            run.obsolete = True
            close_window(context, state, run, why)
    _close_revised_servers(context, state, event.revised)


def _admitted(old: Job, new: Job) -> Job:
    """Return the old job with what the dry run of the new one says about its pods."""
    return replace(
        old,
        admission=new.admission,
        refusal=new.refusal,
        worker=new.worker if old.declared_requests == new.declared_requests else old.worker,
        template_requests=new.template_requests,
        server=new.server,
        chief=new.chief,
    )


def changed(context: PlannerContext, event: JobChanged) -> None:
    """Apply a change of the job's specification."""
    job, now = context.tenancy.limited(event.job), context.now
    state = context.cluster.jobs.get(job.key)
    if state is None or job == state.job:
        return
    old = state.job
    if _admitted(old, job) == job:  # a dry run, not the user
        state.job = job
        enlarge_job(context, state)
        if job.admission is not Admission.REFUSED:
            state.unplannable = objection(context.policy, job)
        if state.job.worker != old.worker:
            state.hosts = (-1, None)
            unbind_chunks(context, state, [c for c in state.entries if c not in state.chunk_runs], forget_site=False)
        context.touch(state)
        context.publish(job.key)
        return
    _close_outdated(context, state, job, revised="worker" in event.revised)
    _close_revised_servers(
        context,
        state,
        [
            server.planned.attempt
            for server in state.servers
            if server.planned.attempt in event.unstarted
            and ("chief" if server.planned.is_chief else "ps") in event.revised
        ],
    )
    state.job = job
    enlarge_job(context, state)
    job = state.job
    state.ledger_changed()
    state.windows_changed()
    state.hosts = (-1, None)
    state.nominal_batch_seconds = context.cluster.nominal_batch_seconds(state)
    if _declared_speed(job) != _declared_speed(old):
        learning.forget_learned_speed(context, state)
    state.unplannable = objection(context.policy, job)
    state.held_until, state.reviewed = 0.0, -1
    data_staging.retry_failed(context, state, revised="staging" in event.revised)
    if job.generation != old.generation:
        renew_placement(context, state)
    if job.suspended and not old.suspended:
        abandon_preemption(context, state, "suspended before its pods had started")
    if not state.runs and job.suspended != old.suspended:
        state.count_busy(now)
        state.busy_since = now if job.suspended else None
    if job.suspended or state.unplannable or state.failed:
        stop(context, state)
    elif replace(old, generation=job.generation) != job:
        context.rank_fell(state)
        unbind_chunks(context, state, [c for c in state.entries if c not in state.chunk_runs], forget_site=False)
        if context.binding is not None:
            order_again(context, context.binding, state)
    context.touch(state)
    context.publish(job.key)


def _close_outdated(context: PlannerContext, state: JobState, job: Job, *, revised: bool) -> None:
    """Close windows whose pods are outdated by a new specification.

    Other requests make all pods outdated; what admission adds to later pods does not. Another change of the template
    makes those outdated whose worker has not started: it may correct what keeps them from starting. The members of a
    gang have one template, so that a gang of which a member has started keeps its pods.
    """
    outdated, why = list(state.runs.values()), RESIZED
    if job.declared_requests == state.job.declared_requests:
        outdated, why = [run for run in outdated if run.started is None and not run.closing], REVISED
        if not revised or (state.job.is_gang and len(outdated) < len(state.runs)):
            return
    for run in outdated:
        run.obsolete = True
        close_window(context, state, run, why)


def _close_revised_servers(context: PlannerContext, state: JobState, attempts: Collection[int]) -> None:
    """Stop parameter servers and the chief of these attempts, which have not started, and the pods that wait for them.

    Nothing has trained without them.
    """
    revised = [server for server in state.servers if server.planned.attempt in attempts and not server.closing]
    for server in revised:
        server.never_scheduled = True
    if revised and state.job.is_gang:
        stop_gang(context, state, REVISED)
    elif revised:
        close_workers(context, state, REVISED)
        for server in revised:
            close_server(context, state, server, REVISED)


def _declared_speed(job: Job) -> tuple[float, Mapping[str, float], bool]:
    """Return what the specification says about the job's speed."""
    return job.step_seconds, job.step_seconds_by_kind, job.size_declared


def tenancy_changed(context: PlannerContext, event: TenancyChanged) -> None:
    """Apply other limits to the specifications that arrive from now on."""
    context.tenancy = event.tenancy


def failed(context: PlannerContext, event: JobFailed) -> None:
    """Close all windows of a job that the operator has ended; the ledger counts their pods as these end.

    Pods that are kept do not stop, so that their room is not free.
    """
    state = context.cluster.jobs.get(event.job)
    if state is None or state.end_reason:
        return
    state.end_reason = event.message  # it stays failed, also if its back-off limit is raised now
    abandon_preemption(context, state, "ended before its pods had started")
    stop(context, state)
    for attempt in tuple(state.runs) if event.keeps_pods else ():
        pod.overdue(context, PodOverdue(event.job, attempt))
    context.touch(state)
    context.publish(event.job)


def unreadable(context: PlannerContext, event: JobUnreadable) -> None:
    """Stop a job until a later change of its specification."""
    state = context.cluster.jobs.get(event.job)
    if state is None or state.finished:
        return
    state.unplannable = (event.reason, event.message)
    stop(context, state)
    context.touch(state)
    context.publish(event.job)


def removed(context: PlannerContext, event: JobRemoved) -> None:
    """Remove a job with all of its reservations."""
    key = event.job
    state = context.cluster.jobs.get(key)
    if state is None:
        return
    if not event.stays:
        site_accounting.count_removal(context.cluster, state, context.now)
        abandon_preemption(context, state, "deleted before its pods had started")
    for run in list(state.runs.values()):
        end_window(context, state, run)
    if not state.finished:
        context.cluster.cancel_copies(state, context.now)
    stop(context, state)
    drop_servers(context, state)
    context.touch(state)
    forget_exclusions(context, state)
    del context.cluster.jobs[key]
    # Another job may have this name before the next decision.
    context.phases.pop(key, None)
    if context.queue is not None:
        context.queue.forget(key)
    context.timers.change(None, key)
    context.cluster.speed_model.forget_job(key)
    context.cluster.restarts.forget_job(state.job.namespace)
    context.cluster.uploads.corrections.forget_job(state.job.namespace)
    context.work.unhosted.discard(key)
