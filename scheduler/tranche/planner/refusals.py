"""Pods that find no place, and evictions that are refused: who goes on, who pauses, and who goes elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tranche.model import WindowState
from tranche.planner import gangs, releases
from tranche.planner.events import EvictionRefused
from tranche.policies import JobState, NodeState, Run

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def eviction_refused(planner: Planner, event: EvictionRefused, now: float) -> None:
    """Open the windows again; the job is not asked again for a while.

    A gang goes on only if none of its members has been stopped; else the rest has to go, however long that takes.
    """
    state = planner.cluster.jobs.get(event.job)
    if state is None or not state.active:
        return
    runs = [run for attempt, run in state.runs.items() if attempt in event.attempts and run.closing]
    if any(run.obsolete for run in runs) or (state.job.rigid and not gangs.is_whole(state, event.attempts)):
        return
    releases.keep(planner, state, event.attempts, now)
    if not runs:
        return
    for run in runs:
        _reopen(planner, state, run)
    state.spared = True
    planner.cluster.spared[event.job] = now + planner.settings.spare_seconds
    planner.wake(planner.cluster.spared[event.job], event.job)
    displace(planner, {run.home.node or "" for run in runs})
    planner.touch(state)
    planner.publish(event.job)


def expire(planner: Planner, now: float) -> None:
    """Those who have been spared long enough may be asked again."""
    spared = planner.cluster.spared
    for key in [key for key, until in spared.items() if until <= now]:
        del spared[key]
        state = planner.cluster.jobs.get(key)
        if state is not None:
            state.spared = False
            planner.touch(state)
            planner.rank_fell(state)


def found_no_place(planner: Planner, state: JobState, run: Run, message: str, now: float) -> None:
    """A pod has waited for a node for too long: it is not tried there again for a while.

    A gang lets go of everything and pauses, longer each time, so that another one gets its turn; that several of its
    pods have waited in vain counts once.
    """
    avoid(planner, state, run.window.node, now)
    if run.closing:
        return
    if state.job.together > 1 or (state.job.rigid and state.job.helpers):
        pause(planner, state, f"worker {run.window.index} found no place: {message}", now)
    planner.close(state, run)


def avoid(planner: Planner, state: JobState, node: str | None, now: float) -> None:
    """Pods of the job are not sent there again for a while, or until something leaves the node."""
    if node is None:
        return
    if not state.avoids(node, now):
        state.refused[node] = state.refused.get(node, 0) + 1
    state.avoided[node] = now + planner.settings.avoid_seconds
    planner.avoiding.setdefault(node, set()).add(state.job.key)
    planner.wake(state.avoided[node], state.job.key)


def forgive(planner: Planner, node: str, left: str | None = None) -> None:
    """What has left a node, or changed about it, may have been the reason why it refused pods: they try it again.

    Not at once where it has just refused them, and after a longer pause each time: it may have been something else.

    Args:
        planner: Whose jobs avoid nodes.
        node: The node.
        left: Job of the pod that has left: that this one is gone is no news for its own job.
    """
    settings, keys = planner.settings, planner.avoiding.get(node, set())
    for key in sorted(keys - {left}):
        state = planner.cluster.jobs.get(key)
        if state is None or not state.avoids(node, planner.now):
            keys.discard(key)
            continue
        since = state.avoided[node] - settings.avoid_seconds
        pause = settings.backoff_seconds(settings.failure_backoff_seconds, state.refused.get(node, 1) - 1)
        again = max(planner.now, since + pause)
        if again < state.avoided[node]:
            keys.discard(key)
            state.avoided[node] = again
            if again > planner.now:
                planner.wake(again, key)
            planner.touch(state)


def pause(planner: Planner, state: JobState, reason: str, now: float) -> None:
    """Start nothing of a gang that could not start, for longer each time."""
    settings = planner.settings
    seconds = settings.backoff_seconds(settings.failure_backoff_seconds, count(planner, state.job.key))
    hold(planner, state, now, seconds, reason)


def count(planner: Planner, key: str) -> int:
    """How often the job's pods could not be started before, since they last were; counts this time."""
    before = planner.rejections.get(key, 0)
    planner.rejections[key] = before + 1
    return before


def has_started(planner: Planner, state: JobState) -> None:
    """A worker has started; a gang, whose others may still find no place, only with the last of its members."""
    if not state.job.rigid or all(run.started is not None for run in state.runs.values()):
        planner.rejections.pop(state.job.key, None)
        for run in state.runs.values():
            state.refused.pop(run.home.node or "", None)


def failed(planner: Planner, state: JobState, reason: str, now: float) -> None:
    """A pod of the job has failed and is counted: if the job may go on, it does so after a pause, longer each time."""
    settings = planner.settings
    if not state.failed:
        seconds = settings.backoff_seconds(settings.failure_backoff_seconds, state.failures - 1)
        hold(planner, state, now, seconds, reason)


def hold(planner: Planner, state: JobState, now: float, seconds: float, reason: str) -> None:
    """Start nothing of the job for so long."""
    state.held_until = now + seconds
    state.hold_reason = reason
    planner.wake(state.held_until, state.job.key)


def displace(planner: Planner, nodes: Iterable[str]) -> None:
    """Close windows whose pods are not bound where there is no room for them any more, the youngest first."""
    for name in sorted(nodes):
        node = planner.cluster.nodes.get(name)
        for state, run in sorted(_unbound(node), key=lambda one: -one[1].opened) if node is not None else ():
            if node is not None and not run.closing and not node.reserved.fits(node.capacity):
                planner.close(state, run)


def _unbound(node: NodeState) -> list[tuple[JobState, Run]]:
    return [(state, run) for state, run in node.runs.values() if not (run.closing or run.bound or run.started)]


def _reopen(planner: Planner, state: JobState, run: Run) -> None:
    run.window, run.closed = replace(run.window, state=WindowState.OPEN, preempted_by=""), None
    node = planner.cluster.nodes.get(run.home.node or "")
    if node is not None:
        node.leaving.pop((state.job.key, run.window.attempt), None)
        node.reserved = node.reserved + state.job.worker.requests
        planner.dirty_nodes.add(node.node.name)
    planner.count_share(state, 1)
