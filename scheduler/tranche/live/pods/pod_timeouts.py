"""Timeouts of pods that get no node, are never created, do not start or do not stop.

The windows on a node that is unreachable for longer than its site tolerates end too, so that their chunks are planned
again. Pods that still run there belong to superseded attempts, and their progress is not counted.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple, Protocol

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import (
    GANG_GATE,
    ROLE_CHIEF,
    ROLE_SERVER,
    ROLE_WORKER,
    pod_name,
    staging_pod_name,
)
from tranche.kube.convert.container_start import StartProblem, start_delay
from tranche.kube.convert.pod_identity import owner_uid
from tranche.kube.convert.pod_shape import excludes_labels
from tranche.kube.convert.pod_state import STOP_SLACK_SECONDS, is_over, started_at
from tranche.kube.convert.training_container import has_terminated
from tranche.live.pods.pod_events import GONE, end_of
from tranche.live.pods.scheduler_watch import (
    OutdatedVerdicts,
    SchedulerWatch,
    other_scheduler,
    schedule_condition,
    unschedulable_message,
)
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.live.pods.volume_waits import VolumeWaits
from tranche.live.settings import ControllerSettings
from tranche.model import PlannedServer, Site, Window
from tranche.planner import (
    Event,
    KubeSchedulerChanged,
    PodOverdue,
    PodStartFailed,
    StagingEnded,
    WorkerEnded,
    WorkerUnschedulable,
)
from tranche.planner.helper_end import helper_end
from tranche.planner.job_actions import NOT_TAKEN
from tranche.state.cluster import ClusterState
from tranche.state.helper import Server
from tranche.state.job import JobState
from tranche.state.staging import Staging
from tranche.state.window import TrackedWindow

RIGID_TOLERANCE_SECONDS = 60.0
"""Most seconds that a node may be unreachable while a gang, a parameter server or a copy of data, without which other
pods cannot continue, or a pod that is to stop runs there. A later pod is safe before the node returns, because reports
and results of earlier attempts are fenced, and copies may be made twice."""
LONGEST_GRACE_SECONDS = 600.0
"""Longest grace period during which the room of a pod that stops counts as free, and for which another pod waits there;
a longer one keeps the room."""
RELEASE_SECONDS = 5.0
"""Time after the end of the last container in which the kubelet should report the end of the pod. After it, the attempt
is counted, and the pod counts as foreign usage until the kubelet reports its end."""
SELECTOR_SECONDS = 5.0
"""Time that a pod without a node has with former labels of an unlimited site, longer than the operator uses a Site that
it has read. It doubles while the job's pods find no place, since a webhook may change the labels of each pod."""
SELECTOR_DOUBLINGS = 7
DEFAULT_GRACE_SECONDS = 30.0
"""terminationGracePeriodSeconds of a pod that sets none."""


class _Wait(NamedTuple):
    """A condition that becomes an event if it lasts too long."""

    limit: float
    """Maximum duration in seconds."""
    event: Event
    missing: str = ""
    """Name of the pod whose absence must be confirmed first; empty if none."""
    kind: str = ""
    """Kind of condition, whose time begins again when another kind follows."""
    before: float = 0.0
    """Time in seconds for which the condition lasted before it was first seen."""
    for_scheduler: bool = False
    """Whether the pod waits for kube-scheduler, so that the time does not count while that is silent."""
    unchanged: Pod | None = None
    """Pod of which must be confirmed first that the watch shows its present state; None if there is none."""


class _Settled(NamedTuple):
    """A pod that trains, is not to stop, and has nothing to wait for until it changes or its node stops responding.

    With 50,000 pods, to look at all of them in each check would take half a second.
    """

    key: str
    pod: Pod
    job_uid: str


class PodChecks(Protocol):
    """Confirmation by the API server of what the watch shows; `PodChecker` implements it."""

    def confirmed_absent(self, namespace: str, name: str, job_uid: str) -> bool:
        """Return whether the job has no pod of that name."""

    def confirmed_unchanged(self, pod: Pod) -> bool:
        """Return whether a pod is as the watch shows it."""


