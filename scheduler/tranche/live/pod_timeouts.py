"""Time-outs of pods: without a node, never created, or on nodes that stay unreachable.

Nodes unreachable for longer than the disconnect tolerance of their site: their chunks are planned again.

Until then, a disconnected site keeps its chunks and its pods continue. Afterwards, pods that still run there belong to
superseded attempts, and their progress is not counted.

Confirmation by the API server that a pod is absent, before a window without a pod is treated as ended.

A watch may lag by seconds after an outage of etcd or the API server, and the pod may have trained meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER, pod_name, staging_pod_name
from tranche.kube.api.resources import SiteObject
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pod_identity import owner_uid
from tranche.kube.convert.pods_and_nodes import NodeObject, Pod, is_over
from tranche.kube.convert.site_membership import UNDECLARED_TOLERANCE_SECONDS, site_of
from tranche.model import PlannedServer, Window
from tranche.model.quantity import parse_duration
from tranche.planner import Event, StagingEnded, WorkerEnded, WorkerUnschedulable
from tranche.planner.job_actions import end_of
from tranche.state.entities import JobState, Server, TrackedWindow


class UnreachableNodes:
    """Check of nodes against the disconnect tolerance of their site."""

    def __init__(self, nodes: Mapping[str, NodeObject], sites: Mapping[str, SiteObject]) -> None:
        self._nodes = nodes
        self._sites = sites

    def lost(self, name: str, now: float) -> bool:
        """Whether the node has been unreachable for longer than its site tolerates.

        Args:
            name: Name of the node; False for an unknown node, because its pods are deleted with it.
            now: Seconds since the epoch.
        """
        node = self._nodes.get(name)
        if node is None or node.ready:
            return False
        since = [c.last_transition_time for c in node.status.conditions if c.type == "Ready"]
        if not since or since[0] is None:
            return False
        return now - since[0].timestamp() >= self._tolerance(node)

    def _tolerance(self, node: NodeObject) -> float:
        site = self._sites.get(site_of(node.metadata.labels, self._sites) or "")
        if site is None:
            return UNDECLARED_TOLERANCE_SECONDS
        try:
            return parse_duration(site.spec.disconnect_tolerance)
        except ValueError:  # reported when the site was read
            return UNDECLARED_TOLERANCE_SECONDS


class _Wait(NamedTuple):
    """A condition that becomes an event if it lasts too long."""

    limit: float
    """Maximum duration in seconds."""
    event: Event
    missing: str = ""
    """Name of the pod whose absence must be confirmed first; empty if none."""


def _at_once(site: str) -> float | None:
    return None


def _always(namespace: str, name: str, job_uid: str) -> bool:
    return True


class Timeouts:
    """Times of the conditions of windows and parameter servers."""

    def __init__(
        self,
        missing_seconds: float,
        unschedulable_seconds: float,
        pods: Mapping[str, Pod],
        unreachable: UnreachableNodes,
        unpublished: Container[tuple[str, int]] = (),
        confirmed_absent: Callable[[str, str, str], bool] = _always,
        *,
        startup: Callable[[str], float | None] = _at_once,
        node_start_seconds: float = 900.0,
    ) -> None:
        """Create without reading anything.

        Args:
            missing_seconds: Time that the pod of a closing window may be missing.
            unschedulable_seconds: Time that a pod may have no node.
            pods: Pods of the watch, by key.
            unreachable: Nodes beyond their disconnect tolerance.
            unpublished: Windows (job, attempt) that are in no written plan: when they close, no pod can exist.
            confirmed_absent: Whether the API server confirms that a job (UID last) has no pod of that namespace and
                name.
            startup: Declared node start time of a site in seconds; None where nodes exist already.
            node_start_seconds: Time that a pod may have no node at such a site; at least twice the declared time.
        """
        self._missing_seconds = missing_seconds
        self._unschedulable_seconds = unschedulable_seconds
        self._pods = pods
        self._unreachable = unreachable
        self._unpublished = unpublished
        self._confirmed_absent = confirmed_absent
        self._startup = startup
        self._node_start_seconds = node_start_seconds
        self._since: dict[tuple[str, int], float] = {}
        self.next_due = 0.0
        """Time of the next check by the monotonic clock; infinite if nothing waits."""

    def due(self, states: Iterable[JobState], now: float, elapsed: float) -> list[Event]:
        """Return the events of conditions that have lasted too long.

        Args:
            states: Jobs with their windows.
            now: Wall clock, for the events.
            elapsed: Monotonic seconds, for the durations: a step of the wall clock must not end them.
        """
        waiting: dict[tuple[str, int], float] = {}
        events: list[Event] = []
        self.next_due = inf
        for state in states:
            events += self._lost_stagings(state, now)
            watched = [(one.planned.attempt, self._watch_server(state, one, now)) for one in state.servers]
            watched += [(run.window.attempt, self._watch(state, run, now)) for run in state.runs.values()]
            for attempt, wait in watched:
                key = (state.job.key, attempt)
                if wait is None:
                    continue
                waiting[key] = self._since.get(key, elapsed)
                if elapsed - waiting[key] < wait.limit:
                    self.next_due = min(self.next_due, waiting[key] + wait.limit)
                elif not wait.missing or self._confirmed_absent(state.job.namespace, wait.missing, state.job.uid):
                    events.append(wait.event)
                    del waiting[key]
        self._since = waiting
        return events

    def _watch(self, state: JobState, run: TrackedWindow, now: float) -> _Wait | None:
        window = run.window
        name = pod_name(_name(state), ROLE_WORKER, window.index, window.attempt)
        pod = self._pod(state, name)
        if pod is None and not run.closing:
            return None
        if pod is None:
            lost = WorkerEnded(state.job.key, window.attempt, "Lost", now)
            unpublished = (state.job.key, window.attempt) in self._unpublished
            return _Wait(0.0, lost) if unpublished else _Wait(self._missing_seconds, lost, name)
        if self._unreachable.lost(pod.spec.node_name, now):
            return _Wait(0.0, WorkerEnded(state.job.key, window.attempt, "Lost", now))
        if run.closing or pod.spec.node_name:
            return None
        return self._unplaced(state, window, pod)

    def _watch_server(self, state: JobState, server: Server, now: float) -> _Wait | None:
        planned = server.planned
        name = pod_name(_name(state), ROLE_CHIEF if planned.is_chief else ROLE_SERVER, planned.index, planned.attempt)
        pod = self._pod(state, name)
        lost = end_of(state.job.key, planned)
        if pod is None:
            return _Wait(self._missing_seconds, lost, name) if server.closing else None
        if self._unreachable.lost(pod.spec.node_name, now):
            return _Wait(0.0, lost)
        if server.closing or pod.spec.node_name:
            return None
        return self._unplaced(state, planned, pod)

    def _unplaced(self, state: JobState, planned: Window | PlannedServer, pod: Pod) -> _Wait:
        startup = self._startup(planned.site) if planned.node is None else None
        if startup is not None:
            limit = max(self._unschedulable_seconds, self._node_start_seconds, 2 * startup)
        else:
            limit = self._unschedulable_seconds + self._longest_grace(planned.node)
        return _Wait(limit, WorkerUnschedulable(state.job.key, planned.attempt, unschedulable_message(pod)))

    def _lost_stagings(self, state: JobState, now: float) -> Iterator[Event]:
        """Staging pods on nodes that are unreachable for too long."""
        for staging in state.stagings.values():
            pod = self._pod(state, staging_pod_name(_name(state), staging.site, staging.attempt))
            if pod is not None and self._unreachable.lost(pod.spec.node_name, now):
                yield StagingEnded(state.job.key, staging.attempt, "Lost")

    def _pod(self, state: JobState, name: str) -> Pod | None:
        """The job's pod of that name; not a pod of a deleted job with the same name."""
        pod = self._pods.get(f"{state.job.key.partition('/')[0]}/{name}")
        return pod if pod is not None and owner_uid(pod.metadata) == state.job.uid else None

    def _longest_grace(self, node: str | None) -> float:
        """Longest grace period, in seconds, of pods terminating on the node, which the window's pod waits for."""
        return max(self._graces(node), default=0.0)

    def _graces(self, node: str | None) -> Iterator[float]:
        for pod in self._pods.values() if node else ():
            if pod.spec.node_name == node and pod.metadata.deletion_timestamp and not is_over(pod):
                yield float(pod.metadata.deletion_grace_period_seconds or 0)


