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
    known = datetime.fromisoformat(at) if isinstance(at, str) else at
    return known.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if known else ""


def _with_interval(at: datetime | None, interval: "TimeInterval | None") -> str:
    """Format a planned time, with the interval that contains it with a probability of 80 %."""
    return f"{moment(at)}{_interval(interval)}" if at is not None else ""


def _interval(interval: "TimeInterval | None") -> str:
    if interval is None or interval.earliest == interval.latest:
        return ""
    return f" (80 %: {moment(interval.earliest)} to {moment(interval.latest)})"


def completion_text(job: "JobSummary") -> str:
    """Format the planned completion of a job with its interval; "" if there is none."""
    known = job.planned_completion is not None and job.completed is None
    return f"planned completion {_with_interval(job.planned_completion, job.completion_interval)}" if known else ""


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
    return [moment(job.planned_start), _with_interval(job.planned_completion, job.completion_interval)]


def plan_text(job: "JobDetail") -> str:
    """Format the plan of a job: facts, then windows and helpers."""
    facts = [
        ("job", f"{job.namespace}/{job.name}"),
        ("phase", job.phase),
        ("why", job.explanation),
        ("done", job.chunks),
        ("trained", job.trained_share),
        ("planned start", _with_interval(job.planned_start, job.start_interval)),
        ("planned completion", _with_interval(job.planned_completion, job.completion_interval)),
        ("started", moment(job.started)),
        ("completed", moment(job.completed)),
        ("preemptions", str(job.preemptions)),
        ("failures", str(job.failures)),
    ]
    text = "".join(f"{name:<20}{value}\n" for name, value in facts if value)
    helpers = [("ps", one) for one in job.parameter_servers] + ([("chief", job.chief)] if job.chief else [])
    rows = [_row(role, one) for role, one in [*helpers, *(("worker", one) for one in job.windows)]]
    if job.planned_start is not None and job.phase == "Waiting" and not job.windows:
        text += "\nno windows yet: a window opens when a worker starts; --chunks prints the forecast of each chunk\n"
    if rows:
        text += "\n" + columns(["ROLE", "INDEX", "ATTEMPT", "STATE", "SITE", "NODE", "CHUNKS", "START", "END"], rows)
    return text + sites_text(job.sites)


def sites_text(sites: Sequence[dict[str, Any]]) -> str:
    """Format the site usage of a job; "" if there is none."""
    rows = [
        [
            one["site"],
            f"{one.get('gpuSeconds', 0) / 3600:,.2f}",
            str(one.get("chunks", 0)),
            f"{one.get('copiedBytes', 0) / 1e9:,.2f}",
            f"{one.get('inVainBytes', 0) / 1e9:,.2f}",
        ]
        for one in sites
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
            one.namespace,
            *([one.name, one.phase, moment(one.completed)] if of_jobs else [str(one.jobs)]),
            *_hours(one.held_gpu_seconds, one.trained_gpu_seconds, one.lost_gpu_seconds, one.running_gpu_seconds),
        ]
        for one in rows
    ]
    total = _hours(
        sum(one.held_gpu_seconds for one in rows),
        sum(one.trained_gpu_seconds for one in rows),
        sum(one.lost_gpu_seconds for one in rows),
        sum(one.running_gpu_seconds for one in rows),
    )
    lines.append(["total", *(["", "", ""] if of_jobs else [str(sum(one.jobs for one in rows))]), *total])
    return columns(heads, lines)


def _hours(*seconds: float) -> list[str]:
    return [f"{one / 3600:,.2f}" for one in seconds]


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
    costed = any(one.q is not None for one in plan.chunks)
    heads = ["CHUNK", "STATE", "SITE", "NODE", "SLOT", "START", "END", *(["Q"] if costed else [])]
    rows: list[tuple[list[int], list[str]]] = []
    for one in plan.chunks:
        cells = _chunk(one, costed=costed)
        if rows and rows[-1][1] == cells:
            rows[-1][0].append(one.chunk)
        else:
            rows.append(([one.chunk], cells))
    return columns(heads, [[format_chunks(numbers), *cells] for numbers, cells in rows])


def _chunk(one: "Chunk", *, costed: bool) -> list[str]:
    slots = ",".join(map(str, one.slots))
    cost = [f"{one.q:.6g} s" if one.q is not None else ""] if costed else []
    node = one.node or ("on demand" if one.on_demand else "")
    return [one.state, one.site, node, slots, moment(one.start), moment(one.end), *cost]


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


def _row(role: str, one: dict[str, Any]) -> list[str]:
    chunks = ",".join(map(str, one.get("chunks", ())))
    numbers = [str(one["index"]), str(one["attempt"]), one["state"], one["site"], one.get("node", "")]
    return [role, *numbers, chunks, moment(one.get("start")), moment(one.get("end"))]


def attempts_text(history: "History") -> str:
    """Format the attempts of a job, then their last log lines."""
    if not history.attempts:
        return f"TrainingJob {history.name} has had no pods yet\n"
    heads = ["ATTEMPT", "POD", "NODE", "STARTED", "ENDED", "OUTCOME", "EXIT", "WHY"]
    text = columns(heads, map(_attempt, history.attempts)) + _left_out(history) + _victims(history)
    text += sites_text(history.sites)
    for one in history.attempts:
        if one.log:
            text += f"\nlog of {one.pod}:\n" + "".join(f"  {line}\n" for line in one.log)
    missing: dict[str, list[str]] = {}
    for one in history.attempts:
        if one.no_log:
            missing.setdefault(one.no_log, []).append(one.pod)
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
    rows = [[moment(one["at"]), one["job"], str(one["workers"])] for one in history.victims]
    listed, every = sum(one["workers"] for one in history.victims), history.preempted_workers
    more = f"last {listed} of {every} workers\n" if every > listed else ""
    return "\n" + columns(["PREEMPTED", "JOB", "WORKERS"], rows) + more


def _without_log(pods: list[str], reason: str) -> str:
    more = f" and {len(pods) - MAX_NAMED} more" if len(pods) > MAX_NAMED else ""
    return f"\nno log of {', '.join(pods[-MAX_NAMED:])}{more}: {reason}\n"


def _attempt(one: "Attempt") -> list[str]:
    code = "" if one.exit_code is None else str(one.exit_code)
    return [str(one.attempt), one.pod, one.node, moment(one.started), moment(one.ended), one.outcome, code, one.why]


def event_text(history: "History") -> str:
    """Format the events of a job; "" if there are none."""
    rows = [[moment(one.at), one.reason, str(one.count), one.message] for one in history.events]
    return columns(["SEEN", "EVENT", "COUNT", "MESSAGE"], rows) if rows else ""