class Timeouts:
    """Times of the conditions of windows and parameter servers."""

    def __init__(
        self,
        settings: ControllerSettings,
        cluster: ClusterState,
        pods: Mapping[str, Pod],
        unreachable: UnreachableNodes,
        scheduler: SchedulerWatch,
        checks: PodChecks,
        *,
        unpublished: Container[tuple[str, int]],
        may_be_created: Callable[[str, int], bool],
    ) -> None:
        """Create without reading anything.

        Args:
            settings: Limits of the conditions, and the resource names of the planned GPUs.
            cluster: Sites and nodes of the planner.
            pods: Pods of the watch, by key.
            unreachable: Nodes beyond their disconnect tolerance.
            scheduler: Check of kube-scheduler.
            checks: Confirmation by the API server, where the watch may have missed a change.
            unpublished: Windows (job, attempt) that are in no written plan: when they close, no pod can exist.
            may_be_created: Returns whether the written plan has an attempt open, so that the operator may still create
                its pod.
        """
        self._settings = settings
        self._cluster = cluster
        self._pods = pods
        self._unreachable = unreachable
        self._scheduler = scheduler
        self._checks = checks
        self._unpublished = unpublished
        self._may_be_created = may_be_created
        self._start_limits = settings.start_limits  # a property that builds a mapping, which each check of a pod reads
        self._graces: dict[str, float] | None = None  # longest one of terminating pods by node, in the present check
        self._open_pods: list[Pod] = []
        self._cut_off: dict[str, bool] = {}  # by gang, in the present check
        self._volumes = VolumeWaits(pods)
        self._closing: set[str | None] = set()
        """Pods of open windows and helpers that are not settled, and nodes of closing ones, in the present check."""
        self._settled: dict[tuple[str, int], _Settled] = {}  # by job and attempt, from the last check
        self._verdicts = OutdatedVerdicts(settings.gpu_resources)
        self._outdated: set[str] = set()  # UIDs of the pods with an outdated verdict in the present check
        self._since: dict[tuple[str, int, type[Event], str], float] = {}
        self.next_due = 0.0
        """Time of the next check by the monotonic clock; infinite if nothing waits."""

    def due(self, states: Iterable[JobState], now: float, elapsed: float) -> list[Event]:
        """Return the events of conditions that have lasted too long.

        Args:
            states: Jobs with their windows.
            now: Wall clock, for the events.
            elapsed: Monotonic seconds, for the durations: a step of the wall clock must not end them.
        """
        waiting: dict[tuple[str, int, type[Event], str], float] = {}
        events: list[Event] = []
        self.next_due = inf
        self._graces = None
        self._open_pods = []
        self._cut_off = {}
        self._outdated.clear()
        self._verdicts.begin()
        states = tuple(states)
        self._closing = {run.window.node for state in states for run in state.runs.values() if run.closing}
        self._closing |= {server.planned.node for state in states for server in state.servers if server.closing}
        silent, known, self._settled = self._unreachable.refresh(), self._settled, {}
        self._volumes.begin(silent)
        watched: list[tuple[JobState, int, _Wait | None]] = []
        for state in states:
            watched += [(state, one.attempt, self._watch_staging(state, one, now)) for one in state.stagings.values()]
            watched += [(state, one.planned.attempt, self._watch_server(state, one, now)) for one in state.servers]
            for run in state.runs.values():
                settled = known.get(window := (state.job.key, run.window.attempt))
                if settled is not None and self._stays_settled(state, run, settled, silent):
                    self._settled[window] = settled
                else:
                    watched.append((state, run.window.attempt, self._watch(state, run, now)))
        self._volumes.forget_others({(state.job.key, attempt) for state, attempt, _ in watched})
        trained = {one.pod.metadata.uid for one in self._settled.values()}
        if self._scheduler.check(self._open_pods, elapsed, self._outdated, trained):
            events.append(KubeSchedulerChanged(self._scheduler.responds))
        self.next_due = self._scheduler.next_due
        for state, attempt, wait in watched:
            if wait is None or (wait.for_scheduler and not self._scheduler.responds):
                continue
            key = (state.job.key, attempt, type(wait.event), wait.kind)
            waiting[key] = self._since.get(key, elapsed - wait.before)
            if elapsed - waiting[key] < wait.limit:
                self.next_due = min(self.next_due, waiting[key] + wait.limit)
            elif self._is_confirmed(state, wait):
                events.append(wait.event)
                del waiting[key]
        self._since = waiting
        return events

    def _is_confirmed(self, state: JobState, wait: _Wait) -> bool:
        """Return whether the API server confirms the condition, as far as the watch may have missed its end."""
        if wait.missing:
            return self._checks.confirmed_absent(state.job.namespace, wait.missing, state.job.uid)
        return wait.unchanged is None or self._checks.confirmed_unchanged(wait.unchanged)

    def _stays_settled(self, state: JobState, run: TrackedWindow, settled: _Settled, silent: Container[str]) -> bool:
        """Return whether the pod of a window is as at the last check, and so is all that a timeout depends on."""
        return (
            self._pods.get(settled.key) is settled.pod
            and settled.job_uid == state.job.uid
            and run.started is not None
            and not run.closing
            and settled.pod.spec.node_name not in silent
        )

    def _watch(self, state: JobState, run: TrackedWindow, now: float) -> _Wait | None:
        window = run.window
        name = pod_name(_name(state), ROLE_WORKER, window.index, window.attempt)
        pod = self._pod(state, name)
        if pod is None and not run.closing:
            return None
        if pod is None:
            lost = WorkerEnded(state.job.key, window.attempt, "Lost", now, stopped_by=GONE)
            if (state.job.key, window.attempt) in self._unpublished:
                return _Wait(0.0, lost)
            return self._missing(state, window.attempt, lost, name)
        if (release := self._release(pod, now)) is not None:
            return release
        if self._unreachable.lost(pod.spec.node_name, now, self._patience(state, pod, now, closing=run.closing)):
            return _Wait(0.0, WorkerEnded(state.job.key, window.attempt, "Lost", now, stopped_by=_silence_reason(pod)))
        if run.closing or self._is_stopping(pod):
            is_noted = run.overdue or not pod.spec.node_name
            event = PodOverdue(state.job.key, window.attempt)
            limit = _stop_seconds(pod, now, adopted=run.adopted)
            return None if is_noted else _Wait(limit, event, unchanged=pod)
        self._open_pods.append(pod)
        if not pod.spec.node_name:
            return self._unplaced(state, window, pod)
        if run.started is None:
            return self._unstarted(state, window, pod, now)
        if pod.metadata.deletion_timestamp is None:
            key = f"{state.job.namespace}/{name}"
            self._settled[state.job.key, window.attempt] = _Settled(key, pod, state.job.uid)
        return None

    def _is_stopping(self, pod: Pod) -> bool:
        """Return whether somebody else has deleted the pod, and its node responds.

        On a node that does not respond, the containers run on: the tolerance of its site applies.
        """
        return pod.metadata.deletion_timestamp is not None and not self._unreachable.is_silent(pod.spec.node_name)

    def _release(self, pod: Pod, now: float) -> _Wait | None:
        """Wait for the kubelet to report the end of a pod whose containers have ended; None for other pods."""
        if not has_terminated(pod):
            return None
        end = end_of(pod, now, self._unreachable.node(pod.spec.node_name))
        return _Wait(RELEASE_SECONDS, end, kind="ended") if end is not None else None

    def _patience(self, state: JobState, pod: Pod, now: float, *, closing: bool) -> float:
        """Return the most seconds that the pod's node may be unreachable.

        A gang cannot continue without a member, unless all of its pods are at disconnected sites, perhaps connected to
        each other, or it reports progress all the same.
        """
        if closing:
            return RIGID_TOLERANCE_SECONDS + min(_grace_seconds(pod), LONGEST_GRACE_SECONDS)
        depends = state.job.min_available > 1 or (state.job.is_gang and state.job.helper_count)
        if not depends or not self._unreachable.is_silent(pod.spec.node_name):
            return inf
        trains = self._is_cut_off(state) or self._trains_on(state, pod.spec.node_name, now)
        return inf if trains else RIGID_TOLERANCE_SECONDS

    def _is_cut_off(self, state: JobState) -> bool:
        """Return whether all pods of a gang that are not to stop are at disconnected sites, so that it may train on.

        If only its own nodes do not respond, they are dead more likely than not.
        """
        known = self._cut_off.get(state.job.key)
        if known is None:
            runs = (run.window for run in state.runs.values() if not run.closing)
            names = [pod_name(_name(state), ROLE_WORKER, one.index, one.attempt) for one in runs]
            names += [_helper_name(state, one.planned) for one in state.servers if not one.closing]
            pods = [self._pod(state, name) for name in names]
            nodes = {pod.spec.node_name if pod is not None else "" for pod in pods}
            known = self._cut_off[state.job.key] = self._unreachable.are_cut_off(nodes)
        return known

    def _trains_on(self, state: JobState, node: str, now: float) -> bool:
        """Return whether a report has shown progress of a gang in the last minute, and since the node does not respond.

        A planner that has taken over knows no earlier report, so it waits a minute for one.
        """
        silent, seen = self._unreachable.silent_since(node, now), self._unreachable.seen_silent(node, now)
        runs = state.runs.values()
        shown = (run.since if run.last_report is not None else seen if run.adopted else None for run in runs)
        latest = max((at for at in shown if at is not None), default=-inf)
        return silent is not None and latest > silent and now - latest < RIGID_TOLERANCE_SECONDS

    def _server_patience(self, state: JobState, server: Server, pod: Pod, now: float) -> float:
        """Return the most seconds that the node of a server or chief may be unreachable; without it, no worker trains.

        Workers that are cut off at the same site may reach it, and train as long as their site tolerates.
        """
        if not (server.closing or state.job.is_gang) and self._unreachable.is_silent(pod.spec.node_name):
            windows = (run.window for run in state.runs.values())
            site = server.planned.site
            if not all(one.site == site and self._unreachable.is_silent(one.node or "") for one in windows):
                return RIGID_TOLERANCE_SECONDS
        return self._patience(state, pod, now, closing=server.closing)

    def _missing(self, state: JobState, attempt: int, end: Event, name: str) -> _Wait | None:
        """Return the wait of a closing attempt that has no pod.

        The time begins when a plan is written in which the attempt is not open: until then, the operator may create the
        pod, and this would train although its end is counted.
        """
        if self._may_be_created(state.job.key, attempt):
            return None
        return _Wait(self._settings.missing_pod_seconds, end, name)

    def _watch_server(self, state: JobState, server: Server, now: float) -> _Wait | None:
        planned = server.planned
        name = _helper_name(state, planned)
        pod = self._pod(state, name)
        lost = replace(helper_end(state.job.key, planned), stopped_by=GONE)
        is_placed = pod is not None and (pod.spec.node_name or is_over(pod))
        if not (server.closing or is_placed or self._cluster.has_place(state, planned)):
            where = f"node {planned.node}" if planned.node is not None else f"site {planned.site}"
            return _Wait(0.0, WorkerUnschedulable(state.job.key, planned.attempt, f"{where} {NOT_TAKEN}"))
        if pod is None:
            return self._missing(state, planned.attempt, lost, name) if server.closing else None
        if (release := self._release(pod, now)) is not None:
            return release
        if self._unreachable.lost(pod.spec.node_name, now, self._server_patience(state, server, pod, now)):
            return _Wait(0.0, replace(lost, stopped_by=_silence_reason(pod), started=started_at(pod)))
        if server.closing:
            return None
        if self._is_stopping(pod):
            event = PodOverdue(state.job.key, planned.attempt)
            return _Wait(_stop_seconds(pod, now, adopted=True), event, unchanged=pod)
        self._open_pods.append(pod)
        if pod.spec.node_name:
            return self._unstarted(state, planned, pod, now)
        return self._unplaced(state, planned, pod)

    def _unstarted(
        self, state: JobState, planned: Window | PlannedServer | Staging, pod: Pod, now: float
    ) -> _Wait | None:
        """Return the wait of a bound pod whose containers do not start, by the reason that the kubelet reports.

        The time for a pod without any reason begins with its binding, also under an earlier leader. It begins again
        when the node returns: while it does not respond, the kubelet reports no start, and the tolerance of its site
        applies. It also begins again when the pod need not wait any more for a volume on a node that does not respond.
        """
        delay = start_delay(pod)
        if delay is None or is_over(pod) or pod.metadata.deletion_timestamp is not None:
            return None
        if self._unreachable.is_silent(pod.spec.node_name):
            return None
        window = (state.job.key, planned.attempt)
        if delay.kind is StartProblem.CREATION and self._volumes.waits(window, pod):
            return None
        limit = self._start_limits[delay.kind]
        scheduled = (c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled")
        since = next(scheduled, None) if delay.kind is StartProblem.CREATION else None
        begin = max(since.timestamp(), self._unreachable.ready_since(pod.spec.node_name)) if since is not None else now
        begin = inf if self._volumes.has_waited(window) else begin
        before = min(limit, max(0.0, now - begin))
        event = PodStartFailed(state.job.key, planned.attempt, delay.reason, delay.message, delay.kind)
        return _Wait(limit, event, kind=delay.kind, before=before, unchanged=pod)

    def _unplaced(self, state: JobState, planned: Window | PlannedServer, pod: Pod) -> _Wait | None:
        """Return the wait of a pod that has no node.

        A pod that waits for its gang has time, and so has every pod while kube-scheduler is silent. Without a valid
        verdict of kube-scheduler, a pod may wait for as long as the provisioning of a volume takes.
        """
        site = self._unlimited_site(planned.site) if planned.node is None else None
        if site is not None and excludes_labels(pod, site.labels):
            message = f"the nodeSelector of site {site.name} has changed since the pod was created"
            limit = SELECTOR_SECONDS * 2.0 ** min(state.placement.failures, SELECTOR_DOUBLINGS)
            event = WorkerUnschedulable(state.job.key, planned.attempt, message)
            return _Wait(limit, event, kind="labels", unchanged=pod)
        reason = _without_verdict(pod)
        if reason is None:
            return None
        if not reason and planned.node is not None and self._verdicts.check(pod, is_held=self._is_held(planned.node)):
            self._outdated.add(pod.metadata.uid)
            reason = f"kube-scheduler has not judged it again since room became free: {unschedulable_message(pod)}"
        limit = self._scheduler.provisioning_seconds if reason else self._settings.unschedulable_seconds
        if site is not None:
            limit = max(limit, self._settings.node_start_seconds, 2 * site.start_seconds)
        elif not reason:
            limit += self._longest_grace(planned.node)
        event = WorkerUnschedulable(state.job.key, planned.attempt, reason or unschedulable_message(pod))
        kind = "no verdict" if reason else ""
        return _Wait(limit, event, kind=kind, for_scheduler=True, unchanged=pod)

    def _watch_staging(self, state: JobState, staging: Staging, now: float) -> _Wait | None:
        pod = self._pod(state, staging_pod_name(_name(state), staging.site, staging.attempt))
        if pod is None:
            return None
        node = pod.spec.node_name
        end = StagingEnded(state.job.key, staging.attempt, "Lost")
        if self._unreachable.lost(node, now, self._staging_patience(node)):
            return _Wait(0.0, end)
        self._open_pods.append(pod)
        if not node:
            return self._unplaced_staging(staging, pod, end)
        delay = self._unstarted(state, staging, pod, now)
        if delay is None or not isinstance(delay.event, PodStartFailed):
            return None
        reason, message = delay.event.reason, delay.event.message
        text = f"{reason}: {message}" if message else reason
        return delay._replace(event=end._replace(outcome="Failed", node=node, reason=text))

    def _staging_patience(self, node: str) -> float:
        """Return the most seconds that the node of a staging pod may be unreachable.

        Windows wait for the copy. The next pod makes it on another node, unless the whole site is disconnected.
        """
        is_cut_off = self._unreachable.is_silent(node) and self._unreachable.is_site_silent(node)
        return inf if is_cut_off else RIGID_TOLERANCE_SECONDS

    def _unplaced_staging(self, staging: Staging, pod: Pod, end: StagingEnded) -> _Wait:
        """Return the wait of a staging pod that has no node.

        It holds no planned room, so it may wait until other pods free CPU and memory.
        """
        limit, site = self._scheduler.provisioning_seconds, self._unlimited_site(staging.site)
        if site is not None:
            limit = max(limit, self._settings.node_start_seconds, 2 * site.start_seconds)
        reason = _without_verdict(pod) or unschedulable_message(pod)
        return _Wait(limit, end._replace(outcome="Failed", reason=reason), for_scheduler=True, unchanged=pod)

    def _unlimited_site(self, name: str) -> Site | None:
        """Return an unlimited site, whose nodes an autoscaler creates; None for other sites."""
        site = self._cluster.sites.get(name)
        return site if site is not None and site.unlimited else None

    def _pod(self, state: JobState, name: str) -> Pod | None:
        """Return the job's pod of that name; not a pod of a deleted job with the same name."""
        pod = self._pods.get(f"{state.job.key.partition('/')[0]}/{name}")
        return pod if pod is not None and owner_uid(pod.metadata) == state.job.uid else None

    def _is_held(self, node: str) -> bool:
        """Return whether pods that have to stop are on the node."""
        return node in self._closing or node in self._stopping()

    def _longest_grace(self, node: str | None) -> float:
        """Return the longest grace period, in seconds, of pods that terminate on the node."""
        return self._stopping().get(node or "", 0.0)

    def _stopping(self) -> Mapping[str, float]:
        """Return the nodes with terminating pods, with the longest grace period of these in seconds."""
        if self._graces is None:
            self._graces = {}
            for pod in self._pods.values():
                if pod.metadata.deletion_timestamp and not is_over(pod):
                    grace = min(float(pod.metadata.deletion_grace_period_seconds or 0), LONGEST_GRACE_SECONDS)
                    self._graces[pod.spec.node_name] = max(grace, self._graces.get(pod.spec.node_name, 0.0))
        return self._graces


def _silence_reason(pod: Pod) -> str:
    return f"node {pod.spec.node_name} does not respond"


def _grace_seconds(pod: Pod) -> float:
    grace = pod.metadata.deletion_grace_period_seconds
    grace = pod.spec.termination_grace_period_seconds if grace is None else grace
    return DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def _stop_seconds(pod: Pod, now: float, *, adopted: bool) -> float:
    """Return the seconds, from when a window closes or its pod is deleted, after which the pod is overdue.

    After a take-over that moment is unknown; the API server has recorded when the grace period ends.
    """
    ends = pod.metadata.deletion_timestamp
    if adopted and ends is not None and now >= ends.timestamp() + STOP_SLACK_SECONDS:
        return 0.0
    return min(_grace_seconds(pod), LONGEST_GRACE_SECONDS) + STOP_SLACK_SECONDS


def _name(state: JobState) -> str:
    return state.job.key.partition("/")[2]


def _helper_name(state: JobState, planned: PlannedServer) -> str:
    role = ROLE_CHIEF if planned.is_chief else ROLE_SERVER
    return pod_name(_name(state), role, planned.index, planned.attempt)


def _without_verdict(pod: Pod) -> str | None:
    """Return why kube-scheduler gives no verdict about a pod; "" if it finds no node, None if our own gate holds it."""
    foreign = [gate.name for gate in pod.spec.scheduling_gates if gate.name != GANG_GATE]
    if pod.spec.scheduling_gates:
        return f"it waits behind the scheduling gate {', '.join(foreign)}" if foreign else None
    condition = schedule_condition(pod)
    if condition is not None:
        return "" if condition.reason == "Unschedulable" else condition.message or condition.reason
    if other := other_scheduler(pod):
        return f"admission has given it to the scheduler {other}, which has not judged it"
    claims = ", ".join(claim.name for claim in pod.spec.resource_claims)
    return f"kube-scheduler has not judged it{f': its resource claim {claims} may be missing' if claims else ''}"
