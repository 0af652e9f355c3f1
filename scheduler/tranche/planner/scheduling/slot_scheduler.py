"""Slot scheduler of binding policies: dispatches chunks to slots, and chooses the chunks that run on each node."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from tranche.model import Resources, Window
from tranche.planner.context import PlannerContext
from tranche.planner.instructions import StageData
from tranche.planner.job_actions import NO_ROOM, close_window, preempt_window
from tranche.planner.job_queue import preemptible
from tranche.planner.scheduling import bound_gang
from tranche.planner.scheduling.placement import without_refusing_sites
from tranche.planner.scheduling.placement_trial import PlacementTrial, usable_clouds
from tranche.planner.scheduling.server_placement import place_servers, room_for_servers
from tranche.planner.scheduling.windows import open_window
from tranche.planner.unplaced_pods import scope_now
from tranche.policies import BindingPolicy, Policy
from tranche.policies.binding.slot_projection import planned_window
from tranche.state import site_accounting
from tranche.state.job import JobState, QueuedChunk
from tranche.state.node import NodeState
from tranche.state.phases import WindowPhase
from tranche.state.placement_record import PreemptionScope
from tranche.state.quota_usage import NO_PODS, Kind, kind_of
from tranche.state.window import SlotBinding, TrackedWindow


def serve_nodes(context: PlannerContext, binding: BindingPolicy, now: float) -> None:
    """Dispatch chunks, and open and close windows, until no job or node is left to reconsider."""
    while context.work.jobs or context.work.nodes:
        for state in _in_order(context):
            _serve_job(context, binding, state, now)
        nodes, context.work.nodes = sorted(context.work.nodes & context.cluster.nodes.keys()), set()
        for name in nodes:
            _serve_node(context, context.cluster.nodes[name], now)


def _in_order(context: PlannerContext) -> list[JobState]:
    """Take the jobs to reconsider, in order of submission."""
    keys, context.work.jobs = context.work.jobs, set()
    states = [context.cluster.jobs[key] for key in keys if key in context.cluster.jobs]
    return sorted(states, key=lambda state: (state.job.submitted, state.job.key))


def _serve_job(context: PlannerContext, binding: BindingPolicy, state: JobState, now: float) -> None:
    if not state.active:
        return
    _dispatch(context, binding, state, now)
    if state.job.is_gang and bound_gang.is_at_unlimited_site(state):
        bound_gang.start_on_demand(context, state, now)
        return
    for entry in sorted(state.entries.values(), key=lambda e: e.key):
        if entry.home.node is None and entry.chunk not in state.chunk_runs and _may_start(context, entry, now):
            open_window(context, state, entry.home, (entry.chunk,))


def _serve_node(context: PlannerContext, node: NodeState, now: float) -> None:
    chosen: list[QueuedChunk] = []
    reserved = None
    while reserved != node.reserved:
        reserved = node.reserved
        chosen = _choose(context, node, now)  # repeated if parameter servers were placed meanwhile
    wanted = {id(entry) for entry in chosen}
    waiting = [entry for entry in chosen if not _is_open(entry)]
    for state, run in list(node.runs.values()):
        entries = [state.entries[c] for c in run.window.chunks if c in state.entries]
        if entries and not run.closing and not any(id(entry) in wanted for entry in entries):
            preemptor = _preemptor(state, run, waiting)
            if preemptor is not None:
                why = context.policy.precedence_reason(preemptor, state, context.cluster, now)
                preempt_window(context, state, run, preemptor, why)
            elif run.phase is WindowPhase.PENDING:  # a pod on the node has its room, whatever the node offers now
                close_window(context, state, run, f"node {node.node.name} {NO_ROOM}")
    for entry in chosen:
        if entry.chunk in entry.state.chunk_runs:
            continue
        if not entry.state.job.is_gang:
            open_window(context, entry.state, entry.home, (entry.chunk,))
        elif bound_gang.start(context, entry.state, lambda other: _chosen_as_it_stands(context, other, now), now):
            context.work.nodes.add(node.node.name)  # the gang may have used the room or the quota of those behind it
            return


def _preemptor(state: JobState, run: TrackedWindow, waiting: Sequence[QueuedChunk]) -> JobState | None:
    """Return the job whose waiting chunk takes a slot of the window, else its resources; None if none does."""
    others = [entry for entry in waiting if entry.state is not state]
    on_slots = [entry for entry in others if set(entry.home.slots) & set(run.home.slots)]
    return next((entry.state for entry in (*on_slots, *others)), None)


def _choose(context: PlannerContext, node: NodeState, now: float) -> list[QueuedChunk]:
    starts: Counter[str] = Counter()
    kinds: Counter[Kind] = Counter()

    def may_start(entry: QueuedChunk) -> bool:
        job = entry.state.job
        allowed = _may_start(context, entry, now, starts[job.key], kinds)
        starts[job.key] += allowed
        kinds[kind_of(job, job.worker.requests)] += allowed
        return allowed

    tried: set[str] = set()

    def may_preempt(entry: QueuedChunk) -> bool:
        state = entry.state
        scope = scope_now(context.cluster, context.policy, state)
        if state.job.key in tried or scope is PreemptionScope.NONE:
            return False
        if scope is PreemptionScope.ONE and not state.job.is_gang:
            tried.add(state.job.key)
        return True

    return choose_for_node(node, context.policy, may_start, may_preempt)


def _chosen_as_it_stands(context: PlannerContext, node: NodeState, now: float) -> list[QueuedChunk]:
    """Return the chunks that should run on the node, without placing parameter servers for them."""
    return choose_for_node(node, context.policy, lambda entry: _may_start(context, entry, now, places_servers=False))


def _may_start(
    context: PlannerContext,
    entry: QueuedChunk,
    now: float,
    besides: int = 0,
    kinds: Mapping[Kind, int] = NO_PODS,
    *,
    places_servers: bool = True,
) -> bool:
    """Return whether a waiting chunk may open a window now; free resources of its node are not checked.

    A member of a gang may if the whole gang may; its own node is not enough to start it (`bound_gang.start`).

    Args:
        context: Context of the planner.
        entry: Entry of the chunk.
        now: Clock, in seconds.
        besides: Number of other windows of the job that are about to open.
        kinds: All windows that are about to open, as quotas count them.
        places_servers: Place missing parameter servers; otherwise only check whether there is room for them.
    """
    state = entry.state
    if state.job.is_gang:
        return bound_gang.may_start(context, state, now)
    return (
        state.active
        and entry.chunk not in state.chunk_runs
        and entry.is_ready(now)
        and state.held_until <= now
        and not state.excludes(entry.home.node, now)
        and len(state.runs) + besides < state.job.max_workers
        and context.cluster.quotas.shortage(state.job, 1, state.missing_shapes, besides=kinds) is None
        and (
            _place_servers(context, entry, now)
            if places_servers
            else room_for_servers(context.cluster, state, context.policy, now)
        )
    )


def _place_servers(context: PlannerContext, entry: QueuedChunk, now: float) -> bool:
    """Start the missing parameter servers of a chunk's job, so that its node can take its worker beside them."""
    cluster, state = context.cluster, entry.state
    node = cluster.nodes.get(entry.home.node or "")
    if node is None:
        return place_servers(context, state)

    def other_nodes() -> list[NodeState]:
        trial = PlacementTrial(cluster, state, now, iter(()))
        trial.place_workers([node])
        return trial.helper_nodes if trial.place_helpers(state.missing_servers) else []

    requests = state.job.worker.requests
    return place_servers(context, state, lambda: requests.fits(node.capacity - _fixed(node)), other_nodes)


