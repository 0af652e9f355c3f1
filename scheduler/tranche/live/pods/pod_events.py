"""Translation of pod changes into planner events."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import PLANNED_ROLES, ROLE_CHIEF, ROLE_SERVER, ROLE_STAGING, ROLE_WORKER
from tranche.kube.convert.pod_identity import Identity, identity
from tranche.kube.convert.pod_outcome import end_reason, failure_log, outcome, stopped_by
from tranche.kube.convert.pod_state import (
    ended_at,
    exit_code,
    has_ended,
    is_evicted_by_scheduler,
    run_seconds,
    started_at,
    termination_progress,
)
from tranche.kube.convert.training_container import has_terminated
from tranche.planner import (
    ChiefEnded,
    Event,
    Outcome,
    ParameterServerEnded,
    StagingEnded,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)

EVICTED_BY_PRIORITY = "for which kube-scheduler evicted it by priority"
GONE = "its pod is gone"
FRESH_SECONDS = 5.0
"""Age in seconds up to which an observed start counts as now, because the times in a pod's status are whole seconds."""


def _unknown_node(name: str) -> NodeObject | None:
    return None


def events_of(
    old: Pod | None,
    new: Pod | None,
    now: float,
    others: Callable[[], Iterable[Pod]] = tuple,
    node: Callable[[str], NodeObject | None] = _unknown_node,
) -> Iterator[Event]:
    """Translate a change of one of our pods into events of the planner.

    Args:
        old: The pod before; None if it is new.
        new: The pod now; None if it is gone.
        now: Clock, in seconds.
        others: Returns all pods; called only if kube-scheduler evicted this pod, to find the one that it made room for.
        node: Returns the node of a name; called only for a pod that has ended.
    """
    pod = new or old
    who = identity(pod) if pod is not None else None
    if pod is None or who is None:
        return
    over = new is None or has_ended(new)
    was_over = old is not None and has_ended(old)
    by = preemptor_of(pod, others()) if over and not was_over and is_evicted_by_scheduler(pod) else ""
    ends = over and not was_over
    has_node = old is not None and bool(old.spec.node_name)
    if who.role in PLANNED_ROLES and not (was_over or has_node or new is None) and new.spec.node_name:
        yield WorkerBound(who.job, who.attempt, new.spec.node_name)
    if who.role in PLANNED_ROLES and not was_over and (who.role == ROLE_WORKER or not over):
        seen = old is not None  # a pod found at a restore may have started at any time
        if new is not None and (began := started_at(new)) is not None and (old is None or started_at(old) is None):
            yield WorkerStarted(who.job, who.attempt, now if seen and now - began < FRESH_SECONDS else began)
    if ends and (new is not None or has_terminated(pod)):
        yield from _ends(pod, who, now, node(pod.spec.node_name), by)
    elif ends:
        yield from _gone(pod, who, now, by)


def end_of(pod: Pod, now: float, node: NodeObject | None) -> Event | None:
    """Translate the end of a pod whose training container has terminated; None for a pod that is not ours.

    Args:
        pod: The pod.
        now: Clock, in seconds.
        node: Its node; None if it is unknown.
    """
    who = identity(pod)
    return next(_ends(pod, who, now, node, ""), None) if who is not None else None


def _ends(pod: Pod, who: Identity, now: float, node: NodeObject | None, by: str) -> Iterator[Event]:
    """Translate the end of a pod that exists.

    Args:
        pod: The pod.
        who: Its identity.
        now: Clock, in seconds.
        node: Its node; None if it is unknown.
        by: Pod or job for which kube-scheduler evicted it; empty for none.
    """
    ended = outcome(pod, node)
    if who.role == ROLE_STAGING:
        refused_by = pod.spec.node_name if ended == "Refused" else ""
        yield StagingEnded(who.job, who.attempt, ended, run_seconds(pod) or 0.0, refused_by, end_reason(pod))
    elif who.role == ROLE_WORKER:
        yield WorkerEnded(
            who.job,
            who.attempt,
            ended,
            now,
            termination_progress(pod),
            exit_code(pod),
            preempted_by=by,
            reason=end_reason(pod),
            stopped_by=_stopped_by(pod, node, by),
            log=failure_log(pod),
            ran=run_seconds(pod),
            finished=ended_at(pod),
        )
    elif who.role in (ROLE_SERVER, ROLE_CHIEF):
        yield replace(
            _helper_end(who, ended),
            exit_code=exit_code(pod),
            preempted_by=by,
            reason=end_reason(pod),
            stopped_by=_stopped_by(pod, node, by),
            log=failure_log(pod),
            started=started_at(pod),
        )


def _gone(pod: Pod, who: Identity, now: float, by: str) -> Iterator[Event]:
    """Translate the removal of a pod that had not ended; the arguments are those of `_ends`."""
    stopped = _stopped_by(None, None, by)
    if who.role == ROLE_STAGING:
        yield StagingEnded(who.job, who.attempt, "Lost", run_seconds(pod) or 0.0)
    elif who.role == ROLE_WORKER:
        yield WorkerEnded(who.job, who.attempt, "Lost", now, preempted_by=by, stopped_by=stopped)
    elif who.role in (ROLE_SERVER, ROLE_CHIEF):
        end = _helper_end(who, "Lost")
        yield replace(end, preempted_by=by, stopped_by=stopped, started=started_at(pod))


def _helper_end(who: Identity, ended: Outcome) -> ParameterServerEnded | ChiefEnded:
    if who.role == ROLE_CHIEF:
        return ChiefEnded(who.job, who.attempt, ended)
    return ParameterServerEnded(who.job, who.index, who.attempt, ended)


def _stopped_by(pod: Pod | None, node: NodeObject | None, preemptor: str) -> str:
    """Say who stopped a pod; with a preemptor as a relative clause about it."""
    if preemptor:
        return EVICTED_BY_PRIORITY
    return stopped_by(pod, node) if pod is not None else GONE


def preemptor_of(victim: Pod, others: Iterable[Pod]) -> str:
    """Find the pod for which kube-scheduler evicted another: it is nominated for the node and has a higher priority.

    kube-scheduler names the preemptor nowhere on the victim. Of several nominated pods, those that still wait for the
    node come first, then the one with the highest priority, then the youngest.

    Returns:
        ``pod/namespace/name``, or ``namespace/name`` of its TrainingJob if it has one; empty if none is found.
    """
    nominated = [
        one
        for one in others
        if one.status.nominated_node_name == victim.spec.node_name and _priority(one) > _priority(victim)
    ]
    best = max(nominated, key=_likelihood, default=None) if victim.spec.node_name else None
    if best is None:
        return ""
    who = identity(best)
    return f"pod/{best.key}" if who is None else who.job


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _likelihood(pod: Pod) -> tuple[bool, int, float, str]:
    created = pod.metadata.creation_timestamp
    return (not pod.spec.node_name, _priority(pod), created.timestamp() if created else 0.0, pod.key)
