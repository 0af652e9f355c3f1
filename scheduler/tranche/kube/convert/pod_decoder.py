"""Pod decoding for the watch cache.

Equal parts are stored once, because a cluster may have tens of thousands of pods.
"""

from sys import intern
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tranche.kube.api.core_types import Container, ContainerStatus, Metadata, Pod, PodSpec, PodStatus
from tranche.kube.api.names import (
    ANNOTATION_DEFAULT_CONTAINER,
    ANNOTATION_PLAN,
    ANNOTATION_REQUESTS,
    ANNOTATION_TEMPLATE,
    ANNOTATION_TRAINING_CONTAINER,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
)
from tranche.kube.convert.pod_shape import is_resized

T = TypeVar("T")
_POD = msgspec.json.Decoder(Pod)
_encode = msgspec.json.Encoder().encode
_CAPACITY = 10_000
"""Maximum number of distinct parts in the cache; far more than a cluster has pod templates."""
_LABELS = (LABEL_JOB, LABEL_ROLE, LABEL_INDEX, LABEL_ATTEMPT)
_ANNOTATIONS = (
    ANNOTATION_DEFAULT_CONTAINER,
    ANNOTATION_PLAN,
    ANNOTATION_REQUESTS,
    ANNOTATION_TEMPLATE,
    ANNOTATION_TRAINING_CONTAINER,
)
_LONGEST_VALUE = 63
"""Maximum length of the value of a label, of the name of a container, and so of a kept annotation."""
_parts: dict[bytes, object] = {}
_EMPTY: dict[str, str] = {}
"""Stands for fields that are not kept, as one object: without it each pod would have an empty dict for each of them."""


def decode_pod(raw: bytes) -> Pod:
    """Decode a pod for the watch cache.

    Of a foreign pod, keep only what planning for its node needs: where it is bound or nominated, its requests and
    priority, its phase and whether it is being deleted. The requests in the statuses of containers are kept only if
    they differ from the specified ones. Of the labels and annotations of other pods, keep those that say what the pod
    is: a template may have 256 KiB of annotations, which each pod of the job has.

    Raises:
        msgspec.DecodeError: the JSON is not a pod.
    """
    pod = _POD.decode(raw)
    resized = is_resized(pod)
    if LABEL_JOB in pod.metadata.labels:
        containers = shared(pod.spec.containers or ())
        tolerations = shared(pod.spec.tolerations)
        volumes = shared(pod.spec.volumes)
        selector = shared(pod.spec.node_selector)
        spec = replace(
            pod.spec, containers=containers, tolerations=tolerations, volumes=volumes, node_selector=selector
        )
        metadata = replace(
            pod.metadata,
            owner_references=shared(pod.metadata.owner_references),
            labels=_chosen(pod.metadata.labels, _LABELS),
            annotations=_chosen(pod.metadata.annotations, _ANNOTATIONS),
        )
        return Pod(metadata, spec, pod.status if resized else _without_requests(pod.status))
    status = PodStatus(phase=pod.status.phase, nominated_node_name=pod.status.nominated_node_name)
    if resized:
        status = replace(
            status,
            conditions=tuple(one for one in pod.status.conditions if one.type == "PodResizePending"),
            container_statuses=tuple(map(_requests_only, pod.status.container_statuses)),
            init_container_statuses=tuple(map(_requests_only, pod.status.init_container_statuses)),
            allocated_resources=pod.status.allocated_resources,
            resources=pod.status.resources,
        )
    return Pod(_metadata(pod.metadata), _spec(pod.spec, named=resized), shared(status))


def _chosen(texts: dict[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: texts[key] for key in keys if key in texts and len(texts[key]) <= _LONGEST_VALUE}


def _without_requests(whole: PodStatus) -> PodStatus:
    def without(one: ContainerStatus) -> ContainerStatus:
        return replace(one, allocated_resources=None, resources=None)

    statuses, init_statuses = whole.container_statuses, whole.init_container_statuses
    known = [whole.allocated_resources or whole.resources]
    known += [one.allocated_resources or one.resources for one in (*statuses, *init_statuses)]
    if not any(known):
        return whole
    return replace(
        whole,
        container_statuses=tuple(map(without, statuses)),
        init_container_statuses=tuple(map(without, init_statuses)),
        allocated_resources=None,
        resources=None,
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
