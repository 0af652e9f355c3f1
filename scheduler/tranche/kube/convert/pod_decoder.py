"""Pod decoding for the watch cache.

Equal parts are stored once, because a cluster may have tens of thousands of pods.
"""

from sys import intern
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tranche.kube.api.core_types import Container, ContainerStatus, Metadata, Pod, PodSpec, PodStatus
from tranche.kube.api.names import ANNOTATION_REPORT_CA, LABEL_JOB
from tranche.kube.convert.pod_shape import is_resized

T = TypeVar("T")
_POD = msgspec.json.Decoder(Pod)
_encode = msgspec.json.Encoder().encode
_CAPACITY = 10_000
"""Maximum number of distinct parts in the cache; far more than a cluster has pod templates."""
_parts: dict[bytes, object] = {}
_EMPTY: dict[str, str] = {}
"""Stands for fields that are not kept, as one object: without it each pod would have an empty dict for each of them."""


def decode_pod(raw: bytes) -> Pod:
    """Decode a pod for the watch cache.

    Of a foreign pod, keep only what planning for its node needs: where it is bound or nominated, its requests and
    priority, its phase and whether it is being deleted. The requests in the statuses of containers are kept only if
    they differ from the specified ones.

    Raises:
        msgspec.DecodeError: the JSON is not a pod.
    """
    pod = _POD.decode(raw)
    resized = is_resized(pod)
    if LABEL_JOB in pod.metadata.labels:
        containers = shared(pod.spec.containers or ())
        tolerations = shared(pod.spec.tolerations)
        volumes = shared(pod.spec.volumes)
        spec = replace(pod.spec, containers=containers, tolerations=tolerations, volumes=volumes)
        annotations = {key: text for key, text in pod.metadata.annotations.items() if key != ANNOTATION_REPORT_CA}
        owners = shared(pod.metadata.owner_references)
        metadata = replace(pod.metadata, owner_references=owners, annotations=annotations)
        return Pod(metadata, spec, pod.status if resized else _without_requests(pod.status))
    status = PodStatus(phase=pod.status.phase, nominated_node_name=pod.status.nominated_node_name)
    if resized:
        status = replace(
            status,
            conditions=tuple(one for one in pod.status.conditions if one.type == "PodResizePending"),
            container_statuses=tuple(map(_requests_only, pod.status.container_statuses)),
            init_container_statuses=tuple(map(_requests_only, pod.status.init_container_statuses)),
        )
    return Pod(_metadata(pod.metadata), _spec(pod.spec, named=resized), shared(status))


def _without_requests(whole: PodStatus) -> PodStatus:
    def without(one: ContainerStatus) -> ContainerStatus:
        return replace(one, allocated_resources=None, resources=None)

    statuses, init_statuses = whole.container_statuses, whole.init_container_statuses
    if not any(one.allocated_resources or one.resources for one in (*statuses, *init_statuses)):
        return whole
    return replace(
        whole,
        container_statuses=tuple(map(without, statuses)),
        init_container_statuses=tuple(map(without, init_statuses)),
    )


def _requests_only(whole: ContainerStatus) -> ContainerStatus:
    return ContainerStatus(whole.name, allocated_resources=whole.allocated_resources, resources=whole.resources)


def _metadata(whole: Metadata) -> Metadata:
    return Metadata(
        name=whole.name,
        namespace=intern(whole.namespace),
        uid=whole.uid,
        labels=_EMPTY,
        annotations=_EMPTY,
        deletion_timestamp=whole.deletion_timestamp,
        deletion_grace_period_seconds=whole.deletion_grace_period_seconds,
    )


def _spec(whole: PodSpec, *, named: bool) -> PodSpec:
    """Return what a foreign pod takes; containers keep their names only if their statuses are kept."""
    return PodSpec(
        node_name=intern(whole.node_name),
        node_selector=_EMPTY,
        scheduler_name=intern(whole.scheduler_name),
        containers=shared(tuple(_asking(one, named=named) for one in whole.containers or ())),
        init_containers=shared(tuple(_asking(one, named=named) for one in whole.init_containers)),
        overhead=shared(whole.overhead),
        resources=shared(whole.resources),
        priority=whole.priority,
    )


def _asking(container: Container, *, named: bool) -> Container:
    name = container.name if named else ""
    return Container(name, resources=container.resources, restart_policy=container.restart_policy)


def shared(part: T) -> T:
    """Return the cached equal part, or add this one to the cache. Callers must not modify it."""
    key = type(part).__name__.encode() + _encode(part)
    known = _parts.get(key)
    if known is None:
        if len(_parts) >= _CAPACITY:
            _parts.clear()
        _parts[key] = known = part
    return known  # type: ignore[return-value]
