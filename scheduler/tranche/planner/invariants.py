"""Invariants that hold after every event; checked when the planner runs with ``validate=True`` (always in tests)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from tranche.model import Resources, Window, WindowState
from tranche.planner.context import PlannerContext
from tranche.planner.instructions import ExtendWindow, Instruction, OpenWindow, PlaceParameterServer
from tranche.planner.job_queue import JobQueue, can_use_window, preemptible, start_sites
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.phases import JOB_TRANSITIONS, JobPhase, WindowPhase
from tranche.state.window import TrackedWindow


class InvariantError(AssertionError):
    """The planner's state contradicts itself: a defect of tranche, never of its input."""


def check_decision(context: PlannerContext, instructions: Sequence[Instruction], now: float) -> None:
    """Check all invariants after a decision.

    Raises:
        InvariantError: naming the job or node.
    """
    check(context.cluster)
    check_phases(context.cluster.jobs, context.phases, now)
    opened = [instruction for instruction in instructions if isinstance(instruction, OpenWindow | ExtendWindow)]
    check_servers(context.cluster, {one.job for one in instructions if isinstance(one, PlaceParameterServer)})
    if context.queue is not None:
        check_queue(context.queue, now)
        check_data(context.queue, [(one.job, one.window) for one in opened], now)
    check_quotas(context.cluster, {one.job for one in opened})
    check_gpu_resources(context.cluster, (one for one in opened if isinstance(one, OpenWindow)))
    check_room(context.cluster, [(one.job, one.window) for one in opened])


def check(cluster: ClusterState) -> None:
    """Check the invariants of jobs, nodes and slots (docs/explanation/architecture.md, "The planner").

    Raises:
        InvariantError: naming the job or node.
    """
    for state in cluster.jobs.values():
        _check_job(cluster, state)
    planned = {(key, attempt) for key, state in cluster.jobs.items() for attempt in state.runs}
    planned |= {(key, s.planned.attempt) for key, state in cluster.jobs.items() for s in state.servers}
    _expect(cluster.quotas.holders() == planned, "quota usage does not match the windows and servers")
    for name, node in cluster.nodes.items():
        reserved = Resources()
        for _, run in node.runs.values():
            if run.reserves:
                reserved = reserved + run.requests
        for state in cluster.jobs.values():
            for server in state.servers:
                if server.planned.node == name:
                    reserved = reserved + server.requests
        # Without windows and servers, the sum has no GPU resource.
        same = reserved == replace(node.reserved, gpu_resource=reserved.gpu_resource)
        _expect(same, f"node {name}: reserved {node.reserved}, windows and servers request {reserved}")
        for queue in node.queues:
            _expect([e.key for e in queue] == sorted(e.key for e in queue), f"node {name}: a queue is out of order")


def check_phases(jobs: Mapping[str, JobState], before: dict[str, JobPhase], now: float) -> None:
    """Check that the state of each job agrees with its phase, and that the transition since the last decision is legal.

    Args:
        jobs: All jobs, by key.
        before: Phases after the last decision by job, without jobs that were removed; updated in place.
        now: Clock, in seconds.

    Raises:
        InvariantError: naming the job.
    """
    for key, state in jobs.items():
        phase = state.phase(now)
        known = before.get(key, phase)
        allowed = phase is known or phase in JOB_TRANSITIONS[known]
        _expect(allowed, f"{key}: goes from {known.value} to {phase.value}")
        before[key] = phase
        if phase in (JobPhase.FINISHED, JobPhase.FAILED):
            _expect(not state.servers, f"{key}: is {phase.value} and has servers")
        if not state.active:
            _expect(all(run.closing for run in state.runs.values()), f"{key}: is {phase.value} and has open windows")
            stops = state.job.is_gang or not state.runs
            _expect(
                not stops or all(one.closing for one in state.servers), f"{key}: is {phase.value}, servers are open"
            )


