"""The loop around the planner: watch changes in, events to the planner, plans to the API server."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tranche.kube.clients import ApiClient
from tranche.kube.converts import plan_status, planned_condition, progress_status, status_object, to_site
from tranche.kube.metrics import Metrics
from tranche.kube.names import GPU_RESOURCE
from tranche.kube.objects import NodeObject, Pod
from tranche.kube.resources import SiteObject, TrainingJob
from tranche.kube.structs import QuotaObject
from tranche.live import jobs, pods, timeouts
from tranche.live.nodes import NodeBook
from tranche.live.quotas import QuotaBook
from tranche.live.sites import SiteStatuses
from tranche.live.views import API, Watches
from tranche.live.writers import StatusWriter
from tranche.model import JobPlan, WindowState
from tranche.planner import (
    Event,
    Instruction,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    Planner,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
    Tick,
    WorkerEnded,
    WorkerStarted,
)

logger = logging.getLogger(__name__)

Change = tuple[str, str, Any, Any]
"""Kind, key, old object, new object."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What can be set."""

    gpu_resource: str = GPU_RESOURCE
    """Resource name of the devices that are planned; ``cpu`` plans whole cores."""
    estimate_seconds: float = 300.0
    """Estimates are written again only when they moved by more than this …"""
    estimate_fraction: float = 0.1
    """… and by more than this fraction of the time that is left."""
    tick_seconds: float = 1.0
    """Longest pause between two looks at timers."""
    missing_pod_seconds: float = 2.0
    """A closing window without a pod counts as ended after this: its pod was never created."""
    unschedulable_seconds: float = 30.0
    """A pod that finds no node for this long, besides the longest grace period of a victim there, is planned anew."""
    forecast_share: float = 0.1
    """Share of the time that playing the plan forward may take."""


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
    ) -> None:
        self.watches = watches
        self.planner = planner
        self.metrics = metrics
        self.settings = settings or ControllerSettings()
        self.clock = clock
        self.writer = StatusWriter(client, metrics.count_status_write)
        self._sites = SiteStatuses(watches, planner, self.writer)
        self.term = 0
        self._revision = 0
        self._book = NodeBook(self.settings.gpu_resource)
        self._quota_book = QuotaBook(self.settings.gpu_resource)
        self._changes: deque[Change] = deque()
        self._wake = asyncio.Event()
        self._untold: set[tuple[str, int]] = set()
        """Windows (job, attempt) that have not been in a written plan as open: nobody can have created their pods."""
        self._timeouts = timeouts.Timeouts(
            self.settings.missing_pod_seconds, self.settings.unschedulable_seconds, watches.pods.store, self._untold
        )
        self._published: dict[str, tuple[float | None, float | None]] = {}
        """Estimates as last written, by job."""
        self._next_forecast = 0.0
        self._next_timeouts = 0.0
        self._forecast_due = True
        self._finished: set[str] = set()
        for kind in ("pods", "nodes", "sites", "jobs", "quotas"):
            watches.by_kind(kind).subscribe(self._noter(kind))

    def _noter(self, kind: str) -> Callable[[str, Any, Any], None]:
        def note(key: str, old: Any, new: Any) -> None:
            self._changes.append((kind, key, old, new))
            self._wake.set()

        return note

    async def run(self, take_term: Callable[[int], Awaitable[int]]) -> None:
        """Plan for ever.

        Args:
            take_term: Awaited once all watches are in step, with the largest term seen; its answer is larger and fences
                every plan of an earlier process.

        Raises:
            DeposedError: when a newer planner has taken over.
        """
        await self.watches.synced()
        plans = (job.status.plan for job in self.watches.jobs.store.values())
        self.term = await take_term(max((plan.term for plan in plans if plan), default=0))
        self._restore()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writer.run())
            group.create_task(self._plan())

    async def _plan(self) -> None:
        while True:
            self._step()
            wakeup = self.planner.next_wakeup()
            pause = self.settings.tick_seconds
            if wakeup is not None:
                pause = min(pause, max(0.0, wakeup - self.clock()))
            try:
                await asyncio.wait_for(self._wake.wait(), pause)
            except TimeoutError:
                self._tell(Tick())
            self._wake.clear()

    # ---- events in

    def _restore(self) -> None:
        """Build the planner's state from the API server: sites, nodes, jobs with their plans, then pods."""
        self._changes.clear()
        now = self.clock()
        for site in self.watches.sites.store.values():
            with self._guard(site):
                self._tell(SiteChanged(to_site(site)))
        for key, pod in self.watches.pods.store.items():
            with self._guard(pod):
                self._book.note_pod(key, pod)
                self._quota_book.note_pod(key, pod)
        for key, quota in self.watches.quotas.store.items():
            self._quotas_changed(key, None, quota)
        for name, node in self.watches.nodes.store.items():
            with self._guard(node):
                self._refresh_node(name)
        found = self._found_jobs()
        with self.metrics.time_plan():
            self._note_openings(self.planner.restore(found, now))
        for event in found:
            resource = self.watches.jobs.store[event.job.key]
            for more in jobs.events_of(None, resource, self.settings.gpu_resource):
                if not isinstance(more, JobSubmitted):
                    self._tell(more)
            self._publish(event.job.key)
        for key, pod in list(self.watches.pods.store.items()):
            self._pod_changed(key, None, pod)
        for namespace in {key.partition("/")[0] for key in self.watches.quotas.store}:
            self._refresh_quotas(namespace)  # now that the planner counts our pods
        logger.info("term %d: took over %d jobs on %d nodes", self.term, len(found), len(self.watches.nodes.store))

    def _found_jobs(self) -> list[JobSubmitted]:
        """Jobs to go on with; from those that have succeeded the planner learns what they needed."""
        found: list[JobSubmitted] = []
        for resource in self.watches.jobs.store.values():
            with self._guard(resource):
                if not jobs.over(resource):
                    found.append(jobs.submission(resource, self.settings.gpu_resource))
                elif resource.status.phase == "Succeeded":
                    self.planner.remember(jobs.submission(resource, self.settings.gpu_resource))
        return found

    def _step(self) -> None:
        """Work off what the watches reported, then refresh estimates, sites and timers."""
        while self._changes:
            kind, key, old, new = self._changes.popleft()
            with self._guard(new):
                getattr(self, f"_{kind}_changed")(key, old, new)
        if self.clock() >= self._next_timeouts:
            self._next_timeouts = self.clock() + self.settings.tick_seconds
            for event in self._timeouts.due(self.planner.cluster.jobs.values(), self.clock()):
                self._tell(event)
        self._refresh_estimates()
        self._sites.refresh(self.clock())

    def _tell(self, event: Event) -> None:
        now = self.clock()
        ending = self._ending(event)
        with self.metrics.time_plan():
            self._note_openings(self.planner.handle(event, now))
        if ending:
            self.metrics.count_preemption(ending)
        if not isinstance(event, Tick):
            self._forecast_due = True
        if isinstance(event, WorkerStarted):
            self._measure_start(event)
        elif isinstance(event, WorkerEnded):
            self._untold.discard((event.job, event.attempt))
        for key in self.planner.changed:
            self._publish(key)

    def _note_openings(self, instructions: list[Instruction]) -> None:
        self._untold.update((i.job, i.window.attempt) for i in instructions if isinstance(i, OpenWindow))

    def _ending(self, event: Event) -> str:
        """Why a running worker stops before its end; empty if the event is of another kind."""
        if not isinstance(event, WorkerEnded) or event.outcome not in ("Preempted", "Lost"):
            return ""
        state = self.planner.cluster.jobs.get(event.job)
        run = state.runs.get(event.attempt) if state else None
        if run is None or run.started is None:
            return ""
        return "planned" if run.closing else event.outcome.lower()

    def _measure_start(self, event: WorkerStarted) -> None:
        state = self.planner.cluster.jobs.get(event.job)
        run = state.runs.get(event.attempt) if state else None
        if run is not None and run.started == event.at:
            self.metrics.observe_window_start(event.at - run.opened, handover=run.handover)

    def _pods_changed(self, key: str, old: Pod | None, new: Pod | None) -> None:
        for name in self._book.note_pod(key, new):
            self._refresh_node(name)
        if self._quota_book.note_pod(key, new):  # before the planner hears of its end: the API server still counts it
            self._refresh_quotas(key.partition("/")[0])
        self._pod_changed(key, old, new)

    def _pod_changed(self, key: str, old: Pod | None, new: Pod | None) -> None:
        replaced = old is not None and new is not None and old.metadata.uid != new.metadata.uid
        for before, after in ((old, None), (None, new)) if replaced else ((old, new),):
            for event in pods.events_of(before, after, self.clock()):
                self._tell(event)

    def _nodes_changed(self, name: str, old: NodeObject | None, new: NodeObject | None) -> None:
        self._refresh_node(name)

    def _refresh_node(self, name: str) -> None:
        """Tell the planner of a node if what it plans with has changed."""
        observed = self.watches.nodes.store.get(name)
        node = self._book.node(observed, self.watches.sites.store) if observed is not None else None
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
        known = self.planner.cluster.quotas
        try:
            present = {quota.name: quota for quota in self._quota_book.quotas(namespace, known.holds)}
        except ValueError as error:
            logger.error("a quota of namespace %s cannot be read: %s", namespace, error)
            return
        for name in set(known.by_namespace.get(namespace, {})).difference(present):
            self._tell(QuotaRemoved(namespace, name))
        for name, quota in present.items():
            if known.by_namespace.get(namespace, {}).get(name) != quota:
                self._tell(QuotaChanged(quota))

    def _jobs_changed(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        for event in jobs.events_of(old, new, self.settings.gpu_resource):
            self._tell(event)
            if isinstance(event, JobRemoved):  # pods that still stop are not the planner's any more
                self._refresh_quotas(key.partition("/")[0])
        if new is None:
            self._published.pop(key, None)
            self._finished.discard(key)
        elif new.status.phase == "Succeeded" and key not in self._finished:
            self._finished.add(key)
            if old is not None and old.status.phase != "Succeeded":
                self.metrics.observe_completion(new)

    # ---- plans out

    def _publish(self, key: str) -> None:
        resource = self.watches.jobs.store.get(key)
        if resource is None:
            return
        self.writer.put(_status_path(resource), lambda: self._status(key))

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
        progress = self.planner.progress_of(key)
        self._revision += 1
        self._published[key] = (plan.estimated_start, plan.estimated_completion)
        condition = planned_condition(plan, resource.metadata.generation, resource.status.conditions, now)
        status = {
            "plan": plan_status(plan, resource.metadata.uid, self.term, self._revision),
            "progress": progress_status(progress, state.job.chunks),
            "conditions": [condition],
        }
        return status_object(resource, status)

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
        if isinstance(resource, TrainingJob):
            plan = JobPlan(resource.metadata.generation, f"cannot be read: {error}", unplannable="InvalidSpec")
            known = resource.status.conditions
            condition = planned_condition(plan, resource.metadata.generation, known, self.clock())
            # An apply without plan and ledger would take them away.
            kept = resource.status.model_dump(
                include={"plan", "progress"}, by_alias=True, exclude_none=True, mode="json"
            )
            body = status_object(resource, {**kept, "conditions": [condition]})
            self.writer.put(_status_path(resource), lambda: body)

    def _refresh_estimates(self) -> None:
        """Play the plan forward, as often as its cost allows, and publish what moved far."""
        now = self.clock()
        if not self._forecast_due or now < self._next_forecast:
            return
        began = time.perf_counter()
        estimates = self.planner.forecast(now)
        self._forecast_due = False
        self._next_forecast = now + (time.perf_counter() - began) / self.settings.forecast_share
        for key, estimate in estimates.items():
            start, completion = self._published.get(key, (None, None))
            if self._moved(start, estimate.start, now) or self._moved(completion, estimate.completion, now):
                self._publish(key)

    def _moved(self, before: float | None, after: float, now: float) -> bool:
        if before is None:
            return True
        quantum = max(self.settings.estimate_seconds, self.settings.estimate_fraction * max(0.0, before - now))
        return abs(after - before) > quantum


def _status_path(resource: TrainingJob) -> str:
    return f"{API}/namespaces/{resource.metadata.namespace}/trainingjobs/{resource.metadata.name}/status"
