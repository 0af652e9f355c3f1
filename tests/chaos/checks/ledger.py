"""Compare the ledger with what the workers trained. Pure, over the history of jobs and pods.

A worker's word is the end of its training container: the termination message, or all its chunks if it exited with 0
without one. A chief that exited with 0 says that all members are done. The ledger of a job may grow by such words only,
of attempts that were in the plan until then; it must have grown by every one of them before the pod is released; and it
never shrinks, but that a gang which fails starts again as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tranche.kube.api.names import FINALIZER_LEDGER, LABEL_ATTEMPT, LABEL_ROLE, ROLE_CHIEF, ROLE_WORKER
from tranche.kube.convert.pods_and_nodes import Pod, exit_code, is_over, termination_progress
from tranche.kube.convert.training_container import has_terminated
from tranche.model import parse_chunks
from tranche_testcluster import Change

Batches = dict[int, float]
"""By chunk."""


@dataclass(slots=True)
class _Job:
    """A TrainingJob as the history has shown it so far."""

    whole: float
    rigid: bool
    members: range
    """Members of a gang."""
    ledger: Batches = field(default_factory=dict)
    windows: dict[int, list[int]] = field(default_factory=dict)
    """Chunks by attempt, of the plan as it is; those of a chief are all members."""
    trained: dict[int, list[int]] = field(default_factory=dict)
    """Chunks by attempt, of the pods as they were created."""
    words: dict[int, Batches] = field(default_factory=dict)
    """Reports of workers by attempt, if the attempt was in the plan then."""
    over: bool = False


def check_ledger(history: Sequence[Change]) -> Iterator[str]:
    """Yield the entries that are missing from the ledgers or wrong in them."""
    jobs: dict[str, _Job] = {}
    for change in history:
        where = f"revision {change.revision}: {change.key}"
        if change.resource == "tranche.dev/trainingjobs":
            if change.after is None:
                jobs.pop(_uid(change.before), None)
            else:
                yield from _follow(jobs, change.after, where)
        elif change.resource == "pods":
            yield from _hear(jobs, change, where)


def _follow(jobs: dict[str, _Job], resource: Mapping[str, Any], where: str) -> Iterator[str]:
    uid, status = _uid(resource), own_status(resource)
    if uid not in jobs:
        data = resource["spec"].get("data", {})
        whole = float(data["batchesPerChunk"] * data.get("epochs", 1)) if data else 1.0
        jobs[uid] = _Job(whole, not data, range(resource["spec"]["workers"]["maxReplicas"]))
    job, progress = jobs[uid], status.get("progress", {})
    ledger = dict.fromkeys(parse_chunks(progress.get("done", "")), job.whole)
    ledger |= {entry["chunk"]: entry["batches"] for entry in progress.get("running", ())}
    for chunk in sorted(ledger.keys() | job.ledger.keys()):
        before, after = job.ledger.get(chunk, 0.0), ledger.get(chunk, 0.0)
        if after < before and not job.rigid:
            yield f"{where}: chunk {chunk} had {before:g} batches and has {after:g}"
        if after > before and not any(words.get(chunk) == after for words in job.words.values()):
            yield f"{where}: chunk {chunk} has {after:g} batches, and no planned worker said so: {job.words}"
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
    """The status without plan and ledger that a late write has brought from a deleted job of the same name."""
    status = dict(job.get("status", {}))
    if status.get("plan", {}).get("jobUid", _uid(job)) != _uid(job):
        del status["plan"], status["progress"]
    return status


def _hear(jobs: Mapping[str, _Job], change: Change, where: str) -> Iterator[str]:
    resource = change.after or change.before or {}
    meta = resource["metadata"]
    labels = meta.get("labels", {})
    role = labels.get(LABEL_ROLE)
    if role not in (ROLE_WORKER, ROLE_CHIEF) or not meta.get("ownerReferences"):
        return
    job, attempt = jobs.get(meta["ownerReferences"][0]["uid"]), int(labels[LABEL_ATTEMPT])
    if job is None:
        return  # the ledger is complete
    if role == ROLE_WORKER:
        job.trained[attempt] = _chunks(resource)
    pod = msgspec.convert(resource, Pod)
    if (is_over(pod) or has_terminated(pod)) and attempt in job.windows and attempt not in job.words:
        job.words[attempt] = _said(pod, job, job.windows[attempt])
    held = FINALIZER_LEDGER in (change.before or {}).get("metadata", {}).get("finalizers", ())
    holds = change.after is not None and FINALIZER_LEDGER in meta.get("finalizers", ())
    if held and not holds and not job.over and (role == ROLE_CHIEF or not job.rigid):
        for chunk, batches in job.words.get(attempt, {}).items():
            if job.ledger.get(chunk, 0.0) < batches:
                yield f"{where} is released, and its {batches:g} batches of chunk {chunk} are not in the ledger"


def _said(pod: Pod, job: _Job, chunks: Sequence[int]) -> Batches:
    words = termination_progress(pod)
    if words is None:
        return dict.fromkeys(chunks, job.whole) if has_succeeded(pod) else {}
    return {chunk: min(float(batches), job.whole) for chunk, batches in words.items() if chunk in chunks}


def has_succeeded(pod: Pod) -> bool:
    """Whether the training container has exited with 0, while sidecars run on or not."""
    return pod.status.phase == "Succeeded" or (pod.status.phase == "Running" and exit_code(pod) == 0)


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Variables of a pod's containers; only the training container has any."""
    return {e["name"]: e.get("value", "") for container in pod["spec"]["containers"] for e in container.get("env", ())}


def _chunks(pod: Mapping[str, Any]) -> list[int]:
    return [int(chunk) for chunk in environment(pod)["TRANCHE_CHUNKS"].split(",") if chunk]


def _uid(resource: Mapping[str, Any] | None) -> str:
    return str(resource["metadata"]["uid"]) if resource else ""
