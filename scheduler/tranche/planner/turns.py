"""Going down the queue: whoever ranks first and finds room gets windows, from jobs behind it if the policy preempts."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from tranche.planner.queues import JobQueue, wants_windows
from tranche.planner.rooms import could_run, free_nodes, make_room
from tranche.policies import Home, JobState, NodeState, Rank

if TYPE_CHECKING:
    from tranche.planner.machines import Planner

RESTARTS_PER_WINDOW = 3
"""A silent pod is given chunks for about this many restart costs, so that starting pods stays cheap."""


def serve_queue(planner: Planner, queue: JobQueue, now: float) -> None:
    """Open and close windows until nobody who waits fits where it is entitled to."""
    for key, change in queue.refresh(now):
        planner.wake(max(now, change), key)
    heap = queue.candidates(now)
    passed_over: list[JobState] = []
    while heap:
        candidate = heappop(heap)
        rank, _, number, one = candidate
        today = queue.candidate(one, number, now)
        state = queue.head(one)
        if today is None or state is None:
            continue
        if today[:2] != candidate[:2]:
            heappush(heap, today)
            continue
        preempted = _serve(planner, queue, state, rank, now)
        waits = wants_windows(state, now)
        if waits and queue.policy.strict and could_run(planner.cluster, state):
            break
        exhausted = waits and not (queue.policy.strict or _has_own_obstacle(state))
        if not exhausted:
            queue.drop(state)
            passed_over += [state] if waits else []
        if preempted:
            heap = queue.others(one if exhausted else None, rank, state, now)
        elif not exhausted and (following := queue.candidate(one, number, now)) is not None:
            heappush(heap, following)
    for state in passed_over:
        queue.stale[state.job.key] = None
    queue.settle()


def _has_own_obstacle(state: JobState) -> bool:
    """Whether the job may be kept from running by what does not concern others of its class."""
    return bool(state.avoided) or len(state.servers) < state.job.servers


def _serve(planner: Planner, queue: JobQueue, state: JobState, rank: Rank, now: float) -> bool:
    """Give the job what it can get; returns whether anybody was preempted for it."""
    job, policy = state.job, queue.policy
    workers = job.chunks if job.rigid else 1
    wanted = workers if job.rigid else min(job.max_workers - len(state.runs), state.unassigned)
    free = sum([node.capacity.gpus - node.reserved.gpus for node in planner.cluster.hosts(state)])
    if free >= workers * job.gpus:
        _take_free(planner, state, wanted, now, first_fit=policy.first_fit)
        if not policy.preemptive or not wants_windows(state, now):
            return False
        free = sum([node.capacity.gpus - node.reserved.gpus for node in planner.cluster.hosts(state)])
    preempted = False
    while policy.preemptive and free + queue.running.gpus_behind(state, rank, now) >= workers * job.gpus:
        found = make_room(planner.cluster, state, queue.running.behind(state, rank, now), workers, now)
        if found is None or not planner.place_servers(state):
            break
        for victim in found[1]:
            for run in victim.runs:
                planner.close(victim.state, run)
            queue.note_running(victim.state, now)
        _open(planner, state, found[0], now)
        preempted = True
        if not wants_windows(state, now):
            break
    return preempted


def _take_free(planner: Planner, state: JobState, wanted: int, now: float, *, first_fit: bool) -> None:
    """Open windows in what is free: all of a gang or none, of a chunked job as many as fit."""
    nodes = free_nodes(planner.cluster, state, wanted, now, first_fit=first_fit)
    if nodes and len(state.servers) < state.job.servers:
        if not planner.place_servers(state):
            return
        nodes = free_nodes(planner.cluster, state, wanted, now, first_fit=first_fit)
    if nodes and not (state.job.rigid and len(nodes) < wanted):
        _open(planner, state, nodes, now)


def _open(planner: Planner, state: JobState, nodes: list[NodeState], now: float) -> None:
    """One window on each of the nodes, as long as there are chunks."""
    waiting = state.waiting
    for node in nodes:
        if not waiting:
            return
        site, name = node.node.site, node.node.name
        count = chunks_of_window(state, planner.cluster.batch_seconds(state, site, node=name))
        planner.open(state, Home(site, name), tuple(waiting[:count]), now)
        waiting = waiting[count:]


def chunks_of_window(state: JobState, seconds_per_batch: float) -> int:
    """How many chunks a window of a queue policy gets."""
    if state.job.rigid or not state.job.restart_seconds:
        return 1
    chunk_seconds = state.job.batches_per_chunk_total * seconds_per_batch
    return max(1, round(RESTARTS_PER_WINDOW * state.job.restart_seconds / chunk_seconds))