def _check_window(key: str, run: TrackedWindow) -> None:
    """Check that the fields of a window agree with its phase."""
    phase, window = run.phase, f"{key}: window {run.window.attempt}"
    _expect(phase is not WindowPhase.ENDED, f"{window} has ended and is not removed")
    _expect(
        run.closing == (run.window.state is WindowState.CLOSING), f"{window} is {phase.value} and published otherwise"
    )
    _expect(run.closed is None or run.closing, f"{window} is {phase.value} and was closed")
    _expect(run.closing or not run.overdue, f"{window} is {phase.value} and overdue")
    if phase in (WindowPhase.PENDING, WindowPhase.BOUND):
        _expect(run.started is None, f"{window} is {phase.value} and has started")
    if phase is WindowPhase.TRAINING:
        _expect(run.started is not None and run.since is not None, f"{window} trains and has not started")


def check_room(cluster: ClusterState, opened: Iterable[tuple[str, Window]]) -> None:
    """Check that new windows fit: Σ requests ≤ allocatable on their nodes (foreign pods may be added later).

    Raises:
        InvariantError: naming the node.
    """
    for key, window in opened:
        node = cluster.nodes.get(window.node or "")
        _, run = node.runs.get((key, window.attempt), (None, None)) if node is not None else (None, None)
        if node is not None and run is not None:
            kept = node.keeps(run.requests)
            _expect(kept, f"node {node.node.name}: {node.reserved} reserved of {node.capacity}")


def check_servers(cluster: ClusterState, placed: Iterable[str]) -> None:
    """Check that parameter servers start only for jobs with windows: idle ones would stop, and start again.

    Args:
        cluster: State of the cluster.
        placed: Keys of the jobs whose servers were started in this decision.

    Raises:
        InvariantError: naming the job.
    """
    for key in placed:
        _expect(key not in cluster.jobs or bool(cluster.jobs[key].runs), f"{key}: servers started without a window")


def check_gpu_resources(cluster: ClusterState, opened: Iterable[OpenWindow]) -> None:
    """Check that new windows are on nodes with GPUs of the resource that their job requests.

    Raises:
        InvariantError: naming the job and the node.
    """
    for one in opened:
        node, state = cluster.nodes.get(one.window.node or ""), cluster.jobs.get(one.job)
        if node is not None and state is not None:
            wanted, offered = state.job.gpu_resource, node.capacity.gpu_resource
            _expect(wanted == offered, f"{one.job}: requests {wanted}, and {node.node.name} offers {offered}")


def check_quotas(cluster: ClusterState, opened: Iterable[str]) -> None:
    """Check that jobs with a new window are within their quotas (foreign pods may use more of these later).

    Raises:
        InvariantError: naming the job.
    """
    for key in opened:
        if key in cluster.jobs:
            short = cluster.quotas.exceeded(cluster.jobs[key].job)
            _expect(short is None, f"{key}: planned beyond its quota: {short}")


def check_queue(queue: JobQueue, now: float) -> None:
    """Check that the queue has exactly the waiting jobs, and the running jobs that may be preempted.

    Raises:
        InvariantError: naming the job.
    """
    waiting, running = set(queue.waiting()), set(queue.running.keys())
    for key, state in queue.cluster.jobs.items():
        if key in queue.stale:
            continue  # looked at in the next decision
        wants = can_use_window(state, now) and bool(start_sites(state, now, sited=queue.policy.traits.needs_local_data))
        _expect((state in waiting) == wants, f"{key}: a waiting job is not in the queue")
        on_nodes = (run for run in state.runs.values() if not queue.cluster.is_unlimited(run.home.site))
        held = queue.policy.traits.preemptive and any(not run.closing for run in on_nodes)
        _expect((key in running) == (held and preemptible(state, queue.policy)), f"{key}: a running job is not ranked")