def _name(state: JobState) -> str:
    return state.job.key.partition("/")[2]


def unschedulable_message(pod: Pod) -> str:
    """Return the message of kube-scheduler for a pod that it cannot place."""
    conditions = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False")
    return next((c.message or c.reason or "" for c in conditions), "")


logger = logging.getLogger(__name__)

Question = tuple[str, str, str]
"""Namespace and name of a pod, and the UID of its job."""


class PodAbsenceChecker:
    """Queue of pods to check, and the confirmed absences."""

    def __init__(self, client: ApiClient, answered: Callable[[], None]) -> None:
        """Send no request before `run`.

        Args:
            client: Client of the API server.
            answered: Called when the absence of a pod is confirmed.
        """
        self._client = client
        self._answered = answered
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._asked: set[Question] = set()
        self._absent: set[Question] = set()

    def confirmed_absent(self, namespace: str, name: str, job_uid: str) -> bool:
        """Whether the API server has confirmed that the job has no pod of that name; if not, queue a check.

        A confirmation is returned once.
        """
        question = (namespace, name, job_uid)
        if question in self._absent:
            self._absent.remove(question)
            return True
        if question not in self._asked:
            self._asked.add(question)
            self._questions.put_nowait(question)
        return False

    async def run(self) -> None:
        """Run the checks forever; a check that fails is queued again by the next call of `confirmed_absent`."""
        while True:
            question = await self._questions.get()
            try:
                absent = await self._ask(*question)
            except ApiError as error:
                logger.warning("pod %s/%s: cannot check whether it exists: %s", *question[:2], error)
                absent = False
            self._asked.remove(question)
            if absent:
                self._absent.add(question)
                self._answered()

    async def _ask(self, namespace: str, name: str, job_uid: str) -> bool:
        try:
            found = decode_pod(await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        except ApiError as error:
            if error.status != 404:
                raise
            return True
        return owner_uid(found.metadata) != job_uid
