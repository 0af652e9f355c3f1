"""Job summaries and details for the read API and the client."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.extender.view import View
from tranche.kube.api.condition import find_condition
from tranche.kube.api.names import CONDITION_PLANNED
from tranche.kube.api.resources import Resource, TrainingJob
from tranche.kube.api.status import PlannedInterval
from tranche.kube.api.timestamp import whole_second
from tranche.kube.convert.attempt_history import attempt_status, count_attempts, ended_attempts, resume_times
from tranche.model import AttemptRecord, Interval
from tranche.model.share_text import share_text, with_share
from tranche.model.stop_text import stop_text

Progress = Callable[[str], Awaitable[Any]]
"""Function from a job key to its progress; None if no planner has it."""


NOT_PLANNED = "not planned yet: the scheduler of tranche has not read the job yet, or is not running"


async def not_planning(key: str) -> None:
    """Return None, without a planner."""


class TimeInterval(msgspec.Struct, frozen=True):
    """Interval that contains a planned time with a probability of 80 %."""

    earliest: datetime
    latest: datetime


def time_interval(interval: Interval | None) -> TimeInterval | None:
    """Return the interval in UTC, in whole seconds."""
    if interval is None:
        return None
    earliest, latest = whole_second(interval.earliest), whole_second(interval.latest)
    return TimeInterval(earliest, latest) if earliest is not None and latest is not None else None


def _written(interval: PlannedInterval | None) -> TimeInterval | None:
    return TimeInterval(interval.earliest, interval.latest) if interval is not None else None


class JobSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Summary of one job in a list."""

    namespace: str
    name: str
    phase: str
    chunks: str
    """Done and total chunks, such as ``12/27``."""
    done: str
    """Numbers of the done chunks, such as ``0-11``."""
    planned_start: datetime | None
    planned_completion: datetime | None
    explanation: str
    created: datetime | None
    started: datetime | None
    completed: datetime | None
    batches: float | None
    """Mini-batches trained, as last written; None before the first plan."""
    total_batches: float | None
    """Mini-batches at which the job is done; None for a gang without progress from the planner."""
    is_gang: bool
    """Whether `chunks` counts members of a gang."""
    trained_share: str
    """Trained mini-batches as a share of all, such as ``31 %``; empty before the first plan."""
    start_interval: TimeInterval | None
    completion_interval: TimeInterval | None


class JobDetail(JobSummary, frozen=True, rename="camel"):
    """Details of one job."""

    uid: str
    plan: str
    """Term and revision of the plan, such as ``3.17``; empty without a plan."""
    priority: str
    weight: float
    suspended: bool
    """Whether `spec.suspend` is set."""
    max_workers: int
    chunk_count: int | None
    """Number of chunks; None for a gang."""
    partial_chunks: list[dict[str, Any]]
    """Started chunks that are not done, with their durable batches."""
    preemptions: int
    failures: int
    lost_batches: float
    attempts: list[dict[str, Any]]
    """Ended attempts of all roles, oldest first: at most 64 (`status.progress.history`); `text` says why each ended and
    what that cost, `log` has the last lines of a failed pod."""
    attempt_count: int
    """Number of all attempts, also of those that are not listed, and of the active ones."""
    attempt_totals: dict[str, int]
    """Number of all ended attempts by outcome."""
    victims: list[dict[str, Any]]
    """Last jobs whose workers were stopped for this one: job, number of workers, time."""
    preempted_workers: int
    """Number of all workers of other jobs that were stopped for this one."""
    trained: dict[str, Any]
    """Current and total mini-batches, whether estimated from run time alone and, if the job reports, report time and
    speed."""
    homes: dict[str, str]
    windows: list[dict[str, Any]]
    parameter_servers: list[dict[str, Any]]
    chief: dict[str, Any] | None
    """Chief of the gang, if it has one."""
    staging: list[dict[str, Any]]
    conditions: list[dict[str, Any]]
    sites: list[dict[str, Any]]
    """Usage at each site: GPU-seconds, chunks, copied bytes."""


async def read_job(view: View, namespace: str, name: str, progress: Progress = not_planning) -> JobDetail | None:
    """Return the details of a job, with the planner's progress or else the last written one.

    None if it does not exist.
    """
    job = view.jobs.get(f"{namespace}/{name}")
    return None if job is None else detail(job, await progress(job.key))


def summary(job: TrainingJob) -> JobSummary:
    """Return the summary of a job."""
    return JobSummary(**_summary(job))