def check_data(queue: JobQueue, opened: Iterable[tuple[str, Window]], now: float) -> None:
    """Check that windows open only where the data of their chunks are, under policies that need local data.

    Raises:
        InvariantError: naming the job.
    """
    for key, window in opened if queue.policy.traits.needs_local_data else ():
        state = queue.cluster.jobs[key]
        if state.moves_data and window.site != state.job.data_site:
            copies = state.copies.get(window.site, {})
            there = all(copies.get(chunk, inf) <= now for chunk in window.chunks)
            _expect(there, f"{key}: a window at {window.site} opens before its data are there")


def _check_stagings(state: JobState) -> None:
    """Check that awaited data are being staged, by at most one pod per job and site with an attempt of its own."""
    key, named = state.job.key, set[tuple[str, int]]()
    for site, staging in state.stagings.items():
        named |= {(site, chunk) for chunk in (*staging.chunks, *staging.wanted)}
        _expect(bool(staging.attempt) == bool(staging.chunks), f"{key}: a staging pod for {site} has no chunks")
        _expect(
            not staging.given_up or not staging.chunks + staging.wanted, f"{key}: {site} is given up and has chunks"
        )
    attempts = [staging.attempt for staging in state.stagings.values() if staging.attempt]
    given = all(attempt <= state.attempts and attempt not in state.runs for attempt in attempts)
    _expect(
        given and len(set(attempts)) == len(attempts), f"{key}: other pods have the attempts {attempts} of stagings"
    )
    _expect(state.active or not attempts, f"{key}: is not active and has staging pods")
    coming = {(site, chunk) for site, copies in state.copies.items() for chunk, at in copies.items() if at == inf}
    _expect(coming == set(state.coming), f"{key}: copies that are not complete have no expected time")
    if state.job.staged:
        _expect({c for c in coming if c[1] not in state.done} <= named, f"{key}: no staging copies {coming - named}")


def _check_job(cluster: ClusterState, state: JobState) -> None:
    job = state.job
    _check_stagings(state)
    seen: set[int] = set()
    for attempt, run in state.runs.items():
        _check_window(job.key, run)
        _expect(run.window.attempt == attempt <= state.attempts, f"{job.key}: attempt {attempt} was never assigned")
        for chunk in run.window.chunks:
            _expect(chunk not in seen, f"{job.key}: chunk {chunk} is in two windows")
            _expect(state.chunk_runs.get(chunk) is run, f"{job.key}: chunk {chunk} is not recorded in its window")
            seen.add(chunk)
        left = state.batches_left(run.window.chunks)
        _expect(run.left in (None, left), f"{job.key}: {run.left} batches are left in a window, not {left}")
    _expect(seen == set(state.chunk_runs), f"{job.key}: chunks {set(state.chunk_runs) - seen} are in lost windows")
    indexes = [run.window.index for run in state.runs.values()]
    _expect(len(set(indexes)) == len(indexes), f"{job.key}: two windows have one worker index")
    _expect(not state.done & set(state.partial), f"{job.key}: a chunk is done and partial")
    _expect(not state.done & set(state.entries), f"{job.key}: a finished chunk is queued")
    for chunk, batches in state.partial.items():
        _expect(0 <= batches <= job.batches_per_chunk_total, f"{job.key}: chunk {chunk} has {batches} batches")
    if job.is_gang:
        running = [run for run in state.runs.values() if not run.closing]
        covered = {chunk for run in running for chunk in run.window.chunks} | state.done
        _expect(not running or len(covered) == job.chunks, f"{job.key}: only some members of a gang run")
        beside = [server for server in state.servers if not server.closing]
        _expect(not beside or len(covered) == job.chunks, f"{job.key}: servers of a gang run without its members")
        chief = job.chief is None or state.chief in beside
        _expect(
            not running or (chief and not state.has_closing_servers),
            f"{job.key}: members of a gang run without the rest",
        )
    for entry in state.entries.values():
        node = cluster.nodes.get(entry.home.node or "")
        for slot in entry.home.slots if node else ():
            _expect(node is not None and entry in node.queues[slot], f"{job.key}: chunk {entry.chunk} left its queue")


def _expect(condition: bool, text: str) -> None:
    if not condition:
        raise InvariantError(text)
