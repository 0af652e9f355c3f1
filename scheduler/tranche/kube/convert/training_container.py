"""The training container of a pod: by name, because admission may add containers before it or after it.

The module also has digests of a template and of its requests, which identify the template of a pod that admission has
changed.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from tranche.kube.api.core_types import Container, ContainerState, Pod, ResourceRequirements
from tranche.kube.api.names import (
    ANNOTATION_DEFAULT_CONTAINER,
    ANNOTATION_REQUESTS,
    ANNOTATION_TEMPLATE,
    ANNOTATION_TRAINING_CONTAINER,
)
from tranche.kube.api.spec import TrainingJobSpec
from tranche.model.quantity import parse_quantity


def pod_source(job: TrainingJobSpec, template: Mapping[str, Any]) -> dict[str, Any]:
    """Return what keeps or corrects the start of the pods of a role: their template, and what the job adds to it.

    Args:
        job: Specification of the job, with its checkpoint volume and its options of communication.
        template: Template of the role.
    """
    source = dict(template)
    if job.checkpoint is not None and job.checkpoint.volume is not None:
        source["checkpoint"] = [job.checkpoint.volume, job.checkpoint.resume_from]
    if job.communication is not None:
        source["communication"] = job.communication.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return source


def template_annotations(source: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations by which a pod of this `pod_source` is read after admission; none for a malformed one."""
    try:
        pod = msgspec.convert(source, Pod)
    except msgspec.ValidationError:  # the dry run reports it
        return {}
    name = container_name(pod)
    digests = {ANNOTATION_REQUESTS: requests_digest(pod), ANNOTATION_TEMPLATE: template_digest(source)}
    return digests | ({ANNOTATION_TRAINING_CONTAINER: name} if name else {})


def container_name(pod: Pod) -> str:
    """Return the name of the training container of a pod or template; empty if there is no container.

    It is the container that the operator named, else the one that the template declares as the default container,
    else the first one.
    """
    names = [container.name for container in pod.spec.containers or ()]
    annotations = pod.metadata.annotations
    for key in (ANNOTATION_TRAINING_CONTAINER, ANNOTATION_DEFAULT_CONTAINER):
        if annotations.get(key) in names:
            return annotations[key]
    return names[0] if names else ""


def training_state(pod: Pod) -> ContainerState:
    """Return the state of the training container; without fields if it has none yet."""
    name, statuses = container_name(pod), pod.status.container_statuses
    if not name:  # the pod was read without its containers
        return statuses[0].state if statuses else ContainerState()
    return next((status.state for status in statuses if status.name == name), ContainerState())


def has_terminated(pod: Pod) -> bool:
    """Return whether the training container has terminated and will not be restarted."""
    if training_state(pod).terminated is None:
        return False
    name = container_name(pod)
    own = next((one for one in pod.spec.containers or () if one.name == name), Container())
    return own.restart_policy in (None, "Never") and not own.restart_policy_rules


def others_remain(pod: Pod) -> bool:
    """Return whether containers besides the training container run or are still to start.

    Between the end of the last container and the pod's phase Succeeded or Failed, none does for a moment.
    """
    return others_go_on(pod) or any(status.state.running for status in pod.status.init_container_statuses)


def others_go_on(pod: Pod) -> bool:
    """Return whether other containers keep the pod running after the training container.

    Restartable init containers do not: the kubelet stops them when all other containers have ended.
    """
    own = training_state(pod)
    others = (status.state for status in pod.status.container_statuses if status.state is not own)
    return any(state.terminated is None for state in others)


def requests_digest(pod: Pod) -> str:
    """Return a digest of the resources that a template requests, equal for equal quantities."""
    spec = pod.spec
    containers = [*spec.init_containers, *(spec.containers or ())]
    parts = [[one.name, one.restart_policy, *_amounts(one.resources)] for one in containers]
    whole = [parts, _amounts(spec.resources or ResourceRequirements()), _amounts(ResourceRequirements(spec.overhead))]
    return blake2b(msgspec.json.encode(whole), digest_size=8).hexdigest()


def template_digest(source: Mapping[str, Any]) -> str:
    """Return a digest of a `pod_source` as the specification has it."""
    return blake2b(msgspec.json.encode(source, order="deterministic"), digest_size=8).hexdigest()


def is_from_other(pod: Pod, source: Mapping[str, Any]) -> bool:
    """Return whether the pod was created from another `pod_source`; False if the pod does not say."""
    known = pod.metadata.annotations.get(ANNOTATION_TEMPLATE)
    return known is not None and known != template_digest(source)


def is_from(pod: Pod, template: Mapping[str, Any]) -> bool | None:
    """Return whether the pod was created from a template with these requests; None if the pod does not say.

    Raises:
        ValueError: it is not a PodTemplateSpec.
    """
    known = pod.metadata.annotations.get(ANNOTATION_REQUESTS)
    return None if known is None else known == requests_digest(msgspec.convert(template, Pod))


def _amounts(asked: ResourceRequirements) -> list[tuple[str, str]]:
    return sorted((name, _canonical(asked.request(name))) for name in {**asked.limits, **asked.requests})


def _canonical(quantity: str | float) -> str:
    try:
        return str(parse_quantity(quantity).normalize())
    except ValueError:  # the dry run reports it
        return str(quantity)
