"""What the read-only API tells of jobs and sites."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from tranche.extender.views import View
from tranche.kube.names import CONDITION_PLANNED
from tranche.kube.resources import Resource, TrainingJob

Progress = Callable[[str], Any]
"""From a job's key to how far it is, as a dataclass; None if the planner of this process does not know."""


NOT_PLANNED = "not planned yet: the scheduler of tranche has not read the job yet, or is not running"


def not_planning(key: str) -> None:
    """No planner in this process."""


class JobSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One job in a list."""

    namespace: str
    name: str
    phase: str
    chunks: str
    """Done of all: ``12/27``."""
    done: str
    """Numbers of the chunks that are done: ``0-11``."""
    planned_start: datetime | None
    planned_completion: datetime | None
    explanation: str
    created: datetime | None
    completed: datetime | None


class JobDetail(JobSummary, frozen=True, rename="camel"):
    """One job alone."""

    started: datetime | None
    plan: str
    """Term and revision, as pods carry them: ``3.17``; empty without a plan."""
    priority: str
    chunk_count: int | None
    """None: a gang, which has no chunks."""
    running: list[dict[str, Any]]
    """Chunks that are begun and not done, with their durable batches."""
    preemptions: int
    failures: int
    lost_batches: float
    attempts: list[dict[str, Any]]
    """How its last pods ended."""
    trained: dict[str, Any]
    """Mini-batches by now, of how many, whether estimated from run time alone; if the job reports: when, how fast."""
    homes: dict[str, str]
    windows: list[dict[str, Any]]
    parameter_servers: list[dict[str, Any]]
    chief: dict[str, Any] | None
    """Of a gang that has one."""
    staging: list[dict[str, Any]]
    conditions: list[dict[str, Any]]
    sites: list[dict[str, Any]]
    """What it has used at each: GPU-seconds, chunks, bytes copied."""


def read_job(view: View, namespace: str, name: str, progress: Progress = not_planning) -> JobDetail | None:
    """One job; None if there is none. Its progress is the planner's, or else what was written last."""
    job = view.jobs.get(f"{namespace}/{name}")
    return None if job is None else detail(job, progress(job.key))


def summary(job: TrainingJob) -> JobSummary:
    """One job in a list, by what the API server has of it."""
    return JobSummary(**_summary(job))


def detail(job: TrainingJob, known: Any = None) -> JobDetail:
    """One job alone.

    Args:
        job: As the API server has it.
        known: How far it is by the planner's word; None: what was written last.
    """
    plan, ledger = job.status.plan, job.status.progress
    return JobDetail(
        **_summary(job),
        started=job.status.start_time,
        plan=f"{plan.term}.{plan.revision}" if plan else "",
        priority=job.spec.priority_class_name,
        chunk_count=job.spec.data.chunks if job.spec.data else None,
        running=_dumped(ledger.running if ledger else ()),
        lost_batches=ledger.lost_batches if ledger else 0.0,
        attempts=_dumped(ledger.attempts if ledger else ()),
        preemptions=ledger.preemptions if ledger else 0,
        failures=ledger.failures if ledger else 0,
        trained=_trained(known, job),
        homes=dict(plan.homes) if plan else {},
        windows=_dumped(plan.workers if plan else ()),
        parameter_servers=_dumped(plan.parameter_servers if plan else ()),
        chief=next(iter(_dumped([plan.chief])), None) if plan and plan.chief else None,
        staging=_dumped(plan.staging if plan else ()),
        conditions=_dumped(job.status.conditions),
        sites=_dumped(ledger.sites if ledger else ()),
    )


def sentence(job: TrainingJob) -> str:
    """What the job does, or what it waits for; never empty."""
    if job.status.plan is not None and job.status.plan.explanation:
        return job.status.plan.explanation
    refused = next(
        (c.message for c in job.status.conditions if c.type == CONDITION_PLANNED and c.status == "False"), ""
    )
    return refused or NOT_PLANNED


def _trained(known: Any, job: TrainingJob) -> dict[str, Any]:
    if known is not None:
        told: dict[str, Any] = msgspec.to_builtins(known)
        return told
    written = job.status.progress
    return {"batches": written.batches, "estimated": written.estimated} if written else {}


def phase_of(job: TrainingJob) -> str:
    """As the operator says, or Waiting before it has said anything."""
    return job.status.phase or "Waiting"


def _summary(job: TrainingJob) -> dict[str, Any]:
    plan, progress = job.status.plan, job.status.progress
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "phase": phase_of(job),
        "chunks": progress.chunks if progress else "",
        "done": progress.done if progress else "",
        "planned_start": plan.estimated_start if plan else None,
        "planned_completion": plan.estimated_completion if plan else None,
        "explanation": plan.explanation if plan else "",
        "created": job.metadata.creation_timestamp,
        "completed": job.status.completion_time,
    }


def _dumped(models: Iterable[Resource]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]
