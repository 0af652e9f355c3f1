"""Dispatch of events to their handlers; the decision follows afterwards, in `tranche.planner.planner`."""

from collections.abc import Callable, Mapping
from typing import Any

from tranche.planner.context import PlannerContext
from tranche.planner.events import (
    ChiefEnded,
    ChunksRequested,
    ChunkStaged,
    Event,
    EvictionRefused,
    JobChanged,
    JobFailed,
    JobRemoved,
    JobSubmitted,
    JobUnreadable,
    KubeSchedulerChanged,
    NodeChanged,
    NodeJoined,
    NodeRemoved,
    ParameterServerEnded,
    PlanRejected,
    PodAdmitted,
    PodOverdue,
    PodStartFailed,
    ProgressReported,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
    StagingEnded,
    TenancyChanged,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.handlers import chunk_request, cluster, failure, gang, helper, job, pod, progress, staging, worker

HANDLERS: Mapping[type[Event], Callable[[PlannerContext, Any], None]] = {
    WorkerBound: worker.bound,
    WorkerStarted: worker.started,
    WorkerEnded: worker.ended,
    ProgressReported: progress.count,
    ChunksRequested: chunk_request.requested,
    ParameterServerEnded: helper.ended,
    ChiefEnded: helper.ended,
    PodAdmitted: pod.admitted,
    PodOverdue: pod.overdue,
    PodStartFailed: failure.start_failed,
    WorkerUnschedulable: failure.unschedulable,
    WorkerRejected: failure.rejected,
    PlanRejected: failure.plan_rejected,
    EvictionRefused: failure.eviction_refused,
    ChunkStaged: staging.staged,
    StagingEnded: staging.ended,
    JobSubmitted: job.submitted,
    JobChanged: job.changed,
    JobFailed: job.failed,
    JobUnreadable: job.unreadable,
    JobRemoved: job.removed,
    NodeChanged: cluster.node_changed,
    NodeRemoved: cluster.node_removed,
    NodeJoined: cluster.node_joined,
    SiteChanged: cluster.site_changed,
    SiteRemoved: cluster.site_removed,
    QuotaChanged: cluster.quota_changed,
    QuotaRemoved: cluster.quota_removed,
    TenancyChanged: job.tenancy_changed,
    KubeSchedulerChanged: cluster.scheduler_changed,
}
"""A handler takes the context and an event of its own type; a `Tick` has none, since only its time counts."""


def apply(context: PlannerContext, event: Event) -> None:
    """Apply one event to the state, after expired eviction holds and held ends of gang members that count now."""
    if context.cluster.eviction_blocked_until:
        failure.expire_eviction_holds(context)
    if isinstance(event, WorkerEnded) and gang.defer_member_end(context, event):
        return
    for end, is_alone in gang.release_due(context, event) if context.pending_completions else ():
        worker.ended(context, end, is_alone=is_alone)
    handler = HANDLERS.get(type(event))
    if handler is not None:
        handler(context, event)
