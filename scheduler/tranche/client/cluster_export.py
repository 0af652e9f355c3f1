"""Cluster snapshot for ``tranche simulate`` and ``tranche replay``, without environment variables or messages."""

import time
from typing import Any

import msgspec

from tranche.client.api_session import API, Session
from tranche.client.errors import ClusterError
from tranche.kube.api.core_types import Metadata, NodeObject, Pod
from tranche.kube.api.names import GpuResources
from tranche.kube.api.timestamp import rfc3339
from tranche.replay.export import ANNOTATION_EXPORTED
from tranche.replay.pod_history import is_foreign

_CORE = "/api/v1"
_OMITTED_FIELDS = ("env", "envFrom", "volumeMounts", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_OMITTED_METADATA = ("managedFields", "annotations", "finalizers")


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
    exported = {ANNOTATION_EXPORTED: rfc3339(time.time())}
    return {"apiVersion": "v1", "kind": "List", "metadata": {"annotations": exported}, "items": items}, notes


def _item(raw: bytes, kind: str, gpu_resources: GpuResources) -> dict[str, Any] | None:
    """Reduce an object to the fields that the simulator reads; None if it does not use the object."""
    if kind == "pods":
        pod = msgspec.json.decode(raw, type=Pod)
        return _pod(pod) if is_foreign(pod, gpu_resources) else None
    if kind == "nodes":
        node = msgspec.json.decode(raw, type=NodeObject)
        slim = msgspec.structs.replace(node, metadata=_metadata(node.metadata))
        return {"apiVersion": "v1", "kind": "Node", **_plain(slim)}
    whole: dict[str, Any] = msgspec.json.decode(raw)
    whole["kind"] = "TrainingJob" if kind == "TrainingJobs" else "Site"
    for name in _OMITTED_METADATA:
        whole["metadata"].pop(name, None)
    progress = (whole.get("status") or {}).get("progress") or {}
    progress.pop("history", None)  # it has log lines
    for attempt in progress.get("attempts") or ():
        attempt.pop("why", None)  # perhaps a message of a kubelet
    return dict(_without_omitted(whole))


def _pod(pod: Pod) -> dict[str, Any]:
    slim = msgspec.structs.replace(pod, metadata=_metadata(pod.metadata))
    item = {"apiVersion": "v1", "kind": "Pod", **_plain(slim)}
    for container in item["status"]["containerStatuses"]:
        (container["state"].get("terminated") or {}).pop("message", None)
    item["status"].pop("message", None)
    return item


def _metadata(whole: Metadata) -> Metadata:
    return msgspec.structs.replace(whole, annotations={}, finalizers=())


def _plain(value: Any) -> dict[str, Any]:
    """Convert a struct to plain values as in the API, without absent fields."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain


def _without_omitted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_omitted(part) for key, part in value.items() if key not in _OMITTED_FIELDS}
    return [_without_omitted(part) for part in value] if isinstance(value, list) else value
