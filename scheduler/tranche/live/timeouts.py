"""What does not happen in time: pods that find no node, pods that were never created."""

from collections.abc import Container, Iterable, Iterator, Mapping

from tranche.kube.names import ROLE_WORKER, pod_name
from tranche.kube.objects import Pod, is_over
from tranche.planner import Event, WorkerEnded, WorkerUnschedulable
from tranche.policies import JobState, Run


class Timeouts:
    """Remembers since when a window has been waiting for something."""

    def __init__(
        self,
        missing_seconds: float,
        unschedulable_seconds: float,
        pods: Mapping[str, Pod],
        untold: Container[tuple[str, int]] = (),
    ) -> None:
        self._missing_seconds = missing_seconds
        self._unschedulable_seconds = unschedulable_seconds
        self._pods = pods
        self._untold = untold
        """Windows (job, attempt) that nobody was told to open: when they close, no pod is waited for."""
        self._since: dict[tuple[str, int], float] = {}

    def due(self, states: Iterable[JobState], now: float) -> list[Event]:
        """Events for windows whose time is over."""
        waiting: dict[tuple[str, int], float] = {}
        events: list[Event] = []
        for state in states:
            for run in state.runs.values():
                key = (state.job.key, run.window.attempt)
                limit, event = self._watch(state, run, now)
                if event is None:
                    continue
                waiting[key] = self._since.get(key, now)
                if now - waiting[key] >= limit:
                    events.append(event)
                    del waiting[key]
        self._since = waiting
        return events

    def _watch(self, state: JobState, run: Run, now: float) -> tuple[float, Event | None]:
        namespace, _, name = state.job.key.partition("/")
        window = run.window
        pod = self._pods.get(f"{namespace}/{pod_name(name, ROLE_WORKER, window.index, window.attempt)}")
        if run.closing and pod is None:
            limit = 0.0 if (state.job.key, window.attempt) in self._untold else self._missing_seconds
            return limit, WorkerEnded(state.job.key, window.attempt, "Lost", now)
        if not run.closing and pod is not None and not pod.spec.node_name:
            return self._unschedulable_seconds + self._longest_grace(window.node), WorkerUnschedulable(
                state.job.key, window.attempt, unschedulable_message(pod)
            )
        return 0.0, None

    def _longest_grace(self, node: str | None) -> float:
        """Of pods that are leaving the node: the window's pod waits for them."""
        return max(self._graces(node), default=0.0)

    def _graces(self, node: str | None) -> Iterator[float]:
        for pod in self._pods.values() if node else ():
            if pod.spec.node_name == node and pod.metadata.deletion_timestamp and not is_over(pod):
                yield float(pod.metadata.deletion_grace_period_seconds or 0)


def unschedulable_message(pod: Pod) -> str:
    """What kube-scheduler says of a pod that it cannot place."""
    conditions = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False")
    return next((c.message or c.reason or "" for c in conditions), "")
