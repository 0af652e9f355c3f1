"""Translation of pod changes into planner events."""

from collections.abc import Iterator

from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_STAGING, ROLE_WORKER
from tranche.kube.convert.pod_identity import identity
from tranche.kube.convert.pods_and_nodes import (
    Pod,
    exit_code,
    is_over,
    outcome,
    run_seconds,
    started_at,
    termination_progress,
)
from tranche.planner import (
    ChiefEnded,
    Event,
    ParameterServerLost,
    StagingEnded,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)

FRESH_SECONDS = 5.0
"""A start observed within this number of seconds is dated now, because status times have whole seconds only."""


def events_of(old: Pod | None, new: Pod | None, now: float) -> Iterator[Event]:
    """Yield the planner events of a change of a pod from `old` to `new` (None: no pod).

    `now` is in seconds since the epoch.
    """
    pod = new or old
    who = identity(pod) if pod is not None else None
    if pod is None or who is None:
        return
    over = new is None or is_over(new)
    was_over = old is not None and is_over(old)
    if who.role in (ROLE_SERVER, ROLE_CHIEF):
        if over and not was_over:
            ending = ("Lost", None) if new is None else (outcome(new), exit_code(new))
            if who.role == ROLE_CHIEF:
                yield ChiefEnded(who.job, who.attempt, *ending)
            else:
                yield ParameterServerLost(who.job, who.index, who.attempt, *ending)
        return
    if who.role == ROLE_STAGING:
        if over and not was_over:
            yield StagingEnded(who.job, who.attempt, outcome(new) if new else "Lost", run_seconds(pod))
        return
    if who.role != ROLE_WORKER or was_over:
        return
    if new is not None and new.spec.node_name and not (old is not None and old.spec.node_name):
        yield WorkerBound(who.job, who.attempt, new.spec.node_name)
    seen = old is not None  # a pod found at a restore may have started at any time
    if new is not None and (began := started_at(new)) is not None and (old is None or started_at(old) is None):
        yield WorkerStarted(who.job, who.attempt, now if seen and now - began < FRESH_SECONDS else began)
    if new is None:
        yield WorkerEnded(who.job, who.attempt, "Lost", now)
    elif over:
        yield WorkerEnded(who.job, who.attempt, outcome(new), now, termination_progress(new), exit_code(new))
