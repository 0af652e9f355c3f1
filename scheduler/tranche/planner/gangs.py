"""Gangs with parameter servers or a chief: a place for all pods or for none, and one end for all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tranche.model import AttemptRecord, PlannedServer
from tranche.planner import changes, ledgers, refusals, releases, reports
from tranche.planner.events import ChiefEnded, WorkerEnded
from tranche.planner.rooms import Trial, free_nodes
from tranche.planner.servers import Missing, missing_servers
from tranche.policies import ClusterState, JobState, NodeState, Server

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def find_places(
    cluster: ClusterState, state: JobState, nodes: Sequence[NodeState], now: float, *, first_fit: bool
) -> tuple[list[NodeState], list[NodeState]] | None:
    """Nodes for all members in what is free, and for what has to start with them; None if one pod finds none.

    Args:
        cluster: All there is.
        state: Of the gang.
        nodes: For members to choose from, by name.
        now: Clock, in seconds.
        first_fit: Members take nodes by name, not the ones that they fill best.
    """
    chosen = free_nodes(nodes, state, state.job.together, first_fit=first_fit)
    if len(chosen) < state.job.together:
        return None
    helpers = missing_servers(state)
    trial = Trial(cluster, state, now, iter(()))
    trial.occupy(chosen)
    if not trial.seat(helpers):
        trial = Trial(cluster, state, now, iter(()))
        if not trial.together(nodes, helpers, helpers_first=True):
            return None
    return trial.nodes, trial.seats


def seat(planner: Planner, state: JobState, seats: Sequence[NodeState], now: float) -> None:
    """Start what the gang lacks beside its members on these nodes."""
    missing = missing_servers(state) if seats else []
    for one, node in zip(missing, seats, strict=True):
        node.reserved = node.reserved + one.shape.requests
    _start_helpers(
        planner, state, [(one, node.node.site, node.node.name) for one, node in zip(missing, seats, strict=True)], now
    )


def seat_at(planner: Planner, state: JobState, site: str, now: float) -> None:
    """Start what the gang lacks beside its members at a site with capacity on demand."""
    _start_helpers(planner, state, [(one, site, None) for one in missing_servers(state)], now)


def _start_helpers(
    planner: Planner, state: JobState, places: Sequence[tuple[Missing, str, str | None]], now: float
) -> None:
    """Start parameter servers and chief, each with its site and node."""
    placed: list[Server] = []
    for one, site, node in places:
        state.attempts += 1
        planned = PlannedServer(one.number, state.attempts, site, node, is_chief=one.is_chief)
        placed.append(Server(planned, one.shape.requests, now))
    if placed:
        planner.install(state, placed)


def helper_ended(planner: Planner, state: JobState, server: Server, event: releases.HelperEnd, now: float) -> None:
    """The pod of a gang's parameter server or chief is over; it has been struck from the books.

    A chief that succeeded ends the job. A parameter server that succeeded is only gone. Any other end takes the whole
    gang with it, and counts as its failure if a pod failed that was not to stop.
    """
    planned = server.planned
    if planned.is_chief:
        node, by = planned.node or planned.site, ledgers.preemptor_of(planned, event)
        record = AttemptRecord(0, planned.attempt, node, event.outcome, event.exit_code, preempted_by=by)
        ledgers.note(state, record)
    if event.outcome == "Succeeded":
        if planned.is_chief:
            _succeed(planner, state, now)
        return
    if event.exit_code not in releases.SAVED_EXIT_CODES:
        reports.server_lost(planner, state)
    if not server.closing and event.outcome == "Failed":
        what = "its chief" if planned.is_chief else f"parameter server {planned.index}"
        state.failures += 1
        refusals.failed(planner, state, f"{what} failed with exit code {event.exit_code}", now)
    start_again(planner, state, event.preempted_by)
    if state.failed:
        changes.stop(planner, state)


def start_again(planner: Planner, state: JobState, preempted_by: str = "") -> None:
    """A gang has lost a pod: all others stop, and none of them is done.

    Without a chief, what those have saved that were done is settled when the last one has ended.

    Args:
        planner: Closes the windows.
        state: Of the gang.
        preempted_by: Foreign pod that preempted the lost pod, and so all of them; empty if none did.
    """
    if state.job.chief is not None:
        state.done.clear()
        state.ledger_changed()
        state.windows_changed()
    for run in list(state.runs.values()):
        planner.close(state, run, preempted_by)
    releases.close(planner, state, preempted_by)


def found_no_place(planner: Planner, state: JobState, server: Server, message: str, now: float) -> None:
    """The pod of a gang's parameter server or chief has waited for a node for too long."""
    what = "chief" if server.planned.is_chief else f"parameter server {server.planned.index}"
    refusals.pause(planner, state, f"{what} found no place: {message}", now)
    start_again(planner, state)


def expected_end(key: str, state: JobState) -> ChiefEnded | None:
    """The end of a chief whose workers are all done: when nobody knows better, it ends with the last of them."""
    chief = state.chief
    if chief is None or chief.closing or len(state.done) < state.job.chunks:
        return None
    return ChiefEnded(key, chief.planned.attempt, "Succeeded", 0)


def is_whole(state: JobState, refused: Collection[int]) -> bool:
    """Whether a gang that was to stop can go on if these attempts do not stop."""
    stopped = [one for one in state.servers if one.closing and one.planned.attempt not in refused]
    covered = {c for run in state.runs.values() if run.window.attempt in refused for c in run.window.chunks}
    return not stopped and len(state.servers) == state.job.helpers and len(covered | state.done) == state.job.chunks


def _succeed(planner: Planner, state: JobState, now: float) -> None:
    """The chief is done, and so is the job: its members have nothing more to do, whatever they are at."""
    for run in list(state.runs.values()):
        changes.count(planner, state, run, WorkerEnded(state.job.key, run.window.attempt, "Succeeded", now), now)
    state.done = set(range(state.job.chunks))
    state.partial.clear()
    state.applied.clear()
    state.ledger_changed()
    state.windows_changed()
    changes.finish(planner, state)
