"""Compare the ledger with what the workers trained. Pure, over the history of jobs and pods.

The report of a worker is the termination message of its training container; without a message, exit code 0 reports all
chunks as done. Exit code 0 of a chief reports all members as done. The ledger of a job may grow only by reports of
attempts that the plan contains. It must contain the report of a pod before the pod is released. It never shrinks,
except for a gang, which starts again as a whole after a failure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import FINALIZER_LEDGER, LABEL_ATTEMPT, LABEL_ROLE, ROLE_CHIEF, ROLE_WORKER
from tranche.kube.convert.pod_outcome import outcome
from tranche.kube.convert.pod_state import exit_code, is_over, termination_progress
from tranche.kube.convert.training_container import has_terminated
from tranche.model import parse_chunks
from tranche_testcluster import Change

Batches = dict[int, float]
"""Numbers of mini-batches by chunk."""


@dataclass(slots=True)
class _Job:
    """State of a TrainingJob at one revision of the history."""

    batches_per_chunk: float
    is_gang: bool
    members: range
    """Members of a gang."""
    ledger: Batches = field(default_factory=dict)
    windows: dict[int, list[int]] = field(default_factory=dict)
    """Chunks of the windows in the present plan, by attempt; a chief has all members."""
    trained: dict[int, list[int]] = field(default_factory=dict)
    """Chunks with which the pods were created, by attempt."""
    reports: dict[int, Batches] = field(default_factory=dict)
    """Reports of workers whose attempt was in the plan, by attempt."""
    over: bool = False


def check_ledger(history: Sequence[Change]) -> Iterator[str]:
    """Yield entries that a ledger lacks or that no report explains."""
    jobs: dict[str, _Job] = {}
    for change in history:
        where = f"revision {change.revision}: {change.key}"
        if change.resource == "tranche.dev/trainingjobs":
            if change.after is None:
                jobs.pop(_uid(change.before), None)
            else:
                yield from _follow_job(jobs, change.after, where)
        elif change.resource == "pods":
            yield from _follow_pod(jobs, change, where)


def _follow_job(jobs: dict[str, _Job], resource: Mapping[str, Any], where: str) -> Iterator[str]:
    uid, status = _uid(resource), own_status(resource)
    if uid not in jobs:
        data = resource["spec"].get("data", {})
        per_chunk = float(data["batchesPerChunk"] * data.get("epochs", 1)) if data else 1.0
        jobs[uid] = _Job(per_chunk, not data, range(resource["spec"]["workers"]["maxReplicas"]))
    job, progress = jobs[uid], status.get("progress", {})
    ledger = dict.fromkeys(parse_chunks(progress.get("done", "")), job.batches_per_chunk)
    ledger |= {entry["chunk"]: entry["batches"] for entry in progress.get("running", ())}
    for chunk in sorted(ledger.keys() | job.ledger.keys()):
        before, after = job.ledger.get(chunk, 0.0), ledger.get(chunk, 0.0)
        if after < before and not job.is_gang:
            yield f"{where}: chunk {chunk} had {before:g} batches and has {after:g}"
        if after > before and not any(report.get(chunk) == after for report in job.reports.values()):
            yield f"{where}: chunk {chunk} has {after:g} batches, and no planned worker reported so: {job.reports}"
    job.ledger = ledger
    plan = status.get("plan", {})
    job.windows = {window["attempt"]: window["chunks"] for window in plan.get("workers", ())}
    for attempt, chunks in job.windows.items():
        if job.trained.get(attempt, chunks) != chunks:
            yield f"{where}: attempt {attempt} is planned for chunks {chunks} and trains {job.trained[attempt]}"
    if "chief" in plan:
        job.windows[plan["chief"]["attempt"]] = list(job.members)
    job.over = status.get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in resource["metadata"]


def own_status(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a job without the plan and ledger of a deleted job of the same name, written late."""
    status = dict(job.get("status", {}))
    if status.get("plan", {}).get("jobUid", _uid(job)) != _uid(job):
        del status["plan"], status["progress"]
    return status


def plan_entries(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the windows of the workers, the parameter servers and the chief of a plan."""
    yield from plan.get("workers", ())
    yield from plan.get("parameterServers", ())
    if plan.get("chief"):
        yield plan["chief"]


def time_of_write(thing: Mapping[str, Any] | None) -> float:
    """Return the time of the last write of an object, in whole seconds; 0 if it is unknown."""
    fields = thing["metadata"].get("managedFields", ()) if thing else ()
    return max((datetime.fromisoformat(one["time"]).timestamp() for one in fields if "time" in one), default=0.0)


def _follow_pod(jobs: Mapping[str, _Job], change: Change, where: str) -> Iterator[str]:
    resource = change.after or change.before or {}
    meta = resource["metadata"]
    labels = meta.get("labels", {})
    role = labels.get(LABEL_ROLE)
    if role not in (ROLE_WORKER, ROLE_CHIEF) or not meta.get("ownerReferences"):
        return
    job, attempt = jobs.get(meta["ownerReferences"][0]["uid"]), int(labels[LABEL_ATTEMPT])
    if job is None:
        return  # its deletion ended the ledger
    if role == ROLE_WORKER:
        job.trained[attempt] = _chunks(resource)
    pod = msgspec.convert(resource, Pod)
    if (is_over(pod) or has_terminated(pod)) and attempt in job.windows and attempt not in job.reports:
        job.reports[attempt] = _report_of(pod, job, job.windows[attempt])
    held = FINALIZER_LEDGER in (change.before or {}).get("metadata", {}).get("finalizers", ())
    holds = change.after is not None and FINALIZER_LEDGER in meta.get("finalizers", ())
    if held and not holds and not job.over and (role == ROLE_CHIEF or not job.is_gang):
        if termination_progress(pod) is None and outcome(pod) == "Preempted":
            return  # it ended about when it was stopped, so that its chunks may be trained again
        for chunk, batches in job.reports.get(attempt, {}).items():
            if job.ledger.get(chunk, 0.0) < batches:
                yield f"{where} is released, and its {batches:g} batches of chunk {chunk} are not in the ledger"


def _report_of(pod: Pod, job: _Job, chunks: Sequence[int]) -> Batches:
    progress = termination_progress(pod)
    if progress is None:
        return dict.fromkeys(chunks, job.batches_per_chunk) if has_succeeded(pod) else {}
    return {chunk: min(float(batches), job.batches_per_chunk) for chunk, batches in progress.items() if chunk in chunks}


def has_succeeded(pod: Pod) -> bool:
    """Return whether the training container has exited with 0; sidecars may still run."""
    return pod.status.phase == "Succeeded" or (pod.status.phase == "Running" and exit_code(pod) == 0)


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of the training container, the only one that has any."""
    return {e["name"]: e.get("value", "") for container in pod["spec"]["containers"] for e in container.get("env", ())}


def _chunks(pod: Mapping[str, Any]) -> list[int]:
    return [int(chunk) for chunk in environment(pod)["TRANCHE_CHUNKS"].split(",") if chunk]


def _uid(resource: Mapping[str, Any] | None) -> str:
    return str(resource["metadata"]["uid"]) if resource else ""
