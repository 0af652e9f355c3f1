"""Planner that takes over from another one in a simulation, with nothing but what statuses and Lease hold."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tranche.kube.api.resources import Plan, Progress
from tranche.kube.convert.trainingjob import plan_status, progress_status, read_plan, read_progress
from tranche.live.lease_annotations import LEARNED_ANNOTATION, learned_text, read_learned_state
from tranche.planner import (
    Event,
    Instruction,
    JobSubmitted,
    KubeSchedulerChanged,
    NodeChanged,
    Planner,
    QuotaChanged,
    SiteChanged,
    WorkerBound,
    WorkerStarted,
)
from tranche.planner.handlers.progress import training_progress
from tranche.planner.learned_state import learned_state_of, recall
from tranche.state.job import JobState
from tranche.state.phases import WindowPhase


def statuses_of(planner: Planner, now: float) -> dict[str, dict[str, Any]]:
    """Return plan and progress of each job as JSON, as they are in its status."""
    found = {}
    for key, state in planner.cluster.jobs.items():
        plan = plan_status(planner.plan_of(key, now), state.job.uid, 1, 1)
        batches = training_progress(state, now).batches
        progress = progress_status(planner.progress_of(key), state.job, batches, estimated=False)
        found[key] = json.loads(json.dumps({"plan": plan, "progress": progress}))
    return found


def successor(planner: Planner, now: float, statuses: dict[str, dict[str, Any]] | None = None) -> Planner:
    """Return a planner that has restored what this one has written; with `statuses`, what another client has written.

    A Lease of an earlier moment would make the successor distribute workers again; here it has just been renewed.
    """
    return taken_over(planner, now, statuses)[0]


def taken_over(
    planner: Planner, now: float, statuses: dict[str, dict[str, Any]] | None = None, events: Iterable[Event] = ()
) -> tuple[Planner, list[Instruction]]:
    """Return such a planner and its first instructions; the events are those that it observes as it takes over."""
    made, cluster = Planner(planner.policy, planner.settings), planner.cluster
    for site in cluster.sites.values():
        made.handle(SiteChanged(site), now)
    for quota in (quota for of_namespace in cluster.quotas.by_namespace.values() for quota in of_namespace.values()):
        made.handle(QuotaChanged(quota), now)
    for known in cluster.nodes.values():
        made.handle(NodeChanged(known.node), now)
    made.handle(KubeSchedulerChanged(not cluster.scheduler_silent), now)
    text, _ = learned_text(learned_state_of(cluster, now))
    recall(made.context, read_learned_state({LEARNED_ANNOTATION: text}))
    given = statuses if statuses is not None else statuses_of(planner, now)
    jobs = [_submission(state, given[key]) for key, state in cluster.jobs.items() if key in given]
    pods = [event for key, state in cluster.jobs.items() for event in _pods_of(key, state, now)]
    return made, made.restore(jobs, now, [*pods, *events])


def _pods_of(key: str, state: JobState, now: float) -> Iterator[Event]:
    """Yield the events of the pods of a job that have a node or run."""
    for run in state.runs.values():
        if run.phase is WindowPhase.BOUND and run.window.node is not None:
            yield WorkerBound(key, run.window.attempt, run.window.node)
        if run.started is not None:
            yield WorkerStarted(key, run.window.attempt, run.started)
    for server in state.servers:
        if server.placed and server.planned.node is not None:
            yield WorkerBound(key, server.planned.attempt, server.planned.node)
        if server.started:
            yield WorkerStarted(key, server.planned.attempt, now)


def _submission(state: JobState, status: dict[str, Any]) -> JobSubmitted:
    plan, progress = Plan.model_validate(status["plan"]), Progress.model_validate(status["progress"])
    return JobSubmitted(state.job, read_plan(plan), read_progress(progress))