def choose_for_node(
    node: NodeState,
    policy: Policy,
    may_start: Callable[[QueuedChunk], bool],
    may_preempt: Callable[[QueuedChunk], bool] = lambda entry: True,
) -> list[QueuedChunk]:
    """Return the chunks that should run on the node: in the policy's order, those whose slots and resources are free.

    Args:
        node: Node with its queues and windows.
        policy: Policy that decides on order and preemption.
        may_start: Returns whether a waiting chunk may open a window now.
        may_preempt: Returns whether a waiting chunk may take the place of a running one; called in the policy's order.
    """
    entries = node.entries()
    latest = {entry.key.job: entry.key.value for entry in entries if _is_open(entry)}  # the last one of each job
    entries.sort(key=lambda entry: _order(entry, latest))
    running = [e for e in entries if _is_open(e)]
    fixed = [e for e in running if not preemptible(e.state, policy)]
    taken = {slot for _, run in node.runs.values() if run.overdue for slot in run.home.slots}
    room = node.capacity - _fixed(node)
    chosen: list[QueuedChunk] = []
    seen: set[int] = set()
    last = [e for e in entries if not _is_open(e) and not may_preempt(e)] if running else []
    first = [e for e in entries if e not in last] if last else entries
    for entry in chain(fixed, first, last):
        if id(entry) in seen or len(taken) >= len(node.queues):
            continue
        seen.add(id(entry))
        requests = _requests(entry)
        if taken.intersection(entry.home.slots) or not requests.fits(room):
            continue
        if not _is_open(entry) and not may_start(entry):
            continue
        taken.update(entry.home.slots)
        room = room - requests
        chosen.append(entry)
    return chosen


