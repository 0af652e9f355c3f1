"""What the planner's events say of windows, as metrics."""

from collections.abc import Iterator
from contextlib import contextmanager

from tranche.kube.metrics import Metrics
from tranche.planner import Event, WorkerEnded, WorkerStarted
from tranche.policies import ClusterState, Run


@contextmanager
def measure(event: Event, cluster: ClusterState, metrics: Metrics) -> Iterator[None]:
    """Count the event while the planner hears of it: why a window ends is known before, when it began after."""
    ending = _ending(event, cluster)
    yield
    if ending:
        metrics.count_preemption(ending)
    if isinstance(event, WorkerStarted):
        run = _run(event, cluster)
        if run is not None and run.started == event.at:
            metrics.observe_window_start(event.at - run.opened, handover=run.handover)


def _ending(event: Event, cluster: ClusterState) -> str:
    """Why a running worker stops before its end; empty if the event is of another kind."""
    if not isinstance(event, WorkerEnded) or event.outcome not in ("Preempted", "Lost"):
        return ""
    run = _run(event, cluster)
    if run is None or run.started is None:
        return ""
    return "planned" if run.closing else event.outcome.lower()


def _run(event: WorkerStarted | WorkerEnded, cluster: ClusterState) -> Run | None:
    state = cluster.jobs.get(event.job)
    return state.runs.get(event.attempt) if state is not None else None
