"""Going through the nodes, for policies that bind chunks to slots: which chunks of its queues should run on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from tranche.model import Resources
from tranche.planner import arrivals
from tranche.planner.queues import preemptible
from tranche.planner.servers import missing_requests
from tranche.policies import NOBODY, BindingPolicy, Entry, JobState, Kind, NodeState, Policy, Run, kind_of

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def serve_nodes(planner: Planner, binding: BindingPolicy, now: float) -> None:
    """Dispatch chunks, and open and close windows, until every job and node with news was looked at."""
    while planner.dirty_jobs or planner.dirty_nodes:
        for state in _in_order(planner):
            _serve_job(planner, binding, state, now)
        nodes, planner.dirty_nodes = sorted(planner.dirty_nodes & planner.cluster.nodes.keys()), set()
        for name in nodes:
            _serve_node(planner, planner.cluster.nodes[name], now)


def _in_order(planner: Planner) -> list[JobState]:
    """The jobs to look at, in the order of their arrival."""
    keys, planner.dirty_jobs = planner.dirty_jobs, set()
    states = [planner.cluster.jobs[key] for key in keys if key in planner.cluster.jobs]
    return sorted(states, key=lambda state: (state.job.submitted, state.job.key))


def _serve_job(planner: Planner, binding: BindingPolicy, state: JobState, now: float) -> None:
    if not state.active:
        return
    arrivals.dispatch(planner, binding, state, now)
    for entry in sorted(state.entries.values(), key=lambda e: e.key):
        if entry.home.node is None and entry.chunk not in state.chunk_runs and _may_start(planner, entry, now):
            planner.open(state, entry.home, (entry.chunk,), now)


def _serve_node(planner: Planner, node: NodeState, now: float) -> None:
    chosen: list[Entry] = []
    reserved = None
    while reserved != (reserved := node.reserved):
        chosen = _choose(planner, node, now)  # again if parameter servers took room meanwhile
    wanted = {id(entry) for entry in chosen}
    waiting = [entry for entry in chosen if not _is_open(entry)]
    for state, run in list(node.runs.values()):
        entries = [state.entries[c] for c in run.window.chunks if c in state.entries]
        if entries and not run.closing and not any(id(entry) in wanted for entry in entries):
            planner.close(state, run, preempted_by=_preemptor(state, run, waiting))
    for entry in chosen:
        if entry.chunk not in entry.state.chunk_runs:
            planner.open(entry.state, entry.home, (entry.chunk,), now)


def _preemptor(state: JobState, run: Run, waiting: Sequence[Entry]) -> str:
    """Return the job whose waiting chunk takes a slot of the window, else its room; empty if none does."""
    others = [entry for entry in waiting if entry.state is not state]
    on_slots = [entry for entry in others if set(entry.home.slots) & set(run.home.slots)]
    return next((entry.state.job.key for entry in (*on_slots, *others)), "")


def _choose(planner: Planner, node: NodeState, now: float) -> list[Entry]:
    starts: Counter[str] = Counter()
    kinds: Counter[Kind] = Counter()

    def may_start(entry: Entry) -> bool:
        job = entry.state.job
        allowed = _may_start(planner, entry, now, starts[job.key], kinds)
        starts[job.key] += allowed
        kinds[kind_of(job, job.worker.requests)] += allowed
        return allowed

    return choose_for_node(node, planner.policy, may_start)


def _may_start(
    planner: Planner, entry: Entry, now: float, besides: int = 0, kinds: Mapping[Kind, int] = NOBODY
) -> bool:
    """Whether a waiting chunk may open a window now, `besides` so many others of its job, its node's room aside.

    Args:
        planner: Finds places for parameter servers.
        entry: The chunk.
        now: Clock, in seconds.
        besides: Other windows of the job that are about to open.
        kinds: All windows that are about to open, as quotas count them.
    """
    state = entry.state
    return (
        state.active
        and entry.chunk not in state.chunk_runs
        and entry.ready_at <= now
        and state.held_until <= now
        and not state.avoids(entry.home.node, now)
        and len(state.runs) + besides < state.job.max_workers
        and planner.cluster.quotas.shortage(state.job, 1, missing_requests(state), besides=kinds) is None
        and planner.place_servers(state)
    )


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
