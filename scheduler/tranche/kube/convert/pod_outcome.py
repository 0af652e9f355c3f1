"""Outcomes of ended pods: by the training container, by the client that stopped it, or by its node.

Only the outcome ``Failed`` is a failure of the job itself.
"""

from datetime import timedelta

from tranche.kube.api.condition import find_condition
from tranche.kube.api.core_types import NodeObject, Pod, Terminated
from tranche.kube.convert.container_start import LONGEST_MESSAGE, UNKNOWN_STATUS, any_started, is_start_interrupted
from tranche.kube.convert.pod_state import disruptions, ended_at, exit_code, stop_requested_at, termination_progress
from tranche.kube.convert.training_container import training_state
from tranche.model import PodOutcome

_LOST_WITH_NODE = ("NodeLost", "NodeAffinity", "OutOf", "TopologyAffinityError", "UnexpectedAdmissionError")
"""Prefixes of a pod's status.reason if its node was lost, or a restarted kubelet did not admit the running pod."""
_REJECTED = "Pod was rejected"
"""Beginning of the message of a pod that a kubelet did not admit, whatever the reason."""
_NODE_SHUTDOWN = frozenset({"NodeShutdown", "Shutdown", "Terminated"})
_OWN_DEADLINE = "DeadlineExceeded"
"""Reason of a pod whose template has an activeDeadlineSeconds that passed, perhaps before a container started."""
_LOST_CONTAINER = 255
"""Exit code that a container runtime gives a container that it did not see end, such as after a reboot."""
_STOPPED_CONTAINER = frozenset({143, 137})
"""Exit codes of a container that the init system stops when a node restarts without graceful node shutdown."""
CLOCK_SLACK_SECONDS = 5.0
"""Seconds by which a container must have ended before a stop was requested to have ended by itself. Its end is in whole
seconds by the clock of its node."""
_NOTICE_TIME = timedelta(seconds=60)
"""Time after which the control plane has noticed that a node is disconnected: 50 s without a sign of life, by default.
"""
_PRESSURE = "The node "
"""Beginning of the message of an eviction because of the node, not because the pod exceeded a limit of its own."""


def outcome(pod: Pod, node: NodeObject | None = None) -> PodOutcome:
    """Return the outcome of an ended pod.

    ``Preempted``: deleted, evicted, or stopped with its node. A program may exit with 0 at SIGTERM, so that 0 is then a
    success only if the termination message says that everything is saved. ``Refused``: no container had started.
    ``Lost``: it ended with its node, which restarted, or while its node was disconnected. ``Failed``: a container
    failed by itself, or the pod exceeded the deadline of its template. The exit code of the training container decides,
    not the phase: a proxy that is killed at the end makes the phase Failed. A deletion or eviction after the end of the
    training container has no effect.

    Args:
        pod: The ended pod.
        node: Its node, if it is known: an exit code of 255 then counts as a restart of the node if
            the node has not been ready all the time, and 143 or 137 if it has not been ready since. With any code, a
            container that has ended while the node was not ready has not failed.
    """
    status = pod.status
    ended_first = _ended_before_stop(pod)
    stopped = not ended_first and (bool(disruptions(pod)) or pod.metadata.deletion_timestamp is not None)
    if status.phase == "Succeeded" or (exit_code(pod) == 0 and not (stopped or status.reason)):
        return "Preempted" if ended_first is False and not _has_saved_all(pod) else "Succeeded"
    if stopped:
        return "Preempted"
    if status.reason == _OWN_DEADLINE:
        return "Failed"
    if not any_started(pod):
        return "Lost" if _status_lost(pod) else "Refused"
    if status.reason in _NODE_SHUTDOWN or (status.reason == "Evicted" and status.message.startswith(_PRESSURE)):
        return "Preempted"
    left_out = status.reason.startswith(_LOST_WITH_NODE) or status.message.startswith(_REJECTED)
    return "Lost" if left_out or _container_lost(pod, node) else "Failed"


def end_reason(pod: Pod) -> str:
    """Return the kubelet's reason and message for the end of a pod; empty if it states none."""
    status = pod.status
    if status.reason or status.message:
        return f"{status.reason}: {status.message}".strip(": ")[:LONGEST_MESSAGE]
    ended, is_initial = _deciding_end(pod)
    reason = ended.reason if ended is not None and ended.reason not in ("Error", "Completed") else ""
    if ended is None or not is_initial:
        return reason
    return f"exit code {ended.exit_code} of an init container" + (f" ({reason})" if reason else "")


