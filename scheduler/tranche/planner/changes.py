"""Which handler applies each event; what to do about it is decided afterwards, in `tranche.planner.machines`."""

from collections.abc import Callable, Mapping
from typing import Any

from tranche.planner import (
    arrivals,
    copies_told,
    farewells,
    places,
    refusals,
    releases,
    renewals,
    reports,
    workers,
)
from tranche.planner.context import PlannerContext
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

HANDLERS: Mapping[type[Event], Callable[[PlannerContext, Any], None]] = {
    WorkerBound: workers.bound,
    WorkerStarted: workers.started,
    WorkerEnded: workers.ended,
    ProgressReported: reports.count,
    ChunksRequested: renewals.renew,
    ParameterServerLost: releases.ended,
    ChiefEnded: releases.ended,
    WorkerUnschedulable: refusals.unschedulable,
    WorkerRejected: refusals.rejected,
    EvictionRefused: refusals.eviction_refused,
    ChunkStaged: copies_told.staged,
    StagingEnded: copies_told.ended,
    JobSubmitted: arrivals.submitted,
    JobChanged: arrivals.changed,
    JobRemoved: arrivals.removed,
    NodeChanged: places.node_changed,
    NodeRemoved: places.node_removed,
    SiteChanged: places.site_changed,
    SiteRemoved: places.site_removed,
    QuotaChanged: places.quota_changed,
    QuotaRemoved: places.quota_removed,
}
"""A handler takes the context and an event of its own type; a `Tick` has none, since only its time counts."""


def apply(context: PlannerContext, event: Event) -> None:
    """Apply one event to the state, after what has had its time and what the event decides on."""
    if context.cluster.spared:
        refusals.expire(context)
    if isinstance(event, WorkerEnded) and farewells.puts_off(context, event):
        return
    for end in farewells.due(context, event) if context.held_ends else ():
        workers.ended(context, end)
    handler = HANDLERS.get(type(event))
    if handler is not None:
        handler(context, event)
