"""Plain-text tables in the style of kubectl."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tranche.model import format_chunks

if TYPE_CHECKING:  # the client takes most of a second to import
    from tranche.client.chunk_plan import ChunkPlan
    from tranche.client.job_history import Attempt, History
    from tranche.client.job_usage import JobUsage
    from tranche.client.what_if import WhatIf
    from tranche.web.chunk_plan import Chunk
    from tranche.web.job_views import JobDetail, JobSummary, TimeInterval

GAP = "   "
NONE = "-"
MAX_NAMED = 5
"""Maximum number of pods named in one line."""


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table with headings, without truncation or trailing spaces."""
    lines = [list(heads), *([cell or NONE for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(GAP.join(line).rstrip() for line in padded) + "\n"


def moment(at: datetime | str | None) -> str:
    """Format a time in UTC, such as ``2026-11-22 14:20:00Z``; "" for None."""
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if time else ""


def _with_interval(at: datetime | None, interval: "TimeInterval | None") -> str:
    """Format a planned time, with the interval that contains it with a probability of 80 %."""
    return f"{moment(at)}{_interval(interval)}" if at is not None else ""


def _interval(interval: "TimeInterval | None") -> str:
    if interval is None or interval.earliest == interval.latest:
        return ""
    return f" (80 %: {moment(interval.earliest)} to {moment(interval.latest)})"


def completion_text(job: "JobSummary") -> str:
    """Format the planned completion of a job with its interval; "" if there is none."""
    is_planned = job.planned_completion is not None and job.completed is None
    return f"planned completion {_with_interval(job.planned_completion, job.completion_interval)}" if is_planned else ""


def queue_text(jobs: "Sequence[JobSummary]", namespace: str) -> str:
    """Format the list of jobs; an empty namespace means all namespaces."""
    if not jobs:
        return f"no running or waiting TrainingJobs in {f'namespace {namespace}' if namespace else 'any namespace'}"
    heads = ["NAME", "PHASE", "DONE", "TRAINED", "START", "COMPLETION", "WHY"]
    rows = [[job.name, job.phase, job.chunks, job.trained_share, *_expected(job), job.explanation] for job in jobs]
    if not namespace:
        heads = ["NAMESPACE", *heads]
        rows = [[job.namespace, *row] for job, row in zip(jobs, rows, strict=True)]
    return columns(heads, rows)


def _expected(job: "JobSummary") -> list[str]:
    """Format when a job has started and completed, or when it is planned to."""
    start = job.started if _is_started(job) else job.planned_start
    completion = moment(job.completed) or _with_interval(job.planned_completion, job.completion_interval)
    return [moment(start), completion]


def _is_started(job: "JobSummary") -> bool:
    """Return whether a planned start would only be that of the next worker, or of the oldest one that still runs."""
    return job.started is not None and (job.phase == "Running" or job.completed is not None)


def plan_text(job: "JobDetail") -> str:
    """Format the plan of a job: facts, then windows and helpers."""
    facts = [
        ("job", f"{job.namespace}/{job.name}"),
        ("phase", job.phase),
        ("why", job.explanation),
        ("done", job.chunks),
        ("trained", job.trained_share),
        ("planned start", "" if _is_started(job) else _with_interval(job.planned_start, job.start_interval)),
        ("planned completion", _with_interval(job.planned_completion, job.completion_interval)),
        ("started", moment(job.started)),
        ("completed", moment(job.completed)),
        ("preemptions", str(job.preemptions)),
        ("failures", str(job.failures)),
    ]
    text = "".join(f"{name:<20}{value}\n" for name, value in facts if value)
    helpers = [("ps", pod) for pod in job.parameter_servers] + ([("chief", job.chief)] if job.chief else [])
    rows = [_row(role, pod) for role, pod in [*helpers, *(("worker", pod) for pod in job.windows)]]
    if job.planned_start is not None and job.phase == "Waiting" and not job.windows:
        text += "\nno windows yet: a window opens when a worker starts; --chunks prints the forecast of each chunk\n"
    if rows:
        text += "\n" + columns(["ROLE", "INDEX", "ATTEMPT", "STATE", "SITE", "NODE", "CHUNKS", "START", "END"], rows)
    return text + sites_text(job.sites)


def sites_text(sites: Sequence[dict[str, Any]]) -> str:
    """Format the site usage of a job; "" if there is none."""
    rows = [
        [
            site["site"],
            f"{site.get('gpuSeconds', 0) / 3600:,.2f}",
            str(site.get("chunks", 0)),
            f"{site.get('copiedBytes', 0) / 1e9:,.2f}",
            f"{site.get('inVainBytes', 0) / 1e9:,.2f}",
        ]
        for site in sites
    ]
    return "\n" + columns(["SITE", "GPU-HOURS", "CHUNKS", "COPIED GB", "UNUSED GB"], rows) if rows else ""


def usage_text(rows: "Sequence[JobUsage]") -> str:
    """Format the GPU time of jobs, or of namespaces, in hours, with the sum in the last row."""
    if not rows:
        return "no TrainingJobs\n"
    of_jobs = bool(rows[0].name)
    heads = ["NAMESPACE", *(["NAME", "PHASE", "ENDED"] if of_jobs else ["JOBS"])]
    heads += ["HELD GPU-HOURS", "TRAINED", "LOST", "RUNNING"]
    lines = [
        [
            usage.namespace,
            *([usage.name, usage.phase, moment(usage.completed)] if of_jobs else [str(usage.jobs)]),
            *_hours(
                usage.held_gpu_seconds, usage.trained_gpu_seconds, usage.lost_gpu_seconds, usage.running_gpu_seconds
            ),
        ]
        for usage in rows
    ]
    total = _hours(
        sum(usage.held_gpu_seconds for usage in rows),
        sum(usage.trained_gpu_seconds for usage in rows),
        sum(usage.lost_gpu_seconds for usage in rows),
        sum(usage.running_gpu_seconds for usage in rows),
    )
    lines.append(["total", *(["", "", ""] if of_jobs else [str(sum(usage.jobs for usage in rows))]), *total])
    return columns(heads, lines)


def _hours(*seconds: float) -> list[str]:
    return [f"{value / 3600:,.2f}" for value in seconds]


def usage_csv(rows: "Sequence[JobUsage]") -> str:
    """Format the GPU time of jobs, or of namespaces, as CSV in seconds, with times in RFC 3339."""
    from tranche.client.job_usage import JobUsage

    fields = [name for name in JobUsage.__struct_encode_fields__ if name != "sites"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        values = (getattr(row, name) for name in JobUsage.__struct_fields__ if name != "sites")
        writer.writerow([_cell(value) for value in values])
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def chunks_text(plan: "ChunkPlan") -> str:
    """Format the chunks of a job; consecutive chunks with equal values share a row, such as ``0-11``."""
    if not plan.chunks:
        return (
            f"no chunks of TrainingJob {plan.name} are planned; for the reason, run: kubectl tranche why {plan.name}\n"
        )
    costed = any(chunk.q is not None for chunk in plan.chunks)
    heads = ["CHUNK", "STATE", "SITE", "NODE", "SLOT", "START", "END", *(["Q"] if costed else [])]
    rows: list[tuple[list[int], list[str]]] = []
    for chunk in plan.chunks:
        cells = _chunk(chunk, costed=costed)
        if rows and rows[-1][1] == cells:
            rows[-1][0].append(chunk.chunk)
        else:
            rows.append(([chunk.chunk], cells))
    return columns(heads, [[format_chunks(numbers), *cells] for numbers, cells in rows])


def _chunk(chunk: "Chunk", *, costed: bool) -> list[str]:
    slots = ",".join(map(str, chunk.slots))
    cost = [f"{chunk.q:.6g} s" if chunk.q is not None else ""] if costed else []
    node = chunk.node or ("on demand" if chunk.on_demand else "")
    return [chunk.state, chunk.site, node, slots, moment(chunk.start), moment(chunk.end), *cost]


def whatif_text(result: "WhatIf") -> str:
    """Format the result of a what-if."""
    facts = [
        ("job", f"{result.namespace}/{result.name}"),
        ("planned start", _with_interval(result.planned_start, result.start_interval) or "never"),
        ("planned completion", _with_interval(result.planned_completion, result.completion_interval) or "never"),
        ("why", result.explanation),
        ("policy", result.policy),
    ]
    return "".join(f"{name:<20}{value}\n" for name, value in facts)


def _row(role: str, pod: dict[str, Any]) -> list[str]:
    chunks = ",".join(map(str, pod.get("chunks", ())))
    numbers = [str(pod["index"]), str(pod["attempt"]), pod["state"], pod["site"], pod.get("node", "")]
    return [role, *numbers, chunks, moment(pod.get("start")), moment(pod.get("end"))]


def attempts_text(history: "History") -> str:
    """Format the attempts of a job, then their last log lines."""
    if not history.attempts:
        return f"TrainingJob {history.name} has had no pods yet\n"
    heads = ["ATTEMPT", "POD", "NODE", "STARTED", "ENDED", "OUTCOME", "EXIT", "WHY"]
    text = columns(heads, map(_attempt, history.attempts)) + _left_out(history) + _victims(history)
    text += sites_text(history.sites)
    for attempt in history.attempts:
        if attempt.log:
            text += f"\nlog of {attempt.pod}:\n" + "".join(f"  {line}\n" for line in attempt.log)
    missing: dict[str, list[str]] = {}
    for attempt in history.attempts:
        if attempt.no_log:
            missing.setdefault(attempt.no_log, []).append(attempt.pod)
    return text + "".join(_without_log(pods, reason) for reason, pods in missing.items())


def _left_out(history: "History") -> str:
    """Say how many attempts are not listed; "" if all are."""
    listed, every = len(history.attempts), history.attempt_count
    if every <= listed:
        return ""
    totals = ", ".join(f"{count} {outcome}" for outcome, count in sorted(history.attempt_totals.items()))
    return f"last {listed} of {every} (ended: {totals})\n"


def _victims(history: "History") -> str:
    """List the jobs whose workers were stopped for this one; "" if there are none."""
    if not history.victims:
        return ""
    rows = [[moment(victim["at"]), victim["job"], str(victim["workers"])] for victim in history.victims]
    listed, every = sum(victim["workers"] for victim in history.victims), history.preempted_workers
    remark = f"last {listed} of {every} workers\n" if every > listed else ""
    return "\n" + columns(["PREEMPTED", "JOB", "WORKERS"], rows) + remark


def _without_log(pods: list[str], reason: str) -> str:
    others = f" and {len(pods) - MAX_NAMED} more" if len(pods) > MAX_NAMED else ""
    return f"\nno log of {', '.join(pods[-MAX_NAMED:])}{others}: {reason}\n"


def _attempt(attempt: "Attempt") -> list[str]:
    code = "" if attempt.exit_code is None else str(attempt.exit_code)
    return [
        str(attempt.attempt),
        attempt.pod,
        attempt.node,
        moment(attempt.started),
        moment(attempt.ended),
        attempt.outcome,
        code,
        attempt.why,
    ]


def event_text(history: "History") -> str:
    """Format the events of a job; "" if there are none."""
    rows = [[moment(event.at), event.reason, str(event.count), event.message] for event in history.events]
    return columns(["SEEN", "EVENT", "COUNT", "MESSAGE"], rows) if rows else ""
