"""The loop around the planner: watch changes in, events to the planner, plans to the API server."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tranche.kube.api.core_types import QuotaObject
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.leader_election import Leadership
from tranche.kube.convert.pod_identity import identity, owner_uid
from tranche.kube.convert.pods_and_nodes import NodeObject, Pod
from tranche.kube.convert.trainingjob import plan_status, planned_condition, progress_status, status_object, to_site
from tranche.live import job_events, plan_fence, pod_events, pod_timeouts
from tranche.live.chunk_requests import RenewalDesk
from tranche.live.event_backlog import Backlog, Change
from tranche.live.forecasting import Announcements, Forecasts
from tranche.live.foreign_usage import NodeBook, QuotaBook
from tranche.live.informers import Watches, status_path
from tranche.live.lease_annotations import annotations_of, read_memory
from tranche.live.planner_metrics import Measurements
from tranche.live.pod_timeouts import Absences, Silences
from tranche.live.report_inbox import ReportDesk
from tranche.live.settings import ControllerSettings
from tranche.live.site_status import SiteStatuses
from tranche.live.status_writer import StatusWriter
from tranche.metrics.scheduler import Metrics
from tranche.model import WindowState
from tranche.planner import (
    ChunksRequested,
    CloseWindow,
    Event,
    Instruction,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    Planner,
    PublishPlan,
    SiteChanged,
    SiteRemoved,
    Tick,
    WorkerEnded,
)
from tranche.planner.handlers.progress import trained
from tranche.planner.learned_state import Memory, memory_of, recall
from tranche.runtime.supervision import run_for_ever

logger = logging.getLogger(__name__)


class Controller:
    """Owns one planner and keeps it and the cluster in agreement."""

    def __init__(
        self,
        client: ApiClient,
        watches: Watches,
        planner: Planner,
        metrics: Metrics,
        settings: ControllerSettings | None = None,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watches = watches
        self.planner = planner
        self.metrics = metrics
        self.settings = settings or ControllerSettings()
        self.clock = clock
        self._stopwatch = stopwatch
        self.writer = StatusWriter(client, metrics.count_status_write)
        self.reports = ReportDesk(planner, clock)
        self._wake = asyncio.Event()
        self.renewals = RenewalDesk(planner, watches.jobs.store, clock, self._wake.set)
        self.term = 0
        """0 until we lead."""
        self._since = 0.0
        self._revision = 0
        self._book = NodeBook(self.settings.gpu_resource)
        self._sites = SiteStatuses(watches, planner, self.writer, self._book)
        self._quota_book = QuotaBook(self.settings.gpu_resource)
        self._changes = Backlog(self._hear, stopwatch)
        self._untold: set[tuple[str, int]] = set()
        """Windows (job, attempt) that have not been in a written plan as open: nobody can have created their pods."""
        self._absences = Absences(client, self._look_for_timeouts)
        self._timeouts = pod_timeouts.Timeouts(
            self.settings.missing_pod_seconds,
            self.settings.unschedulable_seconds,
            watches.pods.store,
            Silences(watches.nodes.store, watches.sites.store),
            self._untold,
            self._absences.sure,
            startup=self._startup,
            node_start_seconds=self.settings.node_start_seconds,
        )
        self._announcements = Announcements(self.settings)
        self._forecasts = Forecasts(planner, self.settings, stopwatch, metrics.observe_forecast)
        self._measurements = Measurements(metrics, planner, clock)
        self._next_timeouts = 0.0
        for kind in ("pods", "nodes", "sites", "jobs", "quotas"):
            watches.by_kind(kind).subscribe(self._noter(kind))

    def _noter(self, kind: str) -> Callable[[str, Any, Any], None]:
        def note(key: str, old: Any, new: Any) -> None:
            if self.term:  # until we lead, the stores say all that we need to know
                self._changes.append((kind, key, old, new))
                self._wake.set()

        return note

    async def run(self, leadership: Leadership) -> None:
        """Wait until we lead, and plan for ever.

        Args:
            leadership: Taken once all watches are in step; its term fences every plan of an earlier planner.

        Raises:
            DeposedError: when a newer planner has taken over.
        """
        await self.watches.synced()
        logger.info("ready; waiting for the lease")
        self.term = await leadership.take(self._largest_term)
        try:
            self.restore(read_memory(leadership.annotations))
            writing = self.writer.run(lambda: leadership.held)
            await run_for_ever(
                lease=leadership.keep(), writer=writing, absences=self._absences.run(), planner=self._plan()
            )
        finally:
            self.metrics.set_leading(leads=False)
            await leadership.release()

    def _startup(self, site: str) -> float | None:
        """How long the autoscaler of a site needs for a node, in seconds; None where nodes are there already."""
        known = self.planner.cluster.sites.get(site)
        return known.start_seconds if known is not None and known.unlimited else None

    def _look_for_timeouts(self) -> None:
        self._next_timeouts = 0.0
        self._wake.set()

    def _largest_term(self) -> int:
        """Of all plans that are there."""
        plans = (job.status.plan for job in self.watches.jobs.store.values())
        return max((plan.term for plan in plans if plan), default=0)

    async def _plan(self) -> None:
        while True:
            await self._changes.catch_up()
            self._step()
            wakeup = self.planner.next_wakeup()
            pause = min(
                self.settings.tick_seconds, min(self._next_timeouts, self._forecasts.next_due) - self._stopwatch()
            )
            if wakeup is not None:
                pause = min(pause, wakeup - self.clock())
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.0, pause))
            except TimeoutError:
                self._tell(Tick())
            self._wake.clear()

    # ---- events in

    def learnt(self) -> dict[str, str]:
        """Annotations that tell the next planner what this one has learnt; none before it has taken over."""
        return annotations_of(memory_of(self.planner.cluster)) if self.reports.leading else {}

    def restore(self, memory: Memory | None = None) -> None:
        """Build the planner's state from the API server, and from what an earlier one has learnt."""
        self._changes.clear()
        now = self._since = self.clock()
        for site in self.watches.sites.store.values():
            with self._guard(site):
                self._tell(SiteChanged(to_site(site)))
        for key, pod in self.watches.pods.store.items():
            with self._guard(pod):
                self._book.note_pod(key, pod)
                self._quota_book.note_pod(key, pod)
        for key, quota in self.watches.quotas.store.items():
            self._quotas_changed(key, None, quota)
        for name in self.watches.nodes.store:
            self._refresh_node(name)
        recall(self.planner.context, memory or Memory())
        found = self._found_jobs()
        with self.metrics.time_plan():
            self._instructed(self.planner.restore(found, now, self._found_events(found)))
        for event in found:
            self._publish(event.job.key)
        self.reports.leading = True
        self._measurements.lead()
        logger.info("term %d: took over %d jobs on %d nodes", self.term, len(found), len(self.watches.nodes.store))

    def _found_jobs(self) -> list[JobSubmitted]:
        """Jobs to go on with; from those that have succeeded the planner learns what they needed."""
        found: list[JobSubmitted] = []
        for resource in self.watches.jobs.store.values():
            with self._guard(resource):
                if not job_events.over(resource):
                    found.append(job_events.submission(resource, self.settings.gpu_resource, self.watches.pods.store))
                elif resource.status.phase == "Succeeded":
                    self.planner.remember(job_events.submission(resource, self.settings.gpu_resource))
        return found

    def _found_events(self, found: Sequence[JobSubmitted]) -> Iterator[Event]:
        """What has become of these jobs, which the planner knows, before it decides anything."""
        for submitted in found:
            resource = self.watches.jobs.store[submitted.job.key]
            for event in job_events.events_of(None, resource, self.settings.gpu_resource, self.watches.pods.store):
                if not isinstance(event, JobSubmitted):
                    yield event
        for pod in self.watches.pods.store.values():
            for event in self._pod_events(None, pod):
                stopped = self._measurements.running(event)
                yield event
                self._measurements.told(event, stopped)
        for namespace in sorted({key.partition("/")[0] for key in self.watches.quotas.store}):
            yield from self._quota_events(namespace)  # now that the planner counts our pods

    def _hear(self, change: Change) -> None:
        kind, key, old, new = change
        with self._guard(new):
            getattr(self, f"_{kind}_changed")(key, old, new)

    def _step(self) -> None:
        """Work off what the watches reported, then refresh estimates, sites and timers."""
        self._changes.work_off()
        if reports := self.reports.drain():
            self._handle(reports)
            if self.reports.waiting:
                self._wake.set()  # go on after others had their turn
        for asked in self.renewals.drain():
            self._tell(asked)
            self.renewals.settle(asked.request.job)
        elapsed = self._stopwatch()
        if elapsed >= self._next_timeouts:
            due = self._timeouts.due(self.planner.cluster.jobs.values(), self.clock(), elapsed)
            self._next_timeouts = min(elapsed + self.settings.tick_seconds, self._timeouts.next_due)
            for event in due:
                self._tell(event)
        now = self.clock()
        for key in self._announcements.outdated(self._forecasts.refresh(now), now):
            self._publish(key, lazy=True)
        self._sites.refresh(self.clock())

    def _tell(self, event: Event) -> None:
        stopped = self._measurements.running(event)
        self._handle((event,))
        self._measurements.told(event, stopped)

    def _handle(self, events: Sequence[Event]) -> None:
        """Tell the planner of what has happened at one time, and have written what comes of it."""
        with self.metrics.time_plan():
            instructions = self.planner.handle_all(events, self.clock())
        self._instructed(instructions)
        if not all(isinstance(event, Tick) for event in events):
            self._forecasts.stir()
        urgent = {i.job for i in instructions if not isinstance(i, PublishPlan)}
        urgent.update(event.request.job for event in events if isinstance(event, ChunksRequested))
        for key in self.planner.changed:
            self._publish(key, lazy=key not in urgent and self._goes_on(key))
        self._untold.difference_update((e.job, e.attempt) for e in events if isinstance(e, WorkerEnded))
        if any(isinstance(instruction, CloseWindow) for instruction in instructions):
            self._next_timeouts = 0.0  # the pod may be missing
        if unborn := self._unborn(instructions):
            self._handle(unborn)

    def _unborn(self, instructions: list[Instruction]) -> list[WorkerEnded]:
        """Windows that close before any plan has told of them: no pod will come, and nobody need wait for its end."""
        closed = [(i.job, i.window.attempt) for i in instructions if isinstance(i, CloseWindow)]
        return [WorkerEnded(*window, "Lost", self.clock()) for window in closed if window in self._untold]

    def _instructed(self, instructions: list[Instruction]) -> None:
        self._untold.update((i.job, i.window.attempt) for i in instructions if isinstance(i, OpenWindow))
        self._measurements.instructed(instructions)

    def _pods_changed(self, key: str, old: Pod | None, new: Pod | None) -> None:
        for name in self._book.note_pod(key, new):
            self._refresh_node(name)
        if self._quota_book.note_pod(key, new):  # before the planner hears of its end: the API server still counts it
            self._refresh_quotas(key.partition("/")[0])
        for event in self._pod_events(old, new):
            self._tell(event)

    def _pod_events(self, old: Pod | None, new: Pod | None) -> Iterator[Event]:
        replaced = old is not None and new is not None and old.metadata.uid != new.metadata.uid
        for before, after in ((old, None), (None, new)) if replaced else ((old, new),):
            if not self._is_namesakes(after or before):
                yield from pod_events.events_of(before, after, self.clock(), self.watches.pods.store.values)

    def _is_namesakes(self, pod: Pod | None) -> bool:
        """Whether the pod belongs to a deleted job whose name another job has now; its attempts are not that job's."""
        who = identity(pod) if pod is not None else None
        state = self.planner.cluster.jobs.get(who.job) if who is not None else None
        return pod is not None and state is not None and owner_uid(pod.metadata) != state.job.uid

    def _nodes_changed(self, name: str, old: NodeObject | None, new: NodeObject | None) -> None:
        self._refresh_node(name)

    def _refresh_node(self, name: str) -> None:
        """Tell the planner of a node if what it plans with has changed."""
        observed, node = self.watches.nodes.store.get(name), None
        if observed is not None:
            with self._guard(observed):
                node = self._book.node(observed, self.watches.sites.store)
        known = self.planner.cluster.nodes.get(name)
        if node is None and known is not None:
            self._tell(NodeRemoved(name))
        elif node is not None and (known is None or known.node != node):
            self._tell(NodeChanged(node))

    def _sites_changed(self, name: str, old: SiteObject | None, new: SiteObject | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        self._tell(SiteChanged(to_site(new)) if new is not None else SiteRemoved(name))
        for node in self.watches.nodes.store:
            self._refresh_node(node)

    def _quotas_changed(self, key: str, old: QuotaObject | None, new: QuotaObject | None) -> None:
        self._quota_book.note_quota(key, new)
        self._refresh_quotas(key.partition("/")[0])

    def _refresh_quotas(self, namespace: str) -> None:
        """Tell the planner of the namespace's quotas as far as they have changed."""
        for event in self._quota_events(namespace):
            self._tell(event)

    def _quota_events(self, namespace: str) -> Sequence[Event]:
        try:
            return self._quota_book.changes(namespace, self.planner.cluster.quotas)
        except ValueError as error:
            logger.error("a quota of namespace %s cannot be read: %s", namespace, error)
            self.metrics.count_error("object")
            return []

    def _jobs_changed(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        if plan_fence.wrote_late(old, new, self.term):
            self._untold.difference_update([window for window in self._untold if window[0] == key])
            self._tell(JobRemoved(key))
            old = None
        for event in job_events.events_of(old, new, self.settings.gpu_resource, self.watches.pods.store):
            self._tell(event)
            if isinstance(event, JobRemoved):  # pods that still stop are not the planner's any more
                self._refresh_quotas(key.partition("/")[0])
        self.renewals.settle(key)
        self._measurements.changed(key, old, new)
        if new is None:
            self._announcements.forget(key)

    # ---- plans out

    def _goes_on(self, key: str) -> bool:
        """Whether the job is not over: nobody waits for what a job that goes on has done so far."""
        state = self.planner.cluster.jobs.get(key)
        return state is not None and not (state.finished or state.failed)

    def _publish(self, key: str, *, lazy: bool = False) -> None:
        resource = self.watches.jobs.store.get(key)
        if resource is None:
            return
        self.writer.put(status_path(resource), lambda: self._status(key), lazy=lazy)

    def _status(self, key: str) -> dict[str, Any] | None:
        """The job's status as it is now; None if the planner or the API server does not know the job any more."""
        resource = self.watches.jobs.store.get(key)
        state = self.planner.cluster.jobs.get(key)
        if resource is None or state is None or state.job.uid != resource.metadata.uid:
            return None
        now = self.clock()
        plan = self.planner.plan_of(key, now)
        told = (window.attempt for window in plan.windows if window.state is not WindowState.CLOSING)
        self._untold.difference_update((key, attempt) for attempt in told)
        progress, known = self.planner.progress_of(key), trained(state, now)
        self._revision += 1
        self._announcements.note(key, plan)
        self._measurements.planned(key, plan)
        condition = planned_condition(plan, resource.metadata.generation, resource.status.conditions, now)
        status = {
            "plan": plan_status(plan, resource.metadata.uid, self.term, self._revision),
            "progress": progress_status(progress, state.job, known.batches, estimated=known.estimated),
            "conditions": [condition],
        }
        return status_object(resource, status, plan_fence.precondition(resource, self.term, self._since))

    @contextmanager
    def _guard(self, observed: Any) -> Iterator[None]:
        """An object that cannot be read is left out and told so; it must not stop the others."""
        try:
            yield
        except ValueError as error:
            self._refuse(observed, error)

    def _refuse(self, resource: Any, error: ValueError) -> None:
        """Say on the object itself, if it is a job, that it cannot be read."""
        name = getattr(getattr(resource, "metadata", None), "name", "?")
        logger.error("%s %s cannot be read: %s", type(resource).__name__, name, error)
        self.metrics.count_error("object")
        if isinstance(resource, TrainingJob):
            body = job_events.refusal(resource, error, self.clock())
            self.writer.put(status_path(resource), lambda: body)