def detail(job: TrainingJob, progress: Any = None) -> JobDetail:
    """Return the details of a job.

    Args:
        job: The TrainingJob.
        progress: Progress from the planner; None: use the last written progress.
    """
    plan, ledger = job.status.plan, job.status.progress
    records = ended_attempts(ledger)
    resumes = resume_times(job, records, datetime.now(UTC))
    attempts = [_attempt(record, resumes.get(record.attempt)) for record in records]
    trained = _trained(progress, job)
    return JobDetail(
        **_summary(job) | _present_share(trained, _explanation(job)),
        uid=job.metadata.uid,
        plan=f"{plan.term}.{plan.revision}" if plan else "",
        priority=job.spec.priority_class_name,
        weight=job.spec.weight,
        suspended=job.spec.suspend,
        max_workers=job.spec.workers.max_replicas,
        chunk_count=job.spec.data.chunks if job.spec.data else None,
        partial_chunks=_dumped(ledger.running if ledger else ()),
        lost_batches=ledger.lost_batches if ledger else 0.0,
        attempts=attempts,
        attempt_count=count_attempts(job, len(attempts)),
        attempt_totals=dict(ledger.attempt_totals) if ledger else {},
        victims=_dumped(ledger.victims if ledger else ()),
        preempted_workers=ledger.preempted_workers if ledger else 0,
        preemptions=ledger.preemptions if ledger else 0,
        failures=ledger.failures if ledger else 0,
        trained=trained,
        homes=dict(plan.homes) if plan else {},
        windows=_dumped(plan.workers if plan else ()),
        parameter_servers=_dumped(plan.parameter_servers if plan else ()),
        chief=next(iter(_dumped([plan.chief])), None) if plan and plan.chief else None,
        staging=_dumped(plan.staging if plan else ()),
        conditions=_dumped(job.status.conditions),
        sites=_dumped(ledger.sites if ledger else ()),
    )


def _attempt(record: AttemptRecord, resumes: datetime | None) -> dict[str, Any]:
    """Return an ended attempt with the keys of status.progress.attempts, and `text` and `log` if there are any."""
    reason = stop_text(record.preempted_by, record.why, record.lost_seconds, resumes)
    extra = {"text": reason, "log": record.log.splitlines()}
    return attempt_status(record) | {name: value for name, value in extra.items() if value}


def sentence(job: TrainingJob) -> str:
    """Return a sentence on what the job does or waits for; never empty."""
    return _explanation(job) or NOT_PLANNED


def _explanation(job: TrainingJob) -> str:
    """Return the explanation of the plan, or why there is no plan; "" for a job that no planner has read yet."""
    if job.status.plan is not None and job.status.plan.explanation:
        return job.status.plan.explanation
    planned = find_condition(job.status.conditions, CONDITION_PLANNED)
    return planned.message if planned is not None and planned.status == "False" else ""


def _trained(planner_progress: Any, job: TrainingJob) -> dict[str, Any]:
    if planner_progress is not None:
        progress: dict[str, Any] = msgspec.to_builtins(planner_progress)
        if "total_batches" in progress:
            progress["of"] = progress.pop("total_batches")
        return progress
    written = job.status.progress
    return {"batches": written.batches, "estimated": written.estimated} if written else {}


def _present_share(trained: dict[str, Any], explanation: str) -> dict[str, Any]:
    """Return the fields of a summary that contain the share, from the planner's progress; empty without it."""
    if "of" not in trained:
        return {}
    share = share_text(trained["batches"], trained["of"])
    return {"trained_share": share, "explanation": with_share(explanation, share)}


def phase_of(job: TrainingJob) -> str:
    """Return the phase from the operator, or Starting if it is Waiting although the plan has open windows.

    The operator writes Starting after the scheduler has written these windows.
    """
    phase, plan = job.status.phase or "Waiting", job.status.plan
    if phase == "Waiting" and plan is not None and any(window.state == "Open" for window in plan.workers):
        return "Starting"
    return phase


def total_batches(job: TrainingJob) -> float | None:
    """Return the mini-batches of all chunks and epochs; None for a job without data."""
    data = job.spec.data
    return float(data.chunks * data.epochs * data.batches_per_chunk) if data else None


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
        "explanation": _explanation(job),
        "created": job.metadata.creation_timestamp,
        "started": job.status.start_time,
        "completed": job.status.completion_time,
        "batches": progress.batches if progress else None,
        "total_batches": total_batches(job),
        "is_gang": job.spec.data is None,
        "trained_share": progress.trained if progress else "",
        "start_interval": _written(plan.start_interval) if plan else None,
        "completion_interval": _written(plan.completion_interval) if plan else None,
    }


def _dumped(models: Iterable[Resource]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]