def stopped_by(pod: Pod, node: NodeObject | None = None) -> str:
    """Return who stopped an ended pod, and why, as far as the pod says so; empty if it was not stopped.

    Args:
        pod: The ended pod.
        node: Its node, if it is known.
    """
    if _ended_before_stop(pod):
        return ""
    condition = next(iter(disruptions(pod)), None)
    where = f"node {pod.spec.node_name}" if pod.spec.node_name else "its node"
    match condition.reason if condition is not None else "":
        case "EvictionByEvictionAPI" if node is not None and node.spec.unschedulable:
            return f"{where} is drained"
        case "EvictionByEvictionAPI":
            return "evicted through the Eviction API"
        case "DeletionByTaintManager":
            return f"evicted because of a taint of {where}"
        case "TerminationByKubelet":
            return ": ".join(part for part in (f"stopped by the kubelet of {where}", end_reason(pod)) if part)
        case "DeletionByPodGC":
            return f"deleted because {where} is gone"
        case "PreemptionByScheduler":
            return "evicted by kube-scheduler for a pod of a higher priority"
    if pod.metadata.deletion_timestamp is not None:
        return "its pod was deleted"
    ended, _ = _deciding_end(pod)
    return f"{where} was disconnected" if ended is not None and _failed_cut_off(ended, node) else ""


def failure_log(pod: Pod) -> str:
    """Return the termination message of the container that failed, if it is text; else an empty string.

    With terminationMessagePolicy FallbackToLogsOnError, which the operator sets, it has the last lines of the log,
    unless the program wrote a message.
    """
    ended, _ = _deciding_end(pod)
    if ended is None or ended.exit_code == 0 or termination_progress(pod) is not None:
        return ""
    return ended.message


def _deciding_end(pod: Pod) -> tuple[Terminated | None, bool]:
    """Return the end of the training container, or of the init container that failed before it, and whether it is that.

    The end is None if there is none.
    """
    ended = training_state(pod).terminated
    initial = (status.state.terminated for status in pod.status.init_container_statuses if ended is None)
    failed = next((one for one in initial if one is not None and one.exit_code), None)
    return failed or ended, failed is not None


def _ended_before_stop(pod: Pod) -> bool | None:
    """Return whether the training container ended before its pod was deleted or evicted.

    None if the pod was not stopped, or one of the times is unknown.
    """
    ended, requested = ended_at(pod), stop_requested_at(pod)
    if not ended or requested is None:  # a runtime gives 1970 for an end that it did not see
        return None
    return ended + _clock_lag(pod) < requested - CLOCK_SLACK_SECONDS


def _clock_lag(pod: Pod) -> float:
    """Return the seconds by which the clock of the pod's node is behind, as far as the pod shows it.

    The kubelet sees a pod after the API server has bound it.
    """
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    bound, seen = scheduled and scheduled.last_transition_time, pod.status.start_time
    return max(0.0, (bound - seen).total_seconds()) if bound and seen else 0.0


def _has_saved_all(pod: Pod) -> bool:
    """Return whether the termination message names no chunk without a saved mini-batch, and no part of a gang's run."""
    progress = termination_progress(pod)
    return min(progress.values()) >= 1 if progress else False


def _status_lost(pod: Pod) -> bool:
    """Return whether containers of the pod existed, and the kubelet did not find them or ended while they started."""
    return any(
        one.state.terminated is not None and _is_lost(one.state.terminated) for one in pod.status.container_statuses
    )


def _is_lost(ended: Terminated) -> bool:
    return ended.reason == UNKNOWN_STATUS or is_start_interrupted(ended)


def _container_lost(pod: Pod, node: NodeObject | None) -> bool:
    """Return whether the container that decides ended with its node or its container runtime, or while it was cut off.

    A runtime that has seen the end knows its time. A container that was killed long after its node returned, such as by
    a liveness probe, has failed by itself.
    """
    ended, _ = _deciding_end(pod)
    if ended is None:
        return False
    if _is_lost(ended) or (ended.exit_code == _LOST_CONTAINER and ended.reason == "Unknown"):
        return True
    if node is None or ended.started_at is None:
        return False
    ready = find_condition(node.status.conditions, "Ready")
    is_killed = ended.exit_code in _STOPPED_CONTAINER and ended.reason != "OOMKilled"
    if not (is_killed or ended.exit_code == _LOST_CONTAINER):
        return _failed_cut_off(ended, node)
    if ready is None or ready.status != "True":
        return True
    since = (is_killed and ended.finished_at) or ended.started_at
    return ready.last_transition_time is not None and ready.last_transition_time > since


def _failed_cut_off(ended: Terminated, node: NodeObject | None) -> bool:
    """Return whether a container failed while its node was disconnected, as far as the node's condition Ready says so.

    A program that reaches neither its peers nor its storage then fails, and the kubelet reports that when it is
    connected again.
    """
    ready = find_condition(node.status.conditions, "Ready") if node is not None else None
    if ended.exit_code == 0 or ended.reason == "OOMKilled" or ended.finished_at is None:
        return False
    if ready is None or ready.last_transition_time is None:
        return False
    if ready.status == "True":
        return ready.last_transition_time > ended.finished_at
    return ended.finished_at > ready.last_transition_time - _NOTICE_TIME