def _order(entry: QueuedChunk, latest: Mapping[str, float]) -> tuple[float, float, str, bool, int]:
    """Return a key for the policy's order, in which a waiting chunk never displaces a running one of its own job.

    Args:
        entry: The chunk.
        latest: Largest value of the running chunks on the node, by job; those of waiting chunks may be newer and less.
    """
    value, arrival, job, chunk = entry.key
    waits = not _is_open(entry)
    return (max(value, latest.get(job, value)) if waits else value, arrival, job, waits, chunk)


def _is_open(entry: QueuedChunk) -> bool:
    run = entry.state.chunk_runs.get(entry.chunk)
    return run is not None and not run.closing


def _requests(entry: QueuedChunk) -> Resources:
    """Return what the window of the chunk reserves, or would reserve."""
    run = entry.state.chunk_runs.get(entry.chunk)
    return run.requests if run is not None and not run.closing else entry.state.job.worker.requests


def _fixed(node: NodeState) -> Resources:
    """Return the resources reserved for other than queued chunks: parameter servers, and windows without slots."""
    fixed = node.reserved
    for state, run in node.runs.values():
        if not run.closing and any(chunk in state.entries for chunk in run.window.chunks):
            fixed = fixed - run.requests
    return fixed


# ---- binding of chunks to slots


def bind_window(
    context: PlannerContext, policy: BindingPolicy, state: JobState, run: TrackedWindow, window: Window
) -> None:
    """Queue the chunks of a window that the policy did not place itself (restored, or bound to another node)."""
    node = context.cluster.nodes.get(window.node or "")
    slots = free_slots(node, state.job.gpus) if node is not None else ()
    unlimited = node is None and (window.node is None or context.cluster.is_unlimited(window.site))
    if not unlimited and len(slots) < state.job.gpus:
        return
    run.home = SlotBinding(window.site, window.node if node is not None else None, slots)
    for chunk in window.chunks:
        key = policy.queue_key(state, chunk, run.batch_seconds)
        context.cluster.bind(QueuedChunk(key, state, chunk, run.home, run.opened, run.batch_seconds))


