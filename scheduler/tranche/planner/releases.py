"""When parameter servers stop: idle ones save and go until the next window opens, lost ones are replaced at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from tranche.model import PlannedServer, WindowState
from tranche.planner import gangs, refusals, reports
from tranche.planner.events import ChiefEnded, Outcome, ParameterServerLost, WorkerUnschedulable
from tranche.planner.servers import release_servers
from tranche.policies import JobState, Server

if TYPE_CHECKING:
    from tranche.planner.machines import Planner

HelperEnd = ParameterServerLost | ChiefEnded
SAVED_EXIT_CODES = frozenset({0, 143})
"""Of a server that was asked to stop and had the time to save."""


def idle_from(state: JobState) -> float:
    """Since when the parameter servers of a job without windows have had nothing to do; seconds."""
    return max([state.idle_since, *(server.since for server in state.servers)])


def watch(planner: Planner, state: JobState) -> None:
    """Look at the job's parameter servers again when they have been idle for long enough."""
    at = idle_from(state) + planner.settings.server_idle_seconds
    if state.servers and not state.runs and not state.job.rigid and at < inf:
        planner.wake(at, state.job.key)


def release_idle(planner: Planner, keys: Collection[str], now: float) -> None:
    """Ask parameter servers of these jobs to save and stop where no window has been open for long enough.

    They keep their room until they have ended, and the job gets no windows before: a successor reads what they save.
    """
    for key in keys:
        state = planner.cluster.jobs.get(key)
        if state is None or state.runs or state.job.rigid or not (state.servers and is_saved(state)):
            continue
        if idle_from(state) + planner.settings.server_idle_seconds <= now:
            close(planner, state)


def is_saved(state: JobState) -> bool:
    """Whether a later parameter server finds what the job's present ones have learnt.

    Either the user has given a volume that is there wherever a pod runs, or servers have said that they have saved
    something, and nobody has said that it stays behind with its node or site.
    """
    if state.job.durable is not None:
        return state.job.durable
    return state.checkpoint is not None and any(batches > 0 for batches in state.checkpoint.batches.values())


def close(planner: Planner, state: JobState, preempted_by: str = "") -> None:
    """Have the job's parameter servers stopped; each end comes back as `ParameterServerLost`."""
    for server in state.servers:
        if not server.closing:
            _close(planner, state, server, preempted_by)


def _close(planner: Planner, state: JobState, server: Server, preempted_by: str = "") -> None:
    server.planned = replace(server.planned, state=WindowState.CLOSING, preempted_by=preempted_by)
    planner.stop_server(state, server)


def found_no_place(planner: Planner, event: WorkerUnschedulable, now: float) -> None:
    """The pod of a parameter server or chief has waited for a node for too long: it is not tried there for a while.

    Nobody trains without it, so that the workers of a chunked job let go of their GPUs; its other servers stay.
    """
    state = planner.cluster.jobs[event.job]
    server = next((one for one in state.servers if one.planned.attempt == event.attempt and not one.closing), None)
    if server is None:
        return
    refusals.avoid(planner, state, server.planned.node, now)
    server.homeless = True
    if state.job.rigid:
        gangs.found_no_place(planner, state, server, event.message, now)
        return
    close_workers(planner, state)
    _close(planner, state, server)


def close_workers(planner: Planner, state: JobState) -> None:
    """Have the windows of a chunked job closed that cannot go on."""
    for run in list(state.runs.values()):
        if not run.closing:
            planner.close(state, run)


def follow(planner: Planner, state: JobState) -> None:
    """The servers of a job that is suspended, or cannot be planned, save and stop when its last worker has."""
    halted = state.job.suspended or state.unplannable is not None
    if halted and not (state.runs or state.finished or state.failed):
        close(planner, state)


def keep(planner: Planner, state: JobState, attempts: Collection[int], now: float) -> None:
    """Closing parameter servers that a disruption budget does not let go work on, and are asked again when idle."""
    kept = [server for server in state.servers if server.closing and server.planned.attempt in attempts]
    for server in kept:
        server.planned, server.since = replace(server.planned, state=WindowState.OPEN, preempted_by=""), now
    if kept:
        watch(planner, state)
        planner.touch(state)
        planner.publish(state.job.key)


def end_of(job: str, planned: PlannedServer, outcome: Outcome = "Lost", exit_code: int | None = None) -> HelperEnd:
    """The event that tells of the end of a parameter server or chief."""
    if planned.is_chief:
        return ChiefEnded(job, planned.attempt, outcome, exit_code)
    return ParameterServerLost(job, planned.index, planned.attempt, outcome, exit_code)


def ended(planner: Planner, event: HelperEnd, now: float) -> None:
    """A parameter server's or chief's pod is over: what it has not saved is lost."""
    state = planner.cluster.jobs.get(event.job)
    lost = [s for s in state.servers if s.planned.attempt == event.attempt] if state is not None else []
    if state is None or not lost:
        return
    leave(planner, state, lost[0])
    if state.job.rigid:
        gangs.helper_ended(planner, state, lost[0], event, now)
    elif not lost[0].closing:
        reports.server_lost(planner, state)
        if state.active and not planner.place_servers(state):
            close_workers(planner, state)
    elif lost[0].homeless:
        pass
    elif event.outcome == "Lost" or event.exit_code not in SAVED_EXIT_CODES:
        reports.server_lost(planner, state)
    planner.touch(state)
    planner.publish(event.job)


def leave(planner: Planner, state: JobState, server: Server) -> None:
    """The pod is over, and its place is free."""
    give_back(planner, state, [server])
    planner.room_grew(None)
    state.servers = [one for one in state.servers if one is not server]


def give_back(planner: Planner, state: JobState, servers: Iterable[Server]) -> None:
    """Parameter servers are over: nothing is held for them any more."""
    release_servers(planner.cluster, list(servers))
    for server in servers:
        refusals.forgive(planner, server.planned.node or "", state.job.key)
        planner.cluster.quotas.give(state.job.key, server.planned.attempt)
    planner.quota_grew(state.job.namespace)
