"""Controller loop: passes watch changes to the planner as events and writes the plans to the API server."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, starmap
from typing import Any

from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.client.leader_election import Leadership
from tranche.kube.convert.pod_identity import controlled_identity
from tranche.kube.convert.tenancy import TenancyDirectory
from tranche.kube.convert.trainingjob import (
    claim_conditions,
    limited_claims,
    plan_status,
    planned_condition,
    progress_status,
    status_object,
    unplaced_conditions,
)
from tranche.live import job_events, plan_fence
from tranche.live.chunk_requests import ChunkRequestQueue
from tranche.live.cluster_translator import ClusterTranslator, log_rejection
from tranche.live.decision_log import DecisionLog
from tranche.live.forecasting import Forecasts
from tranche.live.informers import Informers, status_path
from tranche.live.lease_annotations import LEARNED_ANNOTATION, learned_text, read_learned_state, scheduler_annotation
from tranche.live.planner_inbox import Backlog, Change, ReportInbox
from tranche.live.planner_metrics import PlannerMetrics
from tranche.live.pods import pod_timeouts
from tranche.live.pods.pod_check import PodChecker
from tranche.live.pods.scheduler_watch import SchedulerWatch
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.live.settings import ControllerSettings
from tranche.live.site_status import SiteStatuses
from tranche.live.status_renewal import EstimateRenewal, ProgressRenewal
from tranche.live.status_writer import Priority, StatusWriter
from tranche.metrics.scheduler import Metrics
from tranche.model import WindowState
from tranche.planner import (
    ChunksRequested,
    CloseWindow,
    Event,
    Instruction,
    JobRemoved,
    JobSubmitted,
    JobUnreadable,
    KubeSchedulerChanged,
    OpenWindow,
    Planner,
    PlanRejected,
    PublishPlan,
    TenancyChanged,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.handlers.progress import training_progress
from tranche.planner.learned_state import LearnedState, learned_state_of
from tranche.runtime.steady_clock import SteadyClock
from tranche.runtime.supervision import run_until_first_exit

logger = logging.getLogger(__name__)
TIMEOUT_SHARE = 0.2
"""Largest share of the time that checks of timeouts take. With 50,000 pods, each takes a tenth of a second or more,
and each change of a job with closing windows requests one."""


class Controller:
    """Runs one planner against the cluster."""

    def __init__(
        self,
        client: ApiClient,
        watches: Informers,
        planner: Planner,
        metrics: Metrics,
        settings: ControllerSettings | None = None,
        clock: Callable[[], float] | None = None,
        stopwatch: Callable[[], float] = time.monotonic,
        tenancy: TenancyDirectory | None = None,
    ) -> None:
        self.watches = watches
        self.planner = planner
        self.metrics = metrics
        self.settings = settings or ControllerSettings()
        self._steady: SteadyClock | None = None
        if clock is None:
            clock = self._steady = SteadyClock(client.server_time)
        self.clock = clock
        self.stopwatch = stopwatch
        self.tenancy = tenancy or TenancyDirectory(None)
        self.writer = StatusWriter(client, metrics.count_status_write, rejected=self._status_rejected)
        self.reports = ReportInbox(planner, clock)
        self._wake = asyncio.Event()
        self.chunk_requests = ChunkRequestQueue(planner, watches.jobs.store, clock, self._wake.set)
        self.term = 0
        """Term of the leader election; 0 before this process leads."""
        self._since = self._restored_at = 0.0
        self._revision = 0
        self._translator = ClusterTranslator(
            watches.objects, planner, self.settings.gpu_resources, lambda: self.clock(), self._reject, self._check_plan
        )
        self._rejections = job_events.Rejections()
        self._sites = SiteStatuses(watches, planner, self.writer, self._translator.nodes)
        self._changes = Backlog(self._apply, stopwatch)
        self._unpublished: set[tuple[str, int]] = set()
        """Windows (job, attempt) that were in no written plan as open, so that their pods cannot exist."""
        self._being_written: dict[str, set[tuple[str, int]]] = {}
        """Windows that were in no written plan before the job's last write, by job."""
        self._inherited: set[str] = set()
        """UIDs of the jobs for which a late write of the previous leader may arrive."""
        self._checks = PodChecker(client, self._look_for_timeouts)
        self._scheduler = SchedulerWatch(self.settings.scheduler_silence_seconds, self.settings.provisioning_seconds)
        self._timeouts = self._create_timeouts()
        self._estimates = EstimateRenewal(self.settings)
        self._progress = ProgressRenewal(self.settings)
        self._forecasts = Forecasts(
            planner, self.settings, stopwatch, metrics.observe_forecast, lambda: self.writer.is_holding_reports
        )
        self._planner_metrics = PlannerMetrics(metrics, planner, clock)
        self._decisions = DecisionLog(planner)
        self._next_timeouts = self._timeouts_not_before = self._next_tenancy = 0.0
        self._silent_since: float | None = None
        """Time since which kube-scheduler does not respond; None if it does."""
        self._omitted: tuple[str, ...] = ()
        """Parts of the learned state that the Lease had no room for when it was last written."""
        for kind in ("pods", "nodes", "sites", "jobs", "quotas"):
            watches.by_kind(kind).subscribe(partial(self.note_change, kind))

    def _create_timeouts(self) -> pod_timeouts.Timeouts:
        return pod_timeouts.Timeouts(
            self.settings,
            self.planner.cluster,
            self.watches.pods.store,
            UnreachableNodes(self.watches.nodes.store, self.watches.sites.store),
            self._scheduler,
            self._checks,
            unpublished=self._unpublished,
            may_be_created=self._may_be_created,
        )

    def _may_be_created(self, job: str, attempt: int) -> bool:
        """Return whether the operator may create the pod of an attempt.

        It may by the plan that the watch has last shown, and by a later one whose write is not answered.
        """
        known = self.watches.jobs.store.get(job)
        if known is None:
            return False
        if self.writer.is_unsettled(status_path(known)):
            return True
        plan = known.status.plan
        return plan is not None and any(one.attempt == attempt and one.state == "Open" for one in plan.entries)

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
            LeadershipLostError: another process is the leader.
        """
        await self.watches.synced()
        logger.info("all watches are synced; waiting for the Lease")
        self.reports.holds_lease = lambda: leadership.held
        self.term = await leadership.take(self._largest_term)
        if self._steady is not None:
            self._steady.synchronize()
        try:
            self.restore(read_learned_state(leadership.annotations))
            writing = self.writer.run(lambda: leadership.held)
            await run_until_first_exit(
                lease=leadership.keep(), writer=writing, checks=self._checks.run(), planner=self._plan()
            )
        finally:
            self.metrics.set_leading(leads=False)
            await leadership.release()

    def _look_for_timeouts(self) -> None:
        self._next_timeouts = 0.0
        self._wake.set()

    def _largest_term(self) -> int:
        return plan_fence.largest_known_term(self.watches.jobs.store.values())

    async def _plan(self) -> None:
        while True:
            await self._changes.catch_up()
            self.step()
            wakeup = self.planner.next_wakeup()
            due = min(max(self._next_timeouts, self._timeouts_not_before), self._forecasts.next_due)
            pause = min(self.settings.tick_seconds, due - self.stopwatch())
            if wakeup is not None:
                pause = min(pause, wakeup - self.clock())
            await asyncio.sleep(0)  # other tasks run even if there is more to do
            try:
                # asyncio.wait_for of Python 3.11 loses a cancellation at the moment of the event, and with it SIGTERM.
                async with asyncio.timeout(max(0.0, pause)):
                    await self._wake.wait()
            except TimeoutError:
                self.handle(Tick())
            self._wake.clear()

    # ---- events

    def learned_annotations(self) -> dict[str, str]:
        """Return the Lease annotations with what the leader has learned and observed; empty before the restore."""
        if not self.reports.restored:
            return {}
        text, omitted = learned_text(learned_state_of(self.planner.cluster, self.clock()))
        if omitted and omitted != self._omitted:
            logger.warning("the learned state is too large for the Lease: it is written without %s", ", ".join(omitted))
        self._omitted = omitted
        return {LEARNED_ANNOTATION: text, **scheduler_annotation(self._silent_since)}

    def restore(self, learned: LearnedState | None = None) -> None:
        """Restore the planner's state from the watch stores and from what an earlier planner learned."""
        self._changes.clear()
        self._since = self.clock()
        self._restored_at = self.stopwatch()
        self._inherited = {job.metadata.uid for job in self.watches.jobs.store.values()}
        if self.tenancy.reload():
            self.handle(TenancyChanged(self.tenancy.current))
        pods = [pod for pod in self.watches.pods.store.values() if controlled_identity(pod) is not None]
        if not self._scheduler.take_over(pods, self._since, self._restored_at):
            self.handle(KubeSchedulerChanged(responds=False))
            self._note_scheduler(responds=False)
        found = self._translator.restore(learned or LearnedState(), self.handle, self._adopt)
        for event in found:
            self._publish(event.job.key)
        self.reports.restored = True
        self._planner_metrics.lead()
        logger.info("term %d: restored %d jobs on %d nodes", self.term, len(found), len(self.watches.nodes.store))

    def _adopt(self, found: Sequence[JobSubmitted], events: Iterator[Event]) -> None:
        with self.metrics.time_plan():
            instructions = self.planner.restore(found, self._since, self._measured(events))
        self._instructed(instructions)
        self._decisions.restored(self._since)
        self._decisions.took_over(instructions, self._since)

    def _measured(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            stopped = self._planner_metrics.running(event)
            yield event
            self._planner_metrics.handled(event, stopped)

    def _apply(self, changes: Sequence[Change]) -> None:
        """Let the planner handle a change that a watch reported, or several changes of nodes, with one decision."""
        kind, key, old, new = changes[0]
        if kind == "jobs":
            self._job_changed(key, old, new)
            return
        events = chain.from_iterable(starmap(self._events_of, changes))
        if kind == "nodes":
            if (first := next(events, None)) is not None:
                self._handle(chain((first,), events))
        else:
            for event in events:
                self.handle(event)
        if not self._scheduler.responds:
            self._next_timeouts = 0.0  # this pod may show that kube-scheduler responds again

    def _events_of(self, kind: str, key: str, old: Any, new: Any) -> Iterator[Event]:
        return self._translator.guarded(new, self._translator.events_of(kind, key, old, new))

    def _job_changed(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        resource = new or old
        if self._rejections.has_changed(key, new) and resource is not None:
            self.writer.retry_now(status_path(resource))  # if the job is gone, another one may get its name
        if old is None and new is not None and self._is_taking_over():
            self._inherited.add(new.metadata.uid)
        if new is None and old is not None:
            self._inherited.discard(old.metadata.uid)
            self._being_written.pop(key, None)
        invalid = self._is_invalid(new)
        is_late = key in self.planner.cluster.jobs and plan_fence.wrote_late(old, new, self.term)
        if is_late or (invalid and key in self.planner.cluster.jobs):
            self._forget_unpublished(key)
            self.handle(JobRemoved(key, stays=is_late and not invalid))
        if not invalid:
            before = old if key in self.planner.cluster.jobs else None
            for event in self._translator.guarded(new, self._translator.events_of("jobs", key, before, new)):
                self.handle(event._replace(returns=is_late) if isinstance(event, JobSubmitted) else event)
        if _is_user_change(old, new):
            self._estimates.job_changed(key)
            self._forecasts.skip_quiet_time()
        self.chunk_requests.settle(key)
        state = self.planner.cluster.jobs.get(key)
        if state is not None and (state.has_closing_servers or any(run.closing for run in state.runs.values())):
            self._next_timeouts = 0.0  # from this plan on, no pod of a closing window may be created
        self._planner_metrics.changed(key, old, new)
        if new is None:
            self._estimates.forget(key)
            self._progress.note(key, None, self.clock())
            self._forget_unpublished(key)

    def _forget_unpublished(self, key: str) -> None:
        self._unpublished -= {window for window in self._unpublished if window[0] == key}

    def step(self) -> None:
        """Process queued changes, reports and chunk requests, then refresh timeouts, estimates and sites."""
        self._changes.apply_all()
        if reports := self.reports.drain():
            self._handle(reports)
        if asked := self.chunk_requests.drain():
            self._handle(asked)
            attempts: dict[str, list[int]] = {}
            for request in (one.request for one in asked):
                attempts.setdefault(request.job, []).append(request.attempt)
            for key, of_job in attempts.items():
                self.chunk_requests.settle(key, of_job)
        if self.reports.waiting or self.chunk_requests.waiting:
            self._wake.set()  # continue after other tasks have run
        elapsed = self.stopwatch()
        if elapsed >= max(self._next_timeouts, self._timeouts_not_before):
            self._check_timeouts(elapsed)
        now = self.clock()
        for key in self._estimates.outdated(self._forecasts.refresh(now), now):
            self._publish(key, Priority.REPORT)
        if outdated := self._progress.outdated(self._share, now):
            self._publish(outdated, Priority.REPORT)
        self._sites.refresh(now)
        self._decisions.flush(now)
        if elapsed >= self._next_tenancy:
            self._next_tenancy = elapsed + self.settings.tenancy_seconds
            self._refresh_tenancy()

    def _check_timeouts(self, began: float) -> None:
        """Handle the events of conditions that have lasted too long."""
        due = self._timeouts.due(self.planner.cluster.jobs.values(), self.clock(), began)
        self._next_timeouts = min(began + self.settings.tick_seconds, self._timeouts.next_due)
        self._timeouts_not_before = began + (self.stopwatch() - began) / TIMEOUT_SHARE
        for timeout in due:
            self.handle(timeout)
            if isinstance(timeout, KubeSchedulerChanged):
                self._note_scheduler(responds=timeout.responds)

    def _refresh_tenancy(self) -> None:
        """Apply changed limits of namespaces to all jobs."""
        if not self.tenancy.reload():
            return
        logger.info("the limits of namespaces have changed")
        self.handle(TenancyChanged(self.tenancy.current))
        for event in self._translator.all_jobs_changed():
            self.handle(event)

    def handle(self, event: Event) -> None:
        """Let the planner handle an event now, and write what follows from it."""
        stopped = self._planner_metrics.running(event)
        self._handle((event,))
        self._planner_metrics.handled(event, stopped)

    def _handle(self, given: Iterable[Event]) -> None:
        """Let the planner handle simultaneous events, and queue the status writes that follow."""
        events: list[Event] = []
        with self.metrics.time_plan():
            instructions = self.planner.handle_all(self._noted(given, events), self.clock())
        self._instructed(instructions)
        self._decisions.decided(instructions, events, self.clock())
        if not all(isinstance(event, Tick) for event in events):
            self._forecasts.note_event()
        if any(isinstance(event, WorkerBound | WorkerStarted) for event in events):
            self.writer.hold_reports()
        urgent = {i.job for i in instructions if not isinstance(i, PublishPlan)}
        urgent.update(event.request.job for event in events if isinstance(event, ChunksRequested))
        for key in self.planner.changed:
            self._publish(key, Priority.REPORT if key not in urgent and self._has_not_ended(key) else Priority.HIGH)
        self._unpublished.difference_update((e.job, e.attempt) for e in events if isinstance(e, WorkerEnded))
        if any(isinstance(instruction, CloseWindow) for instruction in instructions):
            self._next_timeouts = 0.0  # the pod of the closing window may be missing
        if ended := self._ended_unpublished(instructions):
            self._handle(ended)

    def _noted(self, given: Iterable[Event], events: list[Event]) -> Iterator[Event]:
        """Yield the given events and those that follow from them, and add all of them to the list."""
        for event in self._translator.followed(given):
            events.append(event)
            yield event

    def _ended_unpublished(self, instructions: list[Instruction]) -> list[WorkerEnded]:
        """End events of windows that close before they were in a written plan: no pod exists that must end first."""
        closed = [(i.job, i.window.attempt) for i in instructions if isinstance(i, CloseWindow)]
        return [WorkerEnded(*window, "Lost", self.clock()) for window in closed if window in self._unpublished]

    def _instructed(self, instructions: list[Instruction]) -> None:
        self._unpublished.update((i.job, i.window.attempt) for i in instructions if isinstance(i, OpenWindow))
        self._planner_metrics.instructed(instructions)

    def _note_scheduler(self, *, responds: bool) -> None:
        self.metrics.set_scheduler_responds(responds=responds)
        if responds:
            self._silent_since = None
            logger.info("kube-scheduler responds again: preemption resumes")
        else:
            self._silent_since = self.clock()
            logger.warning("kube-scheduler has neither bound nor judged a waiting pod: preemption pauses")

    # ---- plans

    def _has_not_ended(self, key: str) -> bool:
        """Return whether the job has not ended; then its progress can be written later."""
        state = self.planner.cluster.jobs.get(key)
        return state is not None and not (state.finished or state.failed)

    def _publish(self, key: str, priority: Priority = Priority.HIGH) -> None:
        resource = self.watches.jobs.store.get(key)
        if resource is None:
            return
        plan = resource.status.plan
        if priority is Priority.REPORT and (plan is None or plan.term != self.term):
            # The operator checks the template after the first plan, and the first one of a term fences earlier leaders.
            priority = Priority.LOW
        self.writer.put(status_path(resource), lambda: self._status(key), priority)

    def _share(self, key: str) -> float | None:
        """Return the trained fraction of a job; None if it does not run."""
        state = self.planner.cluster.jobs.get(key)
        return training_progress(state, self.clock()).fraction if state is not None and state.runs else None

    def _status(self, key: str) -> dict[str, Any] | None:
        """Build the current status of the job; None if the planner or the API server does not know the job any more."""
        resource = self.watches.jobs.store.get(key)
        state = self.planner.cluster.jobs.get(key)
        if resource is None or state is None or state.job.uid != resource.metadata.uid:
            return None
        now = self.clock()
        plan = self.planner.plan_of(key, now)
        open_windows = {(key, window.attempt) for window in plan.windows if window.state is not WindowState.CLOSING}
        self._being_written[key] = open_windows & self._unpublished
        self._unpublished -= open_windows
        progress, known = self.planner.progress_of(key), training_progress(state, now)
        self._revision += 1
        self._estimates.note(key, plan)
        self._progress.note(key, known.fraction if state.runs else None, now)
        self._planner_metrics.planned(key, plan)
        self._decisions.planned(key, plan, now)
        known_conditions = resource.status.conditions
        condition = self._rejections.condition(resource, now, job_events.INVALID_SPEC)
        if condition is None:
            condition = planned_condition(plan, resource.metadata.generation, known_conditions, now)
        else:  # the operator stops only pods of closing windows by a plan for an earlier generation
            plan = replace(plan, generation=resource.metadata.generation)
        status = {
            "plan": plan_status(plan, resource.metadata.uid, self.term, self._revision)
            | limited_claims(resource, state.job),
            "progress": progress_status(progress, state.job, known.batches, estimated=known.estimated),
            "conditions": [
                condition,
                *unplaced_conditions(plan, resource.metadata.generation, known_conditions, now),
                *claim_conditions(plan, state.job, known_conditions, now),
            ],
        }
        inherited = resource.metadata.uid in self._inherited and self._is_recent_leader()
        version = plan_fence.precondition(resource, self.term, is_inherited=inherited)
        if version is None:
            self._inherited.discard(resource.metadata.uid)
        return status_object(resource, status, version)

    # ---- rejections

    def _reject(self, description: str, observed: Any, error: ValueError) -> None:
        """Report an object that cannot be read: in the log, in the metrics and, for a job, in its status."""
        if not isinstance(observed, TrainingJob):
            log_rejection(description, observed, error)
            self.metrics.count_error("object")
            return
        description = f"TrainingJob {observed.key}"
        invalid = isinstance(error, plan_fence.InvalidPlanError)
        reason = job_events.INVALID_PLAN if invalid else job_events.INVALID_SPEC
        if not self._rejections.note(observed, reason, str(error) if invalid else f"cannot be read: {error}"):
            return
        log_rejection(description, observed, error)
        self.metrics.count_error("object")
        state = self.planner.cluster.jobs.get(observed.key)
        if state is not None and state.job.uid == observed.metadata.uid and not invalid:
            self.handle(JobUnreadable(observed.key, reason, f"its specification cannot be read: {error}"))
            self._publish(observed.key)
        else:
            self._report_rejection(observed.key)

    def _is_taking_over(self) -> bool:
        """Return whether a write of an earlier leader may still arrive; the first leader of all has none before it."""
        return self.term > 1 and self._is_recent_leader()

    def _is_recent_leader(self) -> bool:
        return self.stopwatch() - self._restored_at < plan_fence.LATE_WRITE_SECONDS

    def _check_plan(self, job: TrainingJob) -> None:
        plan_fence.check(job, self.term, self._revision)

    def _is_invalid(self, job: TrainingJob | None) -> bool:
        """Return whether the job has a plan that no planner can have written; this is reported once."""
        try:
            plan_fence.check(job, self.term, self._revision)
        except plan_fence.InvalidPlanError as error:
            self._reject("TrainingJob", job, error)
            return True
        return False

    def _status_rejected(self, path: str, error: ApiError) -> None:
        """Let the planner release the capacity of a job whose plan was not written, and report the rejection."""
        namespace, _, name = path.partition("/namespaces/")[2].removesuffix("/status").partition("/trainingjobs/")
        resource = self.watches.jobs.store.get(f"{namespace}/{name}")
        if resource is None:  # the job is gone, or this is the status of a Site
            return
        self._unpublished |= self._being_written.pop(resource.key, set())
        if self._rejections.note(resource, job_events.STATUS_REJECTED, str(error)):
            self._report_rejection(resource.key)
        self.handle(PlanRejected(resource.key, str(error)[: job_events.MESSAGE_LENGTH]))

    def _report_rejection(self, key: str) -> None:
        def build() -> dict[str, Any] | None:
            resource = self.watches.jobs.store.get(key)
            return self._rejections.status(resource, self.clock()) if resource is not None else None

        resource = self.watches.jobs.store.get(key)
        if resource is not None:
            self.writer.put_condition(status_path(resource), build)


def _is_user_change(old: TrainingJob | None, new: TrainingJob | None) -> bool:
    """Return whether a user has changed the specification of a job, or has deleted a job that had not ended."""
    if old is None or job_events.is_job_over(old):
        return False
    if new is None or new.metadata.deletion_timestamp is not None:
        return True
    return new.metadata.generation != old.metadata.generation
