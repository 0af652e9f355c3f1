"""Translation of pod changes into planner events."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_STAGING, ROLE_WORKER
from tranche.kube.convert.pod_identity import identity
from tranche.kube.convert.pod_outcome import end_reason, failure_log, outcome, stopped_by
from tranche.kube.convert.pods_and_nodes import (
    NodeObject,
    Pod,
    exit_code,
    has_ended,
    is_evicted_by_scheduler,
    run_seconds,
    started_at,
    termination_progress,
)
from tranche.planner import (
    ChiefEnded,
    Event,
    Outcome,
    ParameterServerLost,
    StagingEnded,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)

OUTRANKS = "for which kube-scheduler evicted it by priority"
GONE = "its pod is gone"
FRESH_SECONDS = 5.0
"""A start observed within this number of seconds is dated now, because status times have whole seconds only."""


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
    if who.role in (ROLE_SERVER, ROLE_CHIEF):
        if over and not was_over:
            known = node(new.spec.node_name) if new is not None else None
            ended: Outcome = "Lost" if new is None else outcome(new, known)
            end = ParameterServerLost(who.job, who.index, who.attempt, ended)
            yield replace(
                ChiefEnded(who.job, who.attempt, ended) if who.role == ROLE_CHIEF else end,
                exit_code=exit_code(new) if new is not None else None,
                preempted_by=by,
                reason=end_reason(new) if new is not None else "",
                stopped_by=_stopped_by(new, known, by),
                log=failure_log(new) if new is not None else "",
                started=started_at(pod),
            )
        return
    if who.role == ROLE_STAGING:
        if over and not was_over:
            yield StagingEnded(
                who.job, who.attempt, outcome(new, node(new.spec.node_name)) if new else "Lost", run_seconds(pod)
            )
        return
    if who.role != ROLE_WORKER or was_over:
        return
    if new is not None and new.spec.node_name and not (old is not None and old.spec.node_name):
        yield WorkerBound(who.job, who.attempt, new.spec.node_name)
    seen = old is not None  # a pod found at a restore may have started at any time
    if new is not None and (began := started_at(new)) is not None and (old is None or started_at(old) is None):
        yield WorkerStarted(who.job, who.attempt, now if seen and now - began < FRESH_SECONDS else began)
    if new is None:
        yield WorkerEnded(who.job, who.attempt, "Lost", now, preempted_by=by, stopped_by=_stopped_by(None, None, by))
    elif over:
        known = node(new.spec.node_name)
        yield WorkerEnded(
            who.job,
            who.attempt,
            outcome(new, known),
            now,
            termination_progress(new),
            exit_code(new),
            preempted_by=by,
            reason=end_reason(new),
            stopped_by=_stopped_by(new, known, by),
            log=failure_log(new),
        )


def _stopped_by(pod: Pod | None, node: NodeObject | None, preemptor: str) -> str:
    """Say who stopped a pod; with a preemptor as a relative clause about it."""
    if preemptor:
        return OUTRANKS
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
