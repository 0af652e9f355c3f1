"""Which chunks should run now: on one node for policies that bind, from one queue for those that do not."""

from collections.abc import Callable, Iterator
from itertools import chain

from tranche.model import Preemption, Resources
from tranche.policies import ClusterState, Entry, JobState, NodeState, Policy

RESTARTS_PER_WINDOW = 3
"""A silent pod is given chunks for about this many restart costs, so that starting pods stays cheap."""


def preemptible(state: JobState, policy: Policy) -> bool:
    """Whether a running worker of the job may be stopped for another job."""
    return policy.preemptive and state.job.preemption is Preemption.IMMEDIATE


def choose_for_node(node: NodeState, policy: Policy, may_start: Callable[[Entry], bool]) -> list[Entry]:
    """The chunks that should run on the node: in the policy's order, whoever finds its slots and room still free.

    Args:
        node: Its queues and windows.
        policy: Gives order and preemption.
        may_start: Whether a waiting chunk may open a window now.
    """
    entries = sorted(node.entries(), key=_order)
    running = [e for e in entries if _is_open(e)]
    fixed = [e for e in running if not preemptible(e.state, policy)]
    taken: set[int] = set()
    room = node.capacity - _fixed(node)
    chosen: list[Entry] = []
    seen: set[int] = set()
    for entry in chain(fixed, entries):
        if id(entry) in seen or len(taken) >= len(node.queues):
            continue
        seen.add(id(entry))
        if taken.intersection(entry.home.slots) or not entry.state.job.worker.requests.fits(room):
            continue
        if not _is_open(entry) and not may_start(entry):
            continue
        taken.update(entry.home.slots)
        room = room - entry.state.job.worker.requests
        chosen.append(entry)
    return chosen


def _order(entry: Entry) -> tuple[float, float, str, bool, int]:
    """The policy's order, but a running chunk is never displaced by a waiting one of its own job."""
    value, arrival, job, chunk = entry.key
    return (value, arrival, job, not _is_open(entry), chunk)


def _is_open(entry: Entry) -> bool:
    run = entry.state.chunk_runs.get(entry.chunk)
    return run is not None and not run.closing


def _fixed(node: NodeState) -> Resources:
    """What is reserved besides queued chunks: parameter servers, and windows that lost their slots."""
    fixed = node.reserved
    for state, run in node.runs.values():
        if not run.closing and any(chunk in state.entries for chunk in run.window.chunks):
            fixed = fixed - state.job.worker.requests
    return fixed


def chunks_of_window(state: JobState, seconds_per_batch: float) -> int:
    """How many chunks a window of a queue policy gets."""
    if state.job.rigid or not state.job.restart_seconds:
        return 1
    chunk_seconds = state.job.batches_per_chunk_total * seconds_per_batch
    return max(1, round(RESTARTS_PER_WINDOW * state.job.restart_seconds / chunk_seconds))


def choose_from_queue(
    cluster: ClusterState, queue: list[JobState], policy: Policy, now: float
) -> Iterator[tuple[JobState, list[tuple[NodeState, tuple[int, ...]]]]]:
    """For each job of the queue the windows to open now, as (node, chunks); all of a gang or none.

    The caller opens what it is given before it asks for the next job; a strict policy ends at the first job that keeps
    waiting for room.
    """
    for state in queue:
        waiting = state.waiting
        windows: list[tuple[NodeState, tuple[int, ...]]] = []
        used: dict[str, Resources] = {}
        free = state.job.max_workers - len(state.runs)
        while waiting and free > 0 and (node := _best_fit(cluster, state, used, now)) is not None:
            count = chunks_of_window(state, cluster.batch_seconds(state, node.node.site))
            windows.append((node, tuple(waiting[:count])))
            waiting = waiting[count:]
            used[node.node.name] = used.get(node.node.name, Resources()) + state.job.worker.requests
            free -= 1
        if state.job.rigid and (waiting or state.runs):
            windows = []
        if windows:
            yield state, windows
        if policy.strict and state.waiting and len(state.runs) < state.job.max_workers and could_run(cluster, state):
            return


def could_run(cluster: ClusterState, state: JobState) -> bool:
    """Whether an otherwise empty cluster could run the job: one that never fits must not block a queue."""
    needed = state.job.chunks if state.job.rigid else 1
    for node in cluster.eligible(state.job.worker):
        room = node.capacity
        while needed and state.job.worker.requests.fits(room):
            room, needed = room - state.job.worker.requests, needed - 1
    return not needed


def _best_fit(cluster: ClusterState, state: JobState, used: dict[str, Resources], now: float) -> NodeState | None:
    """The node with the fewest GPUs left over that has room for one more worker."""
    request = state.job.worker.requests
    best: tuple[int, str] | None = None
    for node in cluster.eligible(state.job.worker):
        name = node.node.name
        room = node.capacity - node.reserved - used.get(name, Resources())
        if request.fits(room) and state.avoided.get(name, 0.0) <= now:
            best = min(best or (room.gpus, name), (room.gpus, name))
    return cluster.nodes[best[1]] if best else None
