"""Moves of running gangs to narrower topology levels, and preemption that weighs what levels gain and lose.

Source: design ours [I] after the abstract of Dally, arXiv 2401.16492 (network-sensitive preemption; formulas in
`tranche.policies.locality.network_gain`). Only gangs and jobs of one chunk take part, and only those without helpers.
[I] Victims that have priority over the waiting job, or were preempted within the quantum, are left out from the start.
The level that a victim gets next is the narrowest one for which there is room beside the waiting job, for each victim
as if it were the only one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from tranche.model import JobPlan, PodShape, WindowState
from tranche.model.attempt_record import unpack
from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window, preempt_window
from tranche.planner.job_queue import JobQueue, can_use_window
from tranche.planner.scheduling.level_placement import LevelRooms, requests_by_node, seconds_to_accept
from tranche.planner.scheduling.windows import open_windows
from tranche.policies.locality.most_delayed import batches_left, level_seconds, progress_of
from tranche.policies.locality.network_gain import (
    MIN_QUANTUM_SECONDS,
    move_gain,
    preemption_gain,
    preemption_loss,
    preemption_quantum,
    sensitivity,
)
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.placement_record import PreemptionScope
from tranche.state.topology_fit import Fit

MOVE_REASON = "moves to a narrower topology level"
"""Why the windows of a moving gang close."""
MOVE_PAUSE_RESTARTS = 2.0
"""Least time between two moves of one gang, in restart costs."""
REVIEW_SECONDS = MIN_QUANTUM_SECONDS
"""[I] Time after which preemption for a waiting job is considered again without an event, in seconds: meanwhile,
running jobs progress beyond it, and quanta end."""


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A running job that may be stopped."""

    state: JobState
    level: int
    progress: float
    """S of the job."""


def relocate(context: PlannerContext, queue: JobQueue, now: float, *, capacity_freed: bool) -> None:
    """Preempt for the job that waits first, and move a running gang if capacity was freed before this decision."""
    preempt_for_first(context, queue, now)
    if capacity_freed:
        move_one(context, now)


def restore(context: PlannerContext, state: JobState, plan: JobPlan) -> None:
    """Restore when a job that an earlier planner has planned was last preempted, and last moved.

    [I] Both count from the ends of its workers, or from now while these are stopped. The decisions were earlier by the
    time that the workers take to save.
    """
    if not _takes_part(state):
        return
    known = context.cluster.locality.of(state.job.key)
    known.waits = not plan.windows
    stopped = [(one.preempted_by, one.why, context.now) for one in plan.windows if one.state is WindowState.CLOSING]
    records = (unpack(one) if isinstance(one, str) else one for one in state.history)
    ended = [(one.preempted_by, one.why, one.ended) for one in records if one is not None and one.ended is not None]
    for preemptor, why, at in (*ended, *stopped):
        if preemptor and not preemptor.startswith("pod/"):
            known.preempted_at = max(known.preempted_at, at)
        elif why == MOVE_REASON:
            known.moved_at = max(known.moved_at, at)


def move_one(context: PlannerContext, now: float) -> None:
    """Stop the gang that gains most by a move to a narrower level, if any gains; it starts again at once."""
    cluster, records = context.cluster, context.cluster.locality
    best: tuple[float, JobState, list[NodeState]] | None = None
    for state in cluster.jobs.values():
        if not state.job.is_gang or not _may_stop(state) or state.topology_level == cluster.narrowest_level(state):
            continue
        pause = MOVE_PAUSE_RESTARTS * state.restart_seconds
        if state.topology_level is None or now < records.of(state.job.key).moved_at + pause:
            continue
        if not _may_stop_workers(cluster, state):
            continue
        rooms = _rooms(cluster, state, now)
        rooms.release(requests_by_node(state.runs))
        fit = rooms.fit(state.topology_level - 1)
        if fit is None:
            continue
        here, there = (level_seconds(state, cluster, level) for level in (state.topology_level, fit.level))
        gain = move_gain(batches_left(state, now), here, there, state.restart_seconds)
        if gain > 0 and (best is None or gain > best[0]):
            best = (gain, state, rooms.nodes(fit))
    if best is not None:
        _, state, nodes = best
        records.of(state.job.key).moved_at = now
        records.moving[state.job.key] = tuple(node.node.name for node in nodes)
        state.placement.preempted_at = now
        close_window(context, state, next(iter(state.runs.values())), MOVE_REASON)


