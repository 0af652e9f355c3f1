"""Staging pods, which copy data to sites: one at a time per job and site; copies count when their pod succeeds.

At most `MAX_PODS` of a namespace run or wait at a time. They need no GPU that the planner has, so that the jobs of one
tenant could otherwise fill the queue of kube-scheduler, which tries each of them before the pods of others.

A failed or refused pod is followed by another one after a back-off that doubles. When more pods have failed in a row
than the job's back-off limit allows, staging to that site is given up for a time that doubles, or until the job's
specification changes, and chunks train where their data are.
"""

from collections.abc import Iterable
from math import inf

from tranche.model import PlannedStaging
from tranche.planner.context import PlannerContext
from tranche.planner.instructions import StageData
from tranche.state import site_accounting
from tranche.state.job import JobState
from tranche.state.staging import ARRIVED, Staging

MAX_PODS = 100
"""Maximum number of staging pods of one namespace at a time."""


def request_copies(context: PlannerContext, state: JobState, chunks: tuple[int, ...], site: str) -> None:
    """Request copies of chunks' data at a site, which the next staging pod for that site makes."""
    staging = state.stagings.setdefault(site, Staging(site))
    staging.wanted += chunks
    context.work.unstaged[state.job.key] = None


def is_given_up(state: JobState, site: str) -> bool:
    """Return whether staging to the site is given up now."""
    staging = state.stagings.get(site)
    return staging is not None and staging.given_up


def start_pods(context: PlannerContext, now: float) -> Iterable[StageData]:
    """Yield the instructions for staging pods that have data to copy and are not in back-off."""
    _resume(context)
    for key in list(context.work.unstaged):
        state, held = context.cluster.jobs.get(key), False
        if state is None or not state.active:
            del context.work.unstaged[key]
            continue
        for staging in list(state.stagings.values()):
            staging.wanted = tuple(chunk for chunk in staging.wanted if chunk not in state.done)
            if staging.attempt or staging.given_up:
                continue
            if not staging.wanted:
                del state.stagings[staging.site]
            elif staging.held_until > now:
                held = True
            elif not _room(context, state.job.namespace):
                context.work.unstaged_at_limit.setdefault(state.job.namespace, {})[key] = None
            else:
                context.work.staging_pods[state.job.namespace].add((key, staging.site))
                state.attempts += 1
                staging.attempt, staging.chunks, staging.wanted = state.attempts, staging.wanted, ()
                context.publish(key)
                site_accounting.count_uploads(context.cluster, state, staging.chunks, staging.site)
                yield StageData(key, staging.chunks, staging.site, context.cause)
        if not held:
            del context.work.unstaged[key]


def _room(context: PlannerContext, namespace: str) -> int:
    """Return how many more staging pods of the namespace may start."""
    pods, jobs = context.work.staging_pods.setdefault(namespace, set()), context.cluster.jobs
    if len(pods) >= MAX_PODS:
        for key, site in list(pods):
            state = jobs.get(key)
            staging = state.stagings.get(site) if state is not None else None
            if staging is None or not staging.attempt:
                pods.discard((key, site))
    return MAX_PODS - len(pods)


def _resume(context: PlannerContext) -> None:
    """Consider jobs again that waited until fewer staging pods of their namespace run."""
    for namespace, keys in list(context.work.unstaged_at_limit.items()):
        room = _room(context, namespace)
        while room > 0 and keys:
            key = next(iter(keys))
            del keys[key]
            if key in context.cluster.jobs:
                context.work.unstaged[key] = None
                room -= 1
        if not keys:
            del context.work.unstaged_at_limit[namespace]


def note_copied(state: JobState, chunk: int, site: str) -> None:
    """Record that the data of a chunk are at the site."""
    state.coming.pop((site, chunk), None)
    state.copy(chunk, site, ARRIVED)


def stop_pods(state: JobState) -> None:
    """Stop the staging pods of a job that is not active; their copies are requested again if it continues."""
    for staging in state.stagings.values():
        staging.wanted, staging.chunks, staging.attempt = (*staging.chunks, *staging.wanted), (), 0
        if state.finished:
            _forget_coming(state, staging.site)
    if state.finished:
        state.stagings.clear()


def retry_failed(context: PlannerContext, state: JobState, *, revised: bool = False) -> None:
    """Retry failed copies after a change of the job's specification.

    Args:
        context: Context of the planner.
        state: State of the job.
        revised: Whether the template of staging pods has changed, so that the present ones are replaced.
    """
    if revised:
        stop_pods(state)
    for staging in list(state.stagings.values()):
        staging.failures, staging.refusals, staging.held_until = 0, 0, 0.0
        if staging.given_up:
            del state.stagings[staging.site]
    context.work.unstaged[state.job.key] = None


def end_give_ups(context: PlannerContext, state: JobState) -> None:
    """Let the data of a job be copied again to sites to which staging was given up for long enough.

    A source or a link may have been away. If the next pod fails, too, staging is given up for twice as long.
    """
    for staging in state.stagings.values():
        if staging.given_up and staging.held_until <= context.now:
            staging.given_up = False
            context.work.unstaged[state.job.key] = None


def planned(state: JobState) -> tuple[PlannedStaging, ...]:
    """Return the stagings of the job for status.plan, in order of site."""
    return tuple(
        PlannedStaging(one.site, one.attempt, one.chunks, one.wanted, one.failures, one.given_up, one.problem)
        for _, one in sorted(state.stagings.items())
    )


def restore(context: PlannerContext, state: JobState, plan: Iterable[PlannedStaging], now: float) -> None:
    """Take over the stagings of an earlier planner; a back-off after a failure starts again."""
    for one in plan:
        known = state.copies.get(one.site, {})
        chunks, wanted = (
            tuple(c for c in numbers if c < state.job.chunks and c not in state.done and c not in known)
            for numbers in (one.chunks, one.wanted)
        )
        attempt = one.attempt if chunks else 0
        staging = Staging(one.site, attempt, chunks, wanted, one.failures, problem=one.why, given_up=one.given_up)
        state.stagings[one.site] = staging
        if attempt:
            context.work.staging_pods.setdefault(state.job.namespace, set()).add((state.job.key, one.site))
        state.attempts = max(state.attempts, attempt)
        coming = (*chunks, *wanted)
        for chunk, until in zip(coming, context.cluster.begin_copies(state, one.site, len(coming), now), strict=True):
            state.copy(chunk, one.site, until, reported=True)
        if one.failures and not attempt:
            back_off(context, state, staging, now)
    if not state.active:
        stop_pods(state)
    context.work.unstaged[state.job.key] = None


def back_off(context: PlannerContext, state: JobState, staging: Staging, now: float) -> None:
    """Start the back-off after a failed staging pod, or give up for a longer time."""
    settings, beyond = context.settings, staging.failures - state.job.backoff_limit
    if staging.given_up or beyond > 0:
        staging.given_up, staging.wanted = True, ()
        _forget_coming(state, staging.site)
        pause = settings.pause_seconds(settings.unplaced_hold_seconds, max(0, beyond - 1))
    else:
        before = max(0, staging.failures + staging.refusals - 1)
        pause = settings.backoff_seconds(settings.failure_backoff_seconds, before)
    staging.held_until = now + pause
    context.wake(staging.held_until, state.job.key)


def _forget_coming(state: JobState, site: str) -> None:
    """Discard the expected copies at a site that are not complete."""
    there = {chunk: at for chunk, at in state.copies.pop(site, {}).items() if at < inf}
    if there:
        state.copies[site] = there
    state.coming = {where: at for where, at in state.coming.items() if where[0] != site}
    state.windows_changed()
