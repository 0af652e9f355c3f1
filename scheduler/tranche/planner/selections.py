"""Which chunks should run now: on one node, for policies that bind chunks to slots."""

from collections.abc import Callable
from itertools import chain

from tranche.model import Resources
from tranche.planner.queues import preemptible
from tranche.policies import Entry, NodeState, Policy


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
