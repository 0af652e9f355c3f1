"""Container starts: whether any container of a pod has started, and why the containers of a bound pod do not start.

The kubelet reports a container that does not start in ``containerStatuses[].state.waiting``. Failed mounts and networks
are only in events; such a container waits with the reason ``ContainerCreating``.
"""

from enum import StrEnum
from typing import NamedTuple

from tranche.kube.api.condition import find_condition
from tranche.kube.api.core_types import ContainerState, Pod, Terminated

UNKNOWN_STATUS = "ContainerStatusUnknown"
"""Reason of a terminated container that the kubelet did not find; it may never have existed."""
_START_ERROR = "StartError"
"""Reason of a container that the container runtime could not start."""
_INTERRUPTED = ("context canceled: unknown", "context deadline exceeded: unknown")
"""Ends of its messages if the kubelet ended, or waited no longer, while the runtime started the container."""
_PULLING = "its images are being pulled, or its containers created"
LONGEST_MESSAGE = 400
"""Longest message of the kubelet in characters; longer ones are cut."""


class StartProblem(StrEnum):
    """Kind of reason why the containers of a bound pod do not start; each kind has a time limit."""

    CONFIGURATION = "Configuration"
    """Nothing changes without a change of the pod's template or of an object that it names."""
    IMAGE_PULL = "ImagePull"
    """The image cannot be pulled now; the kubelet tries again."""
    CREATION = "Creation"
    """The kubelet reports no reason: an image is being pulled, or a volume or the network is not ready."""


_CONFIGURATION = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "CreatePodSandboxError",
        "ErrImageNeverPull",
        "InvalidImageName",
        "PostStartHookError",
        "PreCreateHookError",
        "PreStartHookError",
        "RunContainerError",
    }
)
_IMAGE_PULL = frozenset(
    {"ErrImagePull", "ImageInspectError", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed"}
)


class StartDelay(NamedTuple):
    """Reason why the containers of a bound pod have not started."""

    kind: StartProblem
    reason: str
    """Reason of the kubelet, in CamelCase."""
    message: str = ""

    @property
    def text(self) -> str:
        """Reason and message."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


def any_started(pod: Pod) -> bool:
    """Return whether any container or init container of the pod has started."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(_has_started(status.state) for status in statuses)


def _has_started(state: ContainerState) -> bool:
    ended = state.terminated
    if ended is None:
        return state.running is not None
    return (ended.started_at is not None or ended.reason != UNKNOWN_STATUS) and not is_start_interrupted(ended)


def is_start_interrupted(ended: Terminated) -> bool:
    """Return whether the kubelet ended, or waited no longer, while the container runtime started the container.

    A command that does not exist has the same reason and exit code, and another message.
    """
    return ended.reason == _START_ERROR and ended.message.endswith(_INTERRUPTED)


def start_delay(pod: Pod) -> StartDelay | None:
    """Return why the containers of a bound pod have not started; None if one has started, or the pod has no node.

    While an init container runs or after one has ended, only a reason that the kubelet reports counts, because an init
    container may take any time.
    """
    if not pod.spec.node_name or pod.status.phase not in ("", "Pending", "Unknown"):
        return None
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = [status.state.waiting for status in statuses if status.state.waiting is not None]
    for kind, reasons in ((StartProblem.CONFIGURATION, _CONFIGURATION), (StartProblem.IMAGE_PULL, _IMAGE_PULL)):
        for wait in waits:
            if wait.reason in reasons:
                return StartDelay(kind, wait.reason, wait.message[:LONGEST_MESSAGE])
    if any_started(pod):
        return None
    named = next((wait for wait in waits if wait.reason), None)
    reason, message = ("ContainerCreating", "") if named is None else (named.reason, named.message[:LONGEST_MESSAGE])
    return StartDelay(StartProblem.CREATION, reason, message or _what_is_missing(pod))


def _what_is_missing(pod: Pod) -> str:
    """Return what the containers of a pod wait for, as far as its condition says so; volumes and network come first."""
    found = find_condition(pod.status.conditions, "PodReadyToStartContainers")
    if found is None:
        return ""
    return _PULLING if found.status == "True" else "its volumes or its network are not ready"
