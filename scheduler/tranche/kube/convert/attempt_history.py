"""Ended attempts of a job in status.progress: the last ones as fields, and the history as texts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tranche.kube.api.resources import EndedAttempt, Progress, TrainingJob
from tranche.kube.api.timestamp import rfc3339
from tranche.model import AttemptRecord
from tranche.model.attempt_record import unpack

LONGEST_REASON = 1024
"""Bound of EndedAttempt.reason; a kubelet may report any text."""


def attempt_status(record: AttemptRecord) -> dict[str, Any]:
    """Build an entry of status.progress.attempts as JSON."""
    fields = {
        "role": record.role,
        "index": record.index,
        "attempt": record.attempt,
        "node": record.node,
        "reason": record.reason[:LONGEST_REASON],
        "exitCode": record.exit_code,
        "preemptedBy": record.preempted_by or None,
        "why": record.why or None,
        "start": rfc3339(record.started) if record.started is not None else None,
        "end": rfc3339(record.ended) if record.ended is not None else None,
        "lostSeconds": round(record.lost_seconds, 1) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def read_record(one: EndedAttempt) -> AttemptRecord:
    """Read an entry of status.progress.attempts."""
    return AttemptRecord(
        index=one.index,
        attempt=one.attempt,
        node=one.node,
        reason=one.reason,
        exit_code=one.exit_code,
        role=one.role,
        preempted_by=one.preempted_by or "",
        why=one.why or "",
        started=one.start.timestamp() if one.start is not None else None,
        ended=one.end.timestamp() if one.end is not None else None,
        lost_seconds=one.lost_seconds or 0.0,
    )


def ended_attempts(progress: Progress | None) -> list[AttemptRecord]:
    """Return the recorded ends of all pods of a job, oldest first.

    Statuses of earlier versions have no history, but entries of the last workers and chiefs.
    """
    if progress is None:
        return []
    if not progress.history:
        return [read_record(one) for one in progress.attempts]
    return [record for record in map(unpack, progress.history) if record is not None]


def count_attempts(job: TrainingJob, listed: int) -> int:
    """Return the number of all attempts of a job, ended or active.

    Args:
        job: The job.
        listed: Number of attempts that are known by their pods or records, as a lower bound for statuses of earlier
            versions, which have no totals.
    """
    plan, progress = job.status.plan, job.status.progress
    ended = sum(progress.attempt_totals.values()) if progress is not None else 0
    planned = 0 if plan is None else len(plan.workers) + len(plan.parameter_servers) + (plan.chief is not None)
    return max(listed, ended + planned)


def resume_times(job: TrainingJob, records: Sequence[AttemptRecord], now: datetime) -> dict[int, datetime]:
    """Return when a waiting job is planned to resume, by number of the attempts that its last preemption ended.

    Args:
        job: The job.
        records: Its ended attempts, oldest first.
        now: Current time, with a time zone.
    """
    resumes, last = next_start(job, now), next(reversed(records), None)
    if resumes is None or last is None or not last.preempted_by:
        return {}
    cause = (last.preempted_by, last.why)
    return {one.attempt: resumes for one in records if (one.preempted_by, one.why) == cause}


def next_start(job: TrainingJob, now: datetime) -> datetime | None:
    """Return the planned start of a waiting job; None if it has workers, has ended, or has no such plan."""
    plan, over = job.status.plan, job.status.phase in ("Succeeded", "Failed")
    if plan is None or over or any(window.state == "Open" for window in plan.workers):
        return None
    start = plan.estimated_start
    return start if start is not None and start > now else None
