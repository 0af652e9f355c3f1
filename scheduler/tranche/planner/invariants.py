"""What must hold after every event; checked when the planner runs with ``validate=True`` (always in tests)."""

from collections.abc import Iterable

from tranche.model import Resources
from tranche.planner.queues import JobQueue, preemptible, wants_windows
from tranche.policies import ClusterState, JobState


class InvariantError(AssertionError):
    """The planner's state contradicts itself: a defect of tranche, never of its input."""


def check(cluster: ClusterState) -> None:
    """Check all invariants of architecture.md, section 4.

    Raises:
        InvariantError: naming the job or node.
    """
    for state in cluster.jobs.values():
        _check_job(cluster, state)
    for name, node in cluster.nodes.items():
        reserved = Resources()
        for state, run in node.runs.values():
            if not run.closing:
                reserved = reserved + state.job.worker.requests
        for state in cluster.jobs.values():
            for server in state.servers:
                if server.planned.node == name:
                    reserved = reserved + server.requests
        _expect(reserved == node.reserved, f"node {name}: reserved {node.reserved}, windows and servers ask {reserved}")
        for queue in node.queues:
            _expect([e.key for e in queue] == sorted(e.key for e in queue), f"node {name}: a queue is out of order")


def check_room(cluster: ClusterState, opened: Iterable[str]) -> None:
    """What was just planned fits: Σ requests ≤ allocatable on nodes that got a window (foreign pods may come later).

    Raises:
        InvariantError: naming the node.
    """
    for name in opened:
        node = cluster.nodes[name]
        _expect(node.reserved.fits(node.capacity), f"node {name}: {node.reserved} reserved of {node.capacity}")


def check_queue(queue: JobQueue, now: float) -> None:
    """The queue knows everybody who waits and everybody who may be preempted, and nobody else.

    Raises:
        InvariantError: naming the job.
    """
    waiting, running = set(queue.waiting()), set(queue.running.keys())
    for key, state in queue.cluster.jobs.items():
        if key in queue.stale:
            continue  # looked at in the next decision
        _expect((state in waiting) == wants_windows(state, now), f"{key}: who waits is not in the queue")
        held = queue.policy.preemptive and any(not run.closing for run in state.runs.values())
        _expect((key in running) == (held and preemptible(state, queue.policy)), f"{key}: who runs is not ranked")


def _check_job(cluster: ClusterState, state: JobState) -> None:
    job = state.job
    seen: set[int] = set()
    for attempt, run in state.runs.items():
        _expect(run.window.attempt == attempt <= state.attempts, f"{job.key}: attempt {attempt} was never given out")
        for chunk in run.window.chunks:
            _expect(chunk not in seen, f"{job.key}: chunk {chunk} is in two windows")
            _expect(state.chunk_runs.get(chunk) is run, f"{job.key}: chunk {chunk} is in a window it does not know")
            seen.add(chunk)
    _expect(seen == set(state.chunk_runs), f"{job.key}: chunks {set(state.chunk_runs) - seen} are in lost windows")
    indexes = [run.window.index for run in state.runs.values()]
    _expect(len(set(indexes)) == len(indexes), f"{job.key}: two windows have one worker index")
    _expect(not state.done & set(state.partial), f"{job.key}: a chunk is done and partial")
    _expect(not state.done & set(state.entries), f"{job.key}: a finished chunk is queued")
    for chunk, batches in state.partial.items():
        _expect(0 <= batches <= job.batches_per_chunk_total, f"{job.key}: chunk {chunk} has {batches} batches")
    if job.rigid:
        running = [run for run in state.runs.values() if not run.closing]
        covered = {chunk for run in running for chunk in run.window.chunks} | state.done
        _expect(not running or len(covered) == job.chunks, f"{job.key}: a gang runs in part")
    for entry in state.entries.values():
        node = cluster.nodes.get(entry.home.node or "")
        for slot in entry.home.slots if node else ():
            _expect(node is not None and entry in node.queues[slot], f"{job.key}: chunk {entry.chunk} left its queue")


def _expect(condition: bool, text: str) -> None:
    if not condition:
        raise InvariantError(text)
