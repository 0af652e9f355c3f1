"""Handlers for completed copies of data, and for ended staging pods."""

from tranche.planner import data_staging, node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import ChunkStaged, StagingEnded
from tranche.planner.job_actions import NO_REASON


def staged(context: PlannerContext, event: ChunkStaged) -> None:
    """Record that the data of a chunk are at a site, and learn from the time that the copy took."""
    state = context.cluster.jobs.get(event.job)
    if state is None:
        return
    context.cluster.copy_measured(state, event.site, event.seconds, context.now)
    data_staging.note_copied(state, event.chunk, event.site)
    entry = state.entries.get(event.chunk)
    if entry is not None and entry.home.site == event.site:
        entry.ready_at = context.now
    context.touch(state)
    context.publish(event.job)


def ended(context: PlannerContext, event: StagingEnded) -> None:
    """Count the end of a staging pod, unless the plan no longer contains it."""
    state = context.cluster.jobs.get(event.job)
    staging = next((s for s in state.stagings.values() if s.attempt == event.attempt), None) if state else None
    if state is None or staging is None:
        return
    chunks, staging.chunks, staging.attempt = staging.chunks, (), 0
    if event.outcome == "Succeeded":
        staging.failures, staging.refusals, staging.problem = 0, 0, ""
        context.cluster.copy_measured(state, staging.site, event.seconds / len(chunks), context.now)
        for chunk in chunks:
            data_staging.note_copied(state, chunk, staging.site)
    else:
        staging.wanted = (*chunks, *staging.wanted)
        staging.failures += event.outcome == "Failed"
        staging.refusals += event.outcome == "Refused"
        staging.problem = event.reason
        if event.node:
            node_exclusion.note_problem(context, state, event.node, event.reason or NO_REASON)
        data_staging.back_off(context, state, staging, context.now)
    context.work.unstaged[event.job] = None
    context.touch(state)
    context.publish(event.job)
