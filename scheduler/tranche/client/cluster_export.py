"""Cluster snapshot for ``tranche simulate`` and ``tranche replay``, without environment variables or messages."""

import time
from typing import Any

import msgspec

from tranche.client.api_session import API, Session
from tranche.client.errors import ClusterError
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import GpuResources
from tranche.kube.api.timestamp import rfc3339
from tranche.replay.export import ANNOTATION_EXPORTED, ANNOTATION_GPU_RESOURCES
from tranche.replay.pod_history import is_foreign

_CORE = "/api/v1"
_OMITTED_FIELDS = frozenset(
    {
        *("env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"),
        *("volumes", "volumeMounts", "volumeDevices", "annotations", "managedFields", "finalizers"),
        # Messages of kubelets, webhooks and kube-scheduler, of which some name other objects, and the end of logs.
        *("message", "why", "explanation", "history"),
    }
)


async def snapshot(session: Session, namespace: str, gpu_resources: GpuResources) -> tuple[dict[str, Any], list[str]]:
    """Read TrainingJobs, Sites, nodes, and training pods of other schedulers as a List.

    Args:
        session: Session with the cluster.
        namespace: Namespace of jobs and pods; empty: all namespaces.
        gpu_resources: Resource names of the GPUs.

    Returns:
        The List, and one line for each kind that cannot be read and is omitted.

    Raises:
        ClusterError: neither jobs nor pods can be read.
    """
    place = f"/namespaces/{namespace}" if namespace else ""
    notes: list[str] = []
    items: list[dict[str, Any]] = []
    readable = 0
    for path, kind in (
        (f"{API}{place}/trainingjobs", "TrainingJobs"),
        (f"{_CORE}{place}/pods", "pods"),
        (f"{_CORE}/nodes", "nodes"),
        (f"{API}/sites", "Sites"),
    ):
        try:
            objects = await session.items(path, kind)
        except ClusterError as error:
            notes.append(f"left out: {error}")
            continue
        readable += kind in ("TrainingJobs", "pods")
        items += [item for raw in objects if (item := _item(raw, kind, gpu_resources)) is not None]
    if not readable:
        raise ClusterError(notes[0].removeprefix("left out: "))
    exported = {ANNOTATION_EXPORTED: rfc3339(time.time()), ANNOTATION_GPU_RESOURCES: ",".join(gpu_resources)}
    return {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": exported}, "items": items}, notes


def _item(raw: bytes, kind: str, gpu_resources: GpuResources) -> dict[str, Any] | None:
    """Reduce an object to the fields that the simulator reads; None if it does not use the object."""
    if kind == "pods":
        pod = msgspec.json.decode(raw, type=Pod)
        return {"apiVersion": "v1", "kind": "Pod", **_reduced(_plain(pod))} if is_foreign(pod, gpu_resources) else None
    if kind == "nodes":
        node = msgspec.json.decode(raw, type=NodeObject)
        return {"apiVersion": "v1", "kind": "Node", **_reduced(_plain(node))}
    whole: dict[str, Any] = msgspec.json.decode(raw)
    whole["kind"] = "TrainingJob" if kind == "TrainingJobs" else "Site"
    return dict(_reduced(whole))


def _plain(value: Any) -> dict[str, Any]:
    """Convert a struct to plain values as in the API, without absent fields."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain


def _reduced(value: Any) -> Any:
    """Return the value without the fields that may be confidential, at any depth.

    Of a checkpoint volume only the kind of its source is kept, which says whether other nodes can mount it.
    """
    if isinstance(value, dict):
        kept = {key: _reduced(part) for key, part in value.items() if key not in _OMITTED_FIELDS}
        if isinstance(kept.get("volume"), dict):
            kept["volume"] = {source: {} for source in kept["volume"]}
        return kept
    return [_reduced(part) for part in value] if isinstance(value, list) else value
