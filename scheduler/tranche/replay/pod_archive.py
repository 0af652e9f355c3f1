"""Archive of ended training pods of other schedulers, which Kubernetes deletes."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tranche.kube.api.core_types import ContainerState, ContainerStatus, Metadata, Pod, PodStatus, Terminated
from tranche.kube.api.names import GpuResources
from tranche.kube.convert.pod_state import is_over
from tranche.kube.convert.training_container import training_state
from tranche.replay.jsonl_store import Records
from tranche.replay.pod_history import is_foreign

MAX_PODS = 50_000
"""Maximum number of archived pods; the oldest are dropped first."""
_DECODE = msgspec.json.Decoder(Pod).decode


def decode_watched_pod(raw: bytes) -> Pod:
    """Decode a pod with the fields that a history needs, without annotations and messages.

    Raises:
        msgspec.DecodeError: the JSON is not a pod.
    """
    pod = _DECODE(raw)
    return msgspec.structs.replace(pod, metadata=_slim(pod.metadata))


class PodArchive:
    """Archives each foreign training pod once it has ended or is deleted."""

    def __init__(self, gpu_resources: GpuResources, clock: Callable[[], float], path: Path | None = None) -> None:
        self._gpu_resources = gpu_resources
        self._clock = clock
        self._records = Records(Pod, MAX_PODS, path)
        self._uids = {pod.metadata.uid for pod in self._records.kept}

    def note(self, key: str, old: Pod | None, new: Pod | None) -> None:
        """Record a change of a pod."""
        pod = new or old
        if pod is None or pod.metadata.uid in self._uids or not is_foreign(pod, self._gpu_resources):
            return
        if new is not None and not is_over(new):
            return
        ended = pod if pod.status.phase in ("Succeeded", "Failed") else _set_end(pod, self._clock())
        if training_state(ended).terminated is not None:
            self._uids.add(ended.metadata.uid)
            self._records.add(ended)
            if len(self._uids) > 2 * MAX_PODS:
                self._uids = {archived.metadata.uid for archived in self._records.kept}

    def pods(self) -> Iterator[Pod]:
        """Yield the archived pods, oldest first."""
        yield from self._records.kept

    def contains(self, pod: Pod) -> bool:
        """Return whether the pod is archived."""
        return pod.metadata.uid in self._uids


def _set_end(pod: Pod, now: float) -> Pod:
    """Set the end of a pod that was deleted while it ran to the time of the deletion event."""
    state = training_state(pod)
    if state.running is None:
        return pod
    ended = Terminated(started_at=state.running.started_at, finished_at=datetime.fromtimestamp(now, UTC))
    name = pod.spec.containers[0].name if pod.spec.containers else ""
    status = PodStatus("Failed", container_statuses=(ContainerStatus(name, ContainerState(terminated=ended)),))
    return msgspec.structs.replace(pod, status=status)


def _slim(whole: Metadata) -> Metadata:
    return msgspec.structs.replace(whole, annotations={}, finalizers=())