def preempt_for_first(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Stop running jobs for the first waiting job that could start so, if that pays; else try again later."""
    cluster = context.cluster
    state = _first_waiting(cluster, queue, now)
    if state is None or _preempt(context, state, now):
        return
    if any(_may_be_victim(one, state) for one in cluster.jobs.values()):
        context.timers.change(now + REVIEW_SECONDS, "")


def _preempt(context: PlannerContext, state: JobState, now: float) -> bool:
    """Stop running jobs for a waiting one if it gains more than they lose; returns whether it does."""
    cluster = context.cluster
    candidates = _candidates(context, state, now)
    found = _victims(context, state, candidates, now) if candidates else None
    if found is None:
        return False
    victims, fit, rooms = found
    nodes, left = rooms.nodes(fit), batches_left(state, now)
    seconds = level_seconds(state, cluster, fit.level)
    wait, later = _without_preemption(context, state, now)
    gain = preemption_gain(wait, left, level_seconds(state, cluster, later), seconds) if wait < inf else inf
    taken = [(node.node.name, state.job.worker.requests) for node in nodes]
    loss = 0.0
    for one in victims:
        other = _rooms(cluster, one.state, now)
        for victim in victims:
            other.release(requests_by_node(victim.state.runs))
        other.take(taken)
        there = other.fit()
        loss += preemption_loss(
            one.state.restart_seconds,
            batches_left(one.state, now),
            level_seconds(one.state, cluster, one.level),
            None if there is None else level_seconds(one.state, cluster, there.level),
            left * seconds,
        )
    if loss >= gain:
        return False
    for one in victims:
        cluster.locality.of(one.state.job.key).preempted_at = now
        preempt_window(context, one.state, next(iter(one.state.runs.values())), state, _why(context, state, one))
    open_windows(context, state, "", nodes, now)
    state.awaits_faster = False
    return True


def _why(context: PlannerContext, state: JobState, victim: Running) -> str:
    queue = context.queue
    assert queue is not None
    return queue.policy.precedence_reason(state, victim.state, context.cluster, context.now)


def _first_waiting(cluster: ClusterState, queue: JobQueue, now: float) -> JobState | None:
    """Return the first of the waiting jobs that could start now if others stopped; None if there is none.

    Jobs that could not start so use free capacity only. They keep no job behind them from preemption.
    """
    tiered_rank = queue.policy.tiered_rank
    waiting = [state for state in cluster.jobs.values() if _may_start(cluster, state, now)]
    waiting.sort(key=lambda one: (tiered_rank(one, cluster, now), one.arrival))
    too_large: set[tuple[PodShape, int, str]] = set()
    for state in waiting:
        demand = (state.job.worker, state.job.min_available, state.job.required_level)
        if demand in too_large or cluster.shortage(state) is not None:
            continue
        rooms = _rooms(cluster, state, now)
        rooms.empty()
        if rooms.fit() is not None:
            return state
        if not (state.excluded_nodes or state.placement.refusals):
            too_large.add(demand)
    return None


def _may_start(cluster: ClusterState, state: JobState, now: float) -> bool:
    """Return whether the job waits for its first worker, has its data, and others may be stopped for it."""
    if not can_use_window(state, now) or not _takes_part(state) or state.cloud or state.runs:
        return False
    return (state.uploaded_at is None or now >= state.uploaded_at) and _may_stop_workers(cluster, state)


def _may_stop_workers(cluster: ClusterState, state: JobState) -> bool:
    """Return whether workers may be stopped for the job now (`tranche.state.placement_record`)."""
    return not cluster.scheduler_silent and cluster.preemption_scope(state) is not PreemptionScope.NONE


def _rooms(cluster: ClusterState, state: JobState, now: float) -> LevelRooms:
    """Return the rooms of the nodes that the job may use now, without the sites where its pods found no place."""
    refusing = state.placement.refusing_sites(now)
    nodes = [
        node
        for node in cluster.hosts(state)
        if node.node.site not in refusing and not state.excludes(node.node.name, now)
    ]
    return LevelRooms(cluster, state, nodes)


def _takes_part(state: JobState) -> bool:
    return state.job.is_indivisible and not state.job.helper_count


def _may_stop(state: JobState) -> bool:
    """Return whether all windows of the job run on nodes, and it may be stopped."""
    runs = state.runs.values()
    open_on_nodes = bool(runs) and all(not run.closing and run.home.node is not None for run in runs)
    return open_on_nodes and state.active and _takes_part(state) and state.stoppable


def _may_be_victim(other: JobState, state: JobState) -> bool:
    """Return whether a job may be stopped for another one as soon as their progress and its quantum allow it."""
    return _may_stop(other) and other.job.priority <= state.job.priority


def _candidates(context: PlannerContext, state: JobState, now: float) -> list[Running]:
    """Return the jobs that may be stopped for the waiting one, those to stop first at the beginning."""
    cluster = context.cluster
    progress = progress_of(state, cluster, now)
    found = []
    for other in cluster.jobs.values():
        if not _may_be_victim(other, state):
            continue
        known = cluster.locality.jobs.get(other.job.key)
        if known is not None and now < known.preempted_at + preemption_quantum(other.restart_seconds):
            continue
        own = progress_of(other, cluster, now)
        if own > progress:
            found.append(Running(other, other.topology_level or 0, own))

    def key(one: Running) -> tuple[float, float, float, str]:
        widest = level_seconds(one.state, cluster, cluster.places.topology.widest)
        narrowest = level_seconds(one.state, cluster, cluster.narrowest_level(one.state))
        opened = max(run.opened for run in one.state.runs.values())
        return (
            sensitivity(narrowest, widest),
            -one.state.attained_gpu_seconds(now),
            -opened,
            one.state.job.key,
        )

    return sorted(found, key=key)


def _victims(
    context: PlannerContext, state: JobState, candidates: list[Running], now: float
) -> tuple[list[Running], Fit, LevelRooms] | None:
    """Return the shortest prefix of the candidates that lets the job start, without superfluous ones; None if none."""
    cluster = context.cluster

    def accepted(rooms: LevelRooms) -> Fit | None:
        fit = rooms.fit()
        takes = fit is not None and seconds_to_accept(cluster, context.policy, state, fit.level, now) <= 0
        return fit if takes else None

    def without(chosen: list[Running]) -> LevelRooms:
        rooms = _rooms(cluster, state, now)
        for one in chosen:
            rooms.release(requests_by_node(one.state.runs))
        return rooms

    rooms, count = without([]), 0
    while accepted(rooms) is None:
        if count == len(candidates):
            return None
        rooms.release(requests_by_node(candidates[count].state.runs))
        count += 1
    chosen = candidates[:count]
    for one in list(chosen):
        rest = [other for other in chosen if other is not one]
        if accepted(without(rest)) is not None:
            chosen = rest
    rooms = without(chosen)
    fit = accepted(rooms)
    return (chosen, fit, rooms) if chosen and fit is not None else None


def _without_preemption(context: PlannerContext, state: JobState, now: float) -> tuple[float, int]:
    """Return A, the estimated time until the job could start without preemption, and the level that it would get."""
    cluster = context.cluster
    rooms = _rooms(cluster, state, now)
    fit = rooms.fit()
    if fit is not None:
        return 0.0, fit.level
    running = [other for other in cluster.jobs.values() if other.runs]
    end: Callable[[JobState], tuple[float, str]] = lambda other: (other.window_ends[1], other.job.key)  # noqa: E731
    for other in sorted(running, key=end):
        rooms.release(requests_by_node(other.runs))
        fit = rooms.fit()
        if fit is not None:
            return max(0.0, other.window_ends[1] - now), fit.level
    return inf, cluster.places.topology.widest
