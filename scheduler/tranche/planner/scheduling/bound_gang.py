"""Gangs under binding policies: members are bound to slots together, and start when all of these are free.

Ours [I]. A waiting member keeps its slots from chunks behind it in their queues. All queues have one order, so the
members of the first waiting gang are chosen on all of their nodes as soon as the workers that run there have ended.
"""

from collections.abc import Callable, Sequence

from tranche.planner.context import PlannerContext
from tranche.planner.scheduling import gang_placement
from tranche.planner.scheduling.placement_trial import PlacementTrial
from tranche.planner.scheduling.windows import open_window
from tranche.state.job import JobState, QueuedChunk
from tranche.state.node import NodeState


def members_to_bind(context: PlannerContext, state: JobState) -> list[int]:
    """Return the members to bind: all that wait, if one of them is in no queue or their keys differ; else none.

    A gang is bound as a whole, so members that lost no slots leave their queues too.
    """
    if state.runs:
        return []
    waiting = state.waiting
    entries = [state.entries[chunk] for chunk in waiting if chunk in state.entries]
    if len(entries) == len(waiting) and len({entry.key.of_chunk(0) for entry in entries}) <= 1:
        return []
    context.work.nodes.update(entry.home.node for entry in entries if entry.home.node is not None)
    context.cluster.unbind(entries)
    return waiting


def align_plans(state: JobState) -> None:
    """Let the planned windows of all bound members of a gang begin with the last one of them."""
    entries = list(state.entries.values()) if state.job.is_gang else []
    starts = [entry.planned_start for entry in entries if entry.planned_start is not None]
    for entry in entries:
        if entry.planned_start is not None and entry.planned_end is not None:
            entry.planned_end += max(starts) - entry.planned_start
            entry.planned_start = max(starts)


def may_start(context: PlannerContext, state: JobState, now: float) -> bool:
    """Return whether the whole gang may start now; free slots and resources of its nodes are not checked."""
    return (
        state.active
        and not state.runs
        and not state.has_closing_servers
        and state.held_until <= now
        and all(entry.is_ready(now) for entry in state.entries.values())
        and not any(state.excludes(entry.home.node, now) for entry in state.entries.values())
        and context.cluster.shortage(state) is None
    )


def is_at_unlimited_site(state: JobState) -> bool:
    """Return whether the gang is bound to an unlimited site."""
    return bool(state.entries) and all(entry.home.node is None for entry in state.entries.values())


def start_on_demand(context: PlannerContext, state: JobState, now: float) -> None:
    """Open all windows of a gang at an unlimited site, if it may start."""
    if may_start(context, state, now):
        entries = _members(state)
        gang_placement.start_helpers_at(context, state, entries[0].home.site, now)
        state.topology_level = context.cluster.fresh_level(state)
        for entry in entries:
            open_window(context, state, entry.home, (entry.chunk,))


def start(
    context: PlannerContext, state: JobState, chosen_on: Callable[[NodeState], Sequence[QueuedChunk]], now: float
) -> bool:
    """Open all windows of a gang if each of its nodes has chosen its members there; returns whether they are open.

    Args:
        context: Context of the planner.
        state: State of the gang, which may start.
        chosen_on: Returns the chunks that should run on a node.
        now: Clock, in seconds.
    """
    entries, nodes = _members(state), context.cluster.nodes
    for name in dict.fromkeys(entry.home.node for entry in entries):
        node = nodes.get(name or "")
        chosen = {id(entry) for entry in chosen_on(node)} if node is not None else set[int]()
        if not all(id(entry) in chosen for entry in entries if entry.home.node == name):
            return False
    trial = PlacementTrial(context.cluster, state, now, iter(()))
    trial.place_workers([nodes[entry.home.node or ""] for entry in entries])
    state.unhosted = not trial.place_helpers(state.missing_servers)
    if state.unhosted:
        context.work.unhosted.add(state.job.key)
        return False
    gang_placement.start_helpers(context, state, trial.helper_nodes, now)
    state.topology_level = context.cluster.places.level_of([node.node for node in trial.nodes])
    for entry in entries:
        open_window(context, state, entry.home, (entry.chunk,))
    return True


def _members(state: JobState) -> list[QueuedChunk]:
    return sorted(state.entries.values(), key=lambda entry: entry.chunk)
