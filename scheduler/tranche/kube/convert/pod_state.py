"""State of a pod and of its training container: whether it has started or ended, with which exit code and progress."""

from collections.abc import Mapping
from math import inf
from typing import Annotated

import msgspec

from tranche.kube.api.core_types import Pod, PodCondition
from tranche.kube.api.fields import MAX_CHUNKS
from tranche.kube.convert import training_container

_RANGE = "[0-9]{1,4}(-[0-9]{1,4})?"
_Chunks = Annotated[str, msgspec.Meta(pattern=rf"\A{_RANGE}(,{_RANGE})*\Z")]
_PROGRESS = msgspec.json.Decoder(dict[_Chunks, Annotated[float, msgspec.Meta(ge=0, le=2**53)]])
MAX_MESSAGE_BYTES = 4096
"""The kubelet keeps this many bytes of a termination message."""
STOP_SLACK_SECONDS = 10.0
"""Time after the grace period in which a pod should be gone."""


def is_over(pod: Pod) -> bool:
    """Return whether the pod's containers have terminated permanently, or will never start."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    metadata = pod.metadata
    return metadata.deletion_timestamp is not None and (
        not pod.spec.node_name or metadata.deletion_grace_period_seconds == 0
    )


def has_ended(pod: Pod) -> bool:
    """Return whether the pod has ended: `is_over`, or only containers other than its training container still run.

    A kubelet reports the end of the last container up to a second before that of the pod, which frees its resources.
    In between the pod has not ended, so that its window keeps them.
    """
    return is_over(pod) or (training_container.has_terminated(pod) and training_container.others_remain(pod))


def is_evicted_by_scheduler(pod: Pod) -> bool:
    """Return whether kube-scheduler evicted the pod to make room for one of a higher priority."""
    return any(condition.reason == "PreemptionByScheduler" for condition in disruptions(pod))


def disruptions(pod: Pod) -> list[PodCondition]:
    """Return the conditions, one at most, that say that the pod is or was stopped, and by what."""
    return [one for one in pod.status.conditions if one.type == "DisruptionTarget" and one.status == "True"]


def exit_code(pod: Pod) -> int | None:
    """Return the exit code of the training container; None while it has not ended."""
    terminated = training_container.training_state(pod).terminated
    return terminated.exit_code if terminated else None


def started_at(pod: Pod) -> float | None:
    """Return the start time of the training container in whole seconds since the epoch; None before it."""
    state = training_container.training_state(pod)
    at = state.running.started_at if state.running else state.terminated.started_at if state.terminated else None
    return at.timestamp() if at else None


def ended_at(pod: Pod) -> float | None:
    """Return the end time of the training container in whole seconds since the epoch; None before it."""
    terminated = training_container.training_state(pod).terminated
    return terminated.finished_at.timestamp() if terminated is not None and terminated.finished_at is not None else None


def stop_requested_at(pod: Pod) -> float | None:
    """Return when the pod was first deleted or disrupted, in seconds since the epoch by the clock of the control plane.

    None if that has not happened, or if one of these times is unknown. The deletion timestamp is the end of the grace
    period, also when a later request has shortened it.
    """
    changes = [one.last_transition_time for one in disruptions(pod)]
    times = [change.timestamp() if change else -inf for change in changes]
    if (ends := pod.metadata.deletion_timestamp) is not None:
        times.append(ends.timestamp() - (pod.metadata.deletion_grace_period_seconds or 0))
    first = min(times, default=-inf)
    return first if first > -inf else None


def run_seconds(pod: Pod) -> float | None:
    """Return the run time of the training container of an ended pod in whole seconds; None if that is unknown."""
    terminated = training_container.training_state(pod).terminated
    if terminated is None or terminated.started_at is None or terminated.finished_at is None:
        return None
    return (terminated.finished_at - terminated.started_at).total_seconds()


def termination_progress(pod: Pod) -> dict[int, float] | None:
    """Return the durable batches by chunk from the termination message of the training container.

    The run of a gang member counts as one batch, so it writes a fraction.

    Returns None without a valid message, because the container may write any text.
    """
    terminated = training_container.training_state(pod).terminated
    if terminated is None:
        return None
    text = terminated.message.encode(errors="replace")
    try:
        progress = _PROGRESS.decode(text) if len(text) <= MAX_MESSAGE_BYTES else None
    except msgspec.DecodeError:
        return None
    return _by_chunk(progress) if progress is not None else None


def _by_chunk(progress: Mapping[str, float]) -> dict[int, float] | None:
    """Expand the ranges of a message; None if they name more chunks than a job can have, or one of them twice."""
    batches: dict[int, float] = {}
    named = 0
    for text, count in progress.items():
        for part in text.split(","):
            first, _, last = part.partition("-")
            chunks = range(int(first), int(last or first) + 1)
            named += len(chunks)
            if named > MAX_CHUNKS:
                return None
            batches.update(dict.fromkeys(chunks, count))
    return batches if len(batches) == named else None
