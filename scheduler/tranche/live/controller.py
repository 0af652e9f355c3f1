"""Controller loop: passes watch changes to the planner as events and writes the plans to the API server."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.leader_election import Leadership
from tranche.kube.convert.trainingjob import plan_status, planned_condition, progress_status, status_object
from tranche.live import job_events, plan_fence, pod_timeouts
from tranche.live.chunk_requests import ChunkRequestQueue
from tranche.live.cluster_restore import ClusterTranslator, log_rejection
from tranche.live.event_backlog import Backlog, Change
from tranche.live.forecasting import Announcements, Forecasts
from tranche.live.informers import Informers, status_path
from tranche.live.lease_annotations import annotations_of, read_memory
from tranche.live.planner_metrics import Measurements
from tranche.live.pod_timeouts import PodAbsenceChecker, UnreachableNodes
from tranche.live.report_inbox import ReportInbox
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
    OpenWindow,
    Planner,
    PublishPlan,
    Tick,
    WorkerEnded,
)
from tranche.planner.handlers.progress import trained
from tranche.planner.learned_state import Memory, memory_of
from tranche.runtime.supervision import run_until_first_exit

logger = logging.getLogger(__name__)


class Controller:
    """Runs one planner against the cluster."""

    def __init__(
        self,
        client: ApiClient,
        watches: Informers,
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
        self.stopwatch = stopwatch
        self.writer = StatusWriter(client, metrics.count_status_write)
        self.reports = ReportInbox(planner, clock)
        self._wake = asyncio.Event()
        self.renewals = ChunkRequestQueue(planner, watches.jobs.store, clock, self._wake.set)
        self.term = 0
        """Term of the leader election; 0 before this process leads."""
        self._since = 0.0
        self._revision = 0
        self._translator = ClusterTranslator(
            watches.objects, planner, self.settings.gpu_resource, lambda: self.clock(), self._reject
        )
        self._sites = SiteStatuses(watches, planner, self.writer, self._translator.nodes)
        self._changes = Backlog(self._apply, stopwatch)
        self._unpublished: set[tuple[str, int]] = set()
        """Windows (job, attempt) that were in no written plan as open, so that their pods cannot exist."""
        self._absences = PodAbsenceChecker(client, self._look_for_timeouts)
        self._timeouts = pod_timeouts.Timeouts(
            self.settings.missing_pod_seconds,
            self.settings.unschedulable_seconds,
            watches.pods.store,
            UnreachableNodes(watches.nodes.store, watches.sites.store),
            self._unpublished,
            self._absences.confirmed_absent,
            startup=self._startup,
            node_start_seconds=self.settings.node_start_seconds,
        )
        self._announcements = Announcements(self.settings)
        self._forecasts = Forecasts(planner, self.settings, stopwatch, metrics.observe_forecast)
        self._measurements = Measurements(metrics, planner, clock)
        self._next_timeouts = 0.0
        for kind in ("pods", "nodes", "sites", "jobs", "quotas"):
            watches.by_kind(kind).subscribe(partial(self.note_change, kind))

    def note_change(self, kind: str, key: str, old: Any, new: Any) -> None:
        """Queue a change that a watch reported; before this process leads, the stores alone are enough."""
        if self.term:
            self._changes.append((kind, key, old, new))
            self._wake.set()

    async def run(self, leadership: Leadership) -> None:
        """Wait for leadership, restore the planner, and plan until an error.

        Args:
            leadership: Leader election, started when all watches are synced; the term fences plans of earlier planners.

        Raises:
            DeposedError: another process is the leader.
        """
        await self.watches.synced()
        logger.info("all watches are synced; waiting for the Lease")
        self.term = await leadership.take(self._largest_term)
        try:
            self.restore(read_memory(leadership.annotations))
            writing = self.writer.run(lambda: leadership.held)
            await run_until_first_exit(
                lease=leadership.keep(), writer=writing, absences=self._absences.run(), planner=self._plan()
            )
        finally:
            self.metrics.set_leading(leads=False)
            await leadership.release()

    def _startup(self, site: str) -> float | None:
        """Declared node start time of an unlimited site in seconds; None at other sites."""
        known = self.planner.cluster.sites.get(site)
        return known.start_seconds if known is not None and known.unlimited else None

    def _look_for_timeouts(self) -> None:
        self._next_timeouts = 0.0
        self._wake.set()

    def _largest_term(self) -> int:
        """Largest term of all plans."""
        plans = (job.status.plan for job in self.watches.jobs.store.values())
        return max((plan.term for plan in plans if plan), default=0)

    async def _plan(self) -> None:
        while True:
            await self._changes.catch_up()
            self.step()
            wakeup = self.planner.next_wakeup()
            pause = min(
                self.settings.tick_seconds, min(self._next_timeouts, self._forecasts.next_due) - self.stopwatch()
            )
            if wakeup is not None:
                pause = min(pause, wakeup - self.clock())
            try:
                await asyncio.wait_for(self._wake.wait(), max(0.0, pause))
            except TimeoutError:
                self.handle(Tick())
            self._wake.clear()

    # ---- events

    def memory_annotations(self) -> dict[str, str]:
        """Return the Lease annotations with what the planner has learnt; empty before the restore."""
        return annotations_of(memory_of(self.planner.cluster)) if self.reports.leading else {}

    def restore(self, memory: Memory | None = None) -> None:
        """Restore the planner's state from the watch stores and from what an earlier planner learnt."""
        self._changes.clear()
        self._since = self.clock()
        found = self._translator.restore(memory or Memory(), self.handle, self._adopt)
        for event in found:
            self._publish(event.job.key)
        self.reports.leading = True
        self._measurements.lead()
        logger.info("term %d: restored %d jobs on %d nodes", self.term, len(found), len(self.watches.nodes.store))

    def _adopt(self, found: Sequence[JobSubmitted], events: Iterator[Event]) -> None:
        with self.metrics.time_plan():
            self._instructed(self.planner.restore(found, self._since, self._measured(events)))

    def _measured(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            stopped = self._measurements.running(event)
            yield event
            self._measurements.handled(event, stopped)

    def _apply(self, change: Change) -> None:
        """Let the planner handle a change that a watch reported."""
        kind, key, old, new = change
        with self._translator.guard(new):
            if kind == "jobs":
                self._job_changed(key, old, new)
            else:
                for event in self._translator.events_of(kind, key, old, new):
                    self.handle(event)

    def _job_changed(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        if plan_fence.wrote_late(old, new, self.term):
            self._unpublished.difference_update([window for window in self._unpublished if window[0] == key])
            self.handle(JobRemoved(key))
            old = None
        for event in self._translator.events_of("jobs", key, old, new):
            self.handle(event)
        self.renewals.settle(key)
        self._measurements.changed(key, old, new)
        if new is None:
            self._announcements.forget(key)

    def step(self) -> None:
        """Process queued changes, reports and chunk requests, then refresh time-outs, estimates and sites."""
        self._changes.work_off()
        if reports := self.reports.drain():
            self._handle(reports)
            if self.reports.waiting:
                self._wake.set()  # continue after other tasks have run
        for asked in self.renewals.drain():
            self.handle(asked)
            self.renewals.settle(asked.request.job)
        elapsed = self.stopwatch()
        if elapsed >= self._next_timeouts:
            due = self._timeouts.due(self.planner.cluster.jobs.values(), self.clock(), elapsed)
            self._next_timeouts = min(elapsed + self.settings.tick_seconds, self._timeouts.next_due)
            for event in due:
                self.handle(event)
        now = self.clock()
        for key in self._announcements.outdated(self._forecasts.refresh(now), now):
            self._publish(key, lazy=True)
        self._sites.refresh(self.clock())

    def handle(self, event: Event) -> None:
        """Let the planner handle an event now, and write what follows from it."""
        stopped = self._measurements.running(event)
        self._handle((event,))
        self._measurements.handled(event, stopped)

    def _handle(self, events: Sequence[Event]) -> None:
        """Let the planner handle simultaneous events, and queue the status writes that follow."""
        with self.metrics.time_plan():
            instructions = self.planner.handle_all(events, self.clock())
        self._instructed(instructions)
        if not all(isinstance(event, Tick) for event in events):
            self._forecasts.stir()
        urgent = {i.job for i in instructions if not isinstance(i, PublishPlan)}
        urgent.update(event.request.job for event in events if isinstance(event, ChunksRequested))
        for key in self.planner.changed:
            self._publish(key, lazy=key not in urgent and self._goes_on(key))
        self._unpublished.difference_update((e.job, e.attempt) for e in events if isinstance(e, WorkerEnded))
        if any(isinstance(instruction, CloseWindow) for instruction in instructions):
            self._next_timeouts = 0.0  # the pod of the closing window may be missing
        if ended := self._ended_unpublished(instructions):
            self._handle(ended)

    def _ended_unpublished(self, instructions: list[Instruction]) -> list[WorkerEnded]:
        """End events of windows that close before they were in a written plan: no pod exists that must end first."""
        closed = [(i.job, i.window.attempt) for i in instructions if isinstance(i, CloseWindow)]
        return [WorkerEnded(*window, "Lost", self.clock()) for window in closed if window in self._unpublished]

    def _instructed(self, instructions: list[Instruction]) -> None:
        self._unpublished.update((i.job, i.window.attempt) for i in instructions if isinstance(i, OpenWindow))
        self._measurements.instructed(instructions)

    # ---- plans

    def _goes_on(self, key: str) -> bool:
        """Whether the job has not ended; then its progress can be written later."""
        state = self.planner.cluster.jobs.get(key)
        return state is not None and not (state.finished or state.failed)

    def _publish(self, key: str, *, lazy: bool = False) -> None:
        resource = self.watches.jobs.store.get(key)
        if resource is None:
            return
        self.writer.put(status_path(resource), lambda: self._status(key), lazy=lazy)

    def _status(self, key: str) -> dict[str, Any] | None:
        """Build the current status of the job; None if the planner or the API server does not know the job any more."""
        resource = self.watches.jobs.store.get(key)
        state = self.planner.cluster.jobs.get(key)
        if resource is None or state is None or state.job.uid != resource.metadata.uid:
            return None
        now = self.clock()
        plan = self.planner.plan_of(key, now)
        told = (window.attempt for window in plan.windows if window.state is not WindowState.CLOSING)
        self._unpublished.difference_update((key, attempt) for attempt in told)
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

    def _reject(self, description: str, observed: Any, error: ValueError) -> None:
        """Report an object that cannot be read: in the log, in the metrics and, for a job, in its status."""
        log_rejection(description, observed, error)
        self.metrics.count_error("object")
        if isinstance(observed, TrainingJob):
            body = job_events.refusal(observed, error, self.clock())
            self.writer.put(status_path(observed), lambda: body)
