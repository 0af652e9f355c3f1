"""Sentences about a pod that was stopped: by which job, why, what it cost, and when its work resumes.

Command line, web page and events use the same words.
"""

from datetime import UTC, datetime

MIN_LOSS_SECONDS = 0.05
"""Lost training time from which a text names it."""


def preemption_text(preempted_by: str, why: str) -> str:
    """Return such as "preempted by ns/b, which has less work left"."""
    return f"preempted by {preempted_by}" + (f", {why}" if why else "")


def stop_text(preempted_by: str, why: str, lost_seconds: float, resumes: datetime | None = None) -> str:
    """Return why a pod ended, and what that cost; empty if neither is known.

    Lost work and the time of the next start are estimates, and marked as such.

    Args:
        preempted_by: Preemptor, as in `AttemptRecord`.
        why: Reason, as in `AttemptRecord`.
        lost_seconds: Training time that was lost.
        resumes: Planned start of the job's next worker; None if it is unknown, or if the job has workers.
    """
    if preempted_by:
        return f"{preemption_text(preempted_by, why)}; {cost_text(lost_seconds, resumes)}"
    costs = [cost_text(lost_seconds)] if lost_seconds >= MIN_LOSS_SECONDS else []
    return "; ".join(part for part in (why, *costs) if part)


def cost_text(lost_seconds: float, resumes: datetime | None = None) -> str:
    """Return such as "about 12 s of work lost; resumes at about 2026-11-22 14:05:00Z"; arguments as in `stop_text`."""
    lost = f"about {duration_text(lost_seconds)}" if lost_seconds >= MIN_LOSS_SECONDS else "no"
    resumed = f"; resumes at about {resumes.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}" if resumes is not None else ""
    return f"{lost} work lost{resumed}" if lost == "no" else f"{lost} of work lost{resumed}"


def duration_text(seconds: float) -> str:
    """Return such as "0.4 s", "12 s", "3 min" or "1.5 h"."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if seconds < 599.5:
        return f"{seconds:.0f} s"
    if seconds < 3600.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.1f} h"