def order_again(context: PlannerContext, policy: BindingPolicy, state: JobState) -> None:
    """Compute the keys of the job's running chunks again, since its specification has changed."""
    running = [state.entries[chunk] for chunk in state.chunk_runs if chunk in state.entries]
    context.cluster.unbind(running)
    for entry in running:
        entry.key = policy.queue_key(state, entry.chunk, entry.batch_seconds)
        context.cluster.bind(entry)


def free_slots(node: NodeState, width: int) -> tuple[int, ...]:
    """Return `width` slots of the node that no window holds, those with the fewest queued chunks; fewer if need be."""
    held = {slot for _, run in node.runs.values() if run.reserves for slot in run.home.slots}
    leaving = {slot for _, run in node.runs.values() for slot in run.home.slots}  # their pods may not stop in time
    free = [slot for slot in range(len(node.queues)) if slot not in held]
    return tuple(sorted(free, key=lambda slot: (slot in leaving, len(node.queues[slot])))[:width])


def _dispatch(context: PlannerContext, policy: BindingPolicy, state: JobState, now: float) -> None:
    """Bind the job's waiting chunks that are in no queue; chunks that an earlier planner placed stay at their site."""
    is_gang = state.job.is_gang
    unbound = (
        bound_gang.members_to_bind(context, state) if is_gang else [c for c in state.waiting if c not in state.entries]
    )
    context.work.unbound.discard(state.job.key)
    groups: dict[str | None, list[int]] = {}
    for chunk in unbound:
        groups.setdefault(None if is_gang else state.data_sites.get(chunk), []).append(chunk)
    for site, chunks in sorted(groups.items(), key=lambda item: item[0] or ""):
        known = site is not None and _site_serves(context, state, site)
        sites = (site,) if known and site is not None else _sites_without_refusals(context, state, now)
        placements, colocated = policy.dispatch(context.cluster, state, chunks, now, sites)
        state.colocated = state.colocated or colocated
        for placed in placements:
            began = state.job.submitted if known else now
            ready_at = context.cluster.begin_copies(state, placed.home.site, 1, began)[0]
            if not known:
                site_accounting.count_uploads(context.cluster, state, (placed.chunk,), placed.home.site)
                if context.settings.shared_uplinks and ready_at > now:
                    state.copy(placed.chunk, placed.home.site, ready_at, reported=True)
                    context.instruct(StageData(state.job.key, (placed.chunk,), placed.home.site, context.cause))
            entry = QueuedChunk(
                placed.key, state, placed.chunk, placed.home, ready_at, placed.batch_seconds, placed.cost
            )
            context.cluster.bind(entry)
            node = context.cluster.nodes.get(placed.home.node or "")
            entry.planned_start, entry.planned_end = planned_window(node, entry, now)
            context.cluster.dispatched += 1
            state.data_sites[placed.chunk] = placed.home.site
            if placed.home.node is not None:
                context.work.nodes.add(placed.home.node)
            if ready_at > now:
                context.wake(ready_at, state.job.key)
        if placements:
            bound_gang.align_plans(state)
            context.publish(state.job.key)
        if len(placements) < len(chunks):
            context.work.unbound.add(state.job.key)


def _sites_without_refusals(context: PlannerContext, state: JobState, now: float) -> tuple[str, ...] | None:
    """Return the sites with room where all recent pods of the job found a place; None: any site."""
    if not (state.placement.nodes or state.placement.refusals):
        return None
    cluster = context.cluster
    eligible, clouds = cluster.eligible(state.job.worker).at(""), usable_clouds(cluster, state, now)
    nodes = without_refusing_sites(cluster, state, eligible, now)
    if len(nodes) == len(eligible) and len(clouds) == len(cluster.clouds_for(state)):
        return None
    return (*sorted({node.node.site for node in nodes}), *clouds)


def _site_serves(context: PlannerContext, state: JobState, site: str) -> bool:
    """Return whether the site can still take workers of the job."""
    if context.cluster.is_unlimited(site):
        return True
    return any(node.node.site == site for node in context.cluster.eligible(state.job.worker))
