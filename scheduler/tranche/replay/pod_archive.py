"""Pods of other schedulers that have trained, after Kubernetes has forgotten them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tranche.kube.api.core_types import ContainerState, ContainerStatus, Metadata, Pod, PodStatus, Terminated
from tranche.kube.convert.pods_and_nodes import is_over, trainer
from tranche.replay.jsonl_store import Records
from tranche.replay.pod_history import is_foreign

MOST_PODS = 50_000
"""That are remembered; the oldest are forgotten first."""
_DECODE = msgspec.json.Decoder(Pod).decode


def decode_watched_pod(raw: bytes) -> Pod:
    """A pod with all that a history needs, without annotations and messages.

    Raises:
        msgspec.DecodeError: if it is not a pod.
    """
    pod = _DECODE(raw)
    return msgspec.structs.replace(pod, metadata=_slim(pod.metadata))


class PodMemory:
    """Notes each pod once it is over or gone."""

    def __init__(self, gpu_resource: str, clock: Callable[[], float], path: Path | None = None) -> None:
        self._gpu_resource = gpu_resource
        self._clock = clock
        self._records = Records(Pod, MOST_PODS, path)
        self._known = {pod.metadata.uid for pod in self._records.kept}

    def note(self, key: str, old: Pod | None, new: Pod | None) -> None:
        """What a watch says."""
        pod = new or old
        if pod is None or pod.metadata.uid in self._known or not is_foreign(pod, self._gpu_resource):
            return
        if new is not None and not is_over(new):
            return
        ended = pod if pod.status.phase in ("Succeeded", "Failed") else _cut_off(pod, self._clock())
        if trainer(ended).terminated is not None:
            self._known.add(ended.metadata.uid)
            self._records.add(ended)
            if len(self._known) > 2 * MOST_PODS:
                self._known = {one.metadata.uid for one in self._records.kept}

    def pods(self) -> Iterator[Pod]:
        """All that are remembered, oldest first."""
        yield from self._records.kept

    def knows(self, pod: Pod) -> bool:
        """Whether it is among them."""
        return pod.metadata.uid in self._known


def _cut_off(pod: Pod, now: float) -> Pod:
    """A pod that was deleted while it ran: it ended when we heard of it."""
    state = trainer(pod)
    if state.running is None:
        return pod
    ended = Terminated(started_at=state.running.started_at, finished_at=datetime.fromtimestamp(now, UTC))
    name = pod.spec.containers[0].name if pod.spec.containers else ""
    status = PodStatus("Failed", container_statuses=(ContainerStatus(name, ContainerState(terminated=ended)),))
    return msgspec.structs.replace(pod, status=status)


def _slim(whole: Metadata) -> Metadata:
    return msgspec.structs.replace(whole, annotations={}, finalizers=())
