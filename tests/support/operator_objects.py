"""TrainingJobs and pods as the operator reads them, for its tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tranche.kube.api import names
from tranche.kube.api.resources import TrainingJob
from tranche_operator.reconcile.observed import Observed, PodView

NOW = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
UID = "7d1c6a1e-0001"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "train", "image": "trainer:1"}]}}
ACCEPTED = {
    "type": names.CONDITION_INVALID_TEMPLATE,
    "status": "False",
    "reason": "TemplateAccepted",
    "message": "",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-11-21T11:00:00Z",
}


def window(index: int, attempt: int, state: str = "Open", **changes: Any) -> dict[str, Any]:
    """Return an entry of status.plan.workers."""
    chunks = changes.pop("chunks", [index])
    node = {"site": "edge-a", "node": "edge-a-0", "fallbacks": ["edge-a-1"]}
    return {"index": index, "attempt": attempt, "chunks": chunks, "state": state, **node, **changes}


def server(index: int, attempt: int, **changes: Any) -> dict[str, Any]:
    """Return an entry of status.plan.parameterServers."""
    return {"index": index, "attempt": attempt, "site": "cloud", "node": "cloud-0", "fallbacks": [], **changes}


def plan(
    *windows: dict[str, Any], servers: Sequence[dict[str, Any]] = (), generation: int = 1, **changes: Any
) -> dict[str, Any]:
    """Return a status.plan."""
    entries = {"workers": list(windows), "parameterServers": list(servers)}
    return {"term": 1, "revision": 7, "observedGeneration": generation, **entries, **changes}


def training_job(
    *,
    name: str = "cats",
    uid: str = UID,
    generation: int = 1,
    deleting: bool = False,
    finalizers: Sequence[str] = (),
    chunks: int | None = 4,
    workers: int = 4,
    servers: int = 0,
    chief: bool = False,
    template: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    checked: bool = True,
) -> TrainingJob:
    """Return a TrainingJob whose template the API server has accepted (unless not `checked`)."""
    metadata: dict[str, Any] = {"name": name, "namespace": "lab", "uid": uid, "generation": generation}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T11:59:00Z"
    whole: dict[str, Any] = {"workers": {"maxReplicas": workers, "template": template or TEMPLATE}}
    if chunks is not None:
        whole["data"] = {"chunks": chunks, "epochs": 2, "batchesPerChunk": 10}
    if servers:
        whole["parameterServers"] = {"replicas": servers, "template": template or TEMPLATE}
    if chief:
        whole["chief"] = {"template": template or TEMPLATE}
    state = dict(status or {})
    if checked:
        state["conditions"] = [*state.get("conditions", ()), {**ACCEPTED, "observedGeneration": generation}]
        state["admitted"] = {"generation": generation, "pods": []}
    return TrainingJob.model_validate({"metadata": metadata, "spec": {**whole, **(spec or {})}, "status": state})


def pod(
    index: int,
    attempt: int,
    *,
    role: str = names.ROLE_WORKER,
    phase: str = "Running",
    owner: str | None = UID,
    released: bool = False,
    terminating: bool = False,
    over: bool | None = None,
    gated: bool = False,
) -> PodView:
    """Return a pod of job ``cats``."""
    name = names.pod_name("cats", role, index, attempt)
    return PodView(
        name=name,
        uid=f"uid-{name}-{owner}",
        owner=owner,
        role=role,
        attempt=attempt,
        phase=phase,
        over=phase in ("Succeeded", "Failed") if over is None else over,
        terminating=terminating,
        finalizers=() if released else (names.FINALIZER_LEDGER,),
        gates=("tranche.dev/gang",) if gated else (),
        grace_seconds=45,
    )


def observed(job: TrainingJob | None, *pods: PodView, **more: Any) -> Observed:
    """Return the state of job ``cats`` that reconcile sees."""
    return Observed("lab/cats", job, pods, **more)
