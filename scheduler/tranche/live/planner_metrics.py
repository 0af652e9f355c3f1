"""Metrics of the leader, from planner events, written plans and watched jobs."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from math import inf
from typing import NamedTuple

from tranche.kube.api.resources import TrainingJob
from tranche.kube.api.status import PlannedInterval
from tranche.kube.convert.trainingjob import gpu_seconds_per_batch
from tranche.metrics.process import Rows
from tranche.metrics.scheduler import Metrics
from tranche.model import Interval, JobPlan
from tranche.planner import (
    Event,
    Instruction,
    Planner,
    PodStartFailed,
    SiteChanged,
    StageData,
    WaitReasonKind,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.helper_end import HelperEnd
from tranche.state.site_usage import SiteUsage
from tranche.state.window import TrackedWindow

OPENED, UNPLANNABLE = "Opened", "Unplannable"
REASONS = (*(kind.value for kind in WaitReasonKind), OPENED, UNPLANNABLE)
"""Reasons for the phase Waiting: the binding constraint, open windows without running pods, or an unplannable job."""


PodEnd = WorkerEnded | HelperEnd
REFUSED = "Refused"
EMPTY_NAMESPACE_SECONDS = 3600.0
"""Time for which the series of a namespace without jobs are kept."""


class FirstPlanned(NamedTuple):
    """First planned completion of a job."""

    completion: datetime
    interval: PlannedInterval | None

    def place(self, completed: datetime | None) -> str:
        """Return the place of the completion in the interval; "" if one of them is unknown."""
        if self.interval is None or completed is None:
            return ""
        earliest, latest = self.interval.earliest.timestamp(), self.interval.latest.timestamp()
        return Interval(earliest, latest).verdict(completed.timestamp())


class StoppedWindow(NamedTuple):
    """Window of a pod that ends early, as it was before the planner handled the end."""

    started: float
    """Start of its pod, in seconds since the epoch; 0 if no container started."""
    reason: str
    """``planned``, ``preempted``, ``lost`` or ``refused``."""


class PlannerMetrics:
    """Observer that updates the metrics; it makes no decisions."""

    def __init__(self, metrics: Metrics, planner: Planner, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._planner = planner
        self._clock = clock
        self._waits: dict[str, str] = {}
        self._first_planned: dict[str, FirstPlanned] = {}
        """First planned completion of jobs that have not ended."""
        self._finished: set[str] = set()
        self._leads_since = inf
        """Time from which this process leads: what happened before has been counted by the leader before it."""
        self._jobs: set[str] = set()
        self._namespaces: Counter[str] = Counter()
        """Number of jobs in each namespace."""
        self._left: dict[str, float] = {}
        """Time at which the last job of a namespace left, of namespaces without jobs, in that order."""

    def lead(self) -> None:
        """Start to export the metrics that only the leader has."""
        self._leads_since = self._clock()
        self._metrics.set_leading(leads=True)
        self._metrics.set_waits(self._waits, REASONS)
        self._metrics.set_links(self._links)
        self._metrics.set_site_totals(self._site_totals)
        self._metrics.set_namespace_totals(self._namespace_totals)
        self._metrics.set_excluded_nodes(self._excluded_nodes)

    # ---- planner

    def running(self, event: Event) -> StoppedWindow | None:
        """Return the window that an event ends early, if any; call it before the planner handles the event."""
        if isinstance(event, PodEnd) and event.outcome == REFUSED:
            return StoppedWindow(0.0, REFUSED.lower()) if self._is_counted_now(event) else None
        if not isinstance(event, WorkerEnded) or event.outcome not in ("Preempted", "Lost"):
            return None
        run = self._run(event)
        if run is None or run.started is None:
            return None
        return StoppedWindow(run.started, "planned" if run.closing else event.outcome.lower())

    def handled(self, event: Event, stopped: StoppedWindow | None) -> None:
        """Record an event that the planner has handled; `stopped` is the earlier result of `running`."""
        if stopped is not None and stopped.reason == REFUSED.lower():
            self._metrics.count_refused_pod(stopped.reason)
        elif stopped is not None and isinstance(event, WorkerEnded):
            self._metrics.count_preemption(stopped.reason, event.at - stopped.started)
        if isinstance(event, PodStartFailed):
            self._metrics.count_refused_pod(event.kind)
        if isinstance(event, SiteChanged):
            for target in event.site.links:
                if target != event.site.name:
                    self._metrics.add_link(event.site.name, target)
        if isinstance(event, WorkerStarted):
            run = self._run(event)
            if run is not None and run.started == event.at and event.at >= self._leads_since:
                self._metrics.observe_window_start(event.at - run.opened_at, handover=run.handover)

    def instructed(self, instructions: Iterable[Instruction]) -> None:
        """Record the instructions of the planner."""
        for instruction in instructions:
            state = self._planner.cluster.jobs.get(instruction.job) if isinstance(instruction, StageData) else None
            if isinstance(instruction, StageData) and state is not None and state.job.data_site is not None:
                chunks = len(instruction.chunks)
                size = chunks * state.job.chunk_bytes
                self._metrics.count_uploads(self._declared(state.job.data_site), instruction.site, chunks, size)

    def planned(self, key: str, plan: JobPlan) -> None:
        """Record the wait reason of a plan that is written now."""
        self._waits[key] = plan.waits_for or (UNPLANNABLE if plan.unplannable else OPENED)

    def _is_counted_now(self, event: PodEnd) -> bool:
        """Return whether the planner counts this end; an earlier leader may have counted that of a pod that remains."""
        state = self._planner.cluster.jobs.get(event.job)
        return state is not None and (event.attempt in state.runs or state.server_of(event.attempt) is not None)

    def _run(self, event: WorkerStarted | WorkerEnded) -> TrackedWindow | None:
        state = self._planner.cluster.jobs.get(event.job)
        return state.runs.get(event.attempt) if state is not None else None

    def _links(self) -> dict[tuple[str, str], float]:
        """Return the remaining busy time of links; those from all undeclared sources, which jobs name, are one."""
        now, links = self._clock(), dict[tuple[str, str], float]()
        for (source, target), until in self._planner.cluster.uploads.busy().items():
            ends = self._declared(source), target
            links[ends] = max(0.0, until - now, links.get(ends, 0.0))
        return links

    def _declared(self, source: str) -> str:
        """Return the name of a declared site, else an empty text."""
        return source if source in self._planner.cluster.sites else ""

    def _excluded_nodes(self) -> dict[tuple[str], float]:
        """Return the number of excluded nodes of each site with nodes."""
        counts = dict.fromkeys(((name,) for name in self._planner.cluster.sites), 0.0)
        for one in self._planner.cluster.health.lasting():
            counts[one.site,] = counts.get((one.site,), 0.0) + 1
        return counts

    def _site_totals(self) -> Rows:
        """Return the totals of all declared sites, so that their series start at zero, and of sites used before."""
        cluster = self._planner.cluster
        places = {(site.name, site.tier) for site in cluster.sites.values()} | cluster.site_uses.keys()
        used = [(site, tier, cluster.site_uses.get((site, tier), SiteUsage())) for site, tier in sorted(places)]
        return [((site, tier.value), (u.gpu_seconds, u.copied_bytes, u.in_vain_bytes)) for site, tier, u in used]

    def _namespace_totals(self) -> Rows:
        """Return the totals of the namespaces with jobs, and of those whose last job left less than an hour ago."""
        uses = self._planner.cluster.namespace_uses
        used = ((name, uses.get(name, SiteUsage())) for name in sorted({*self._namespaces, *self._left}))
        return [((name,), (use.gpu_seconds, use.trained_gpu_seconds)) for name, use in used]

    # ---- jobs

    def changed(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        """Record a change of a TrainingJob."""
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self.changed(key, old, None)
            old = None
        if new is None:
            self._forget(key)
            self._finished.discard(key)
            self._leave(key)
            return
        if key not in self._jobs:
            self._jobs.add(key)
            self._namespaces[new.metadata.namespace] += 1
            self._left.pop(new.metadata.namespace, None)
            self._metrics.add_namespace(new.metadata.namespace)
        if old is not None:
            self._compare(old, new)
        for one in (old, new):
            plan = one.status.plan if one is not None else None
            if plan is not None and plan.estimated_completion is not None:
                completion = FirstPlanned(plan.estimated_completion, plan.completion_interval)
                self._first_planned.setdefault(key, completion)
        if new.status.phase in ("Succeeded", "Failed"):
            if new.status.phase == "Succeeded" and key not in self._finished:
                self._finished.add(key)
                if old is not None and old.status.phase != "Succeeded":
                    first = self._first_planned.get(key)
                    planned = first.completion if first is not None else None
                    place = first.place(new.status.completion_time) if first is not None else ""
                    self._metrics.observe_completion(new, planned, place)
            self._forget(key)

    def _compare(self, old: TrainingJob, new: TrainingJob) -> None:
        if old.status.start_time is None:
            self._metrics.observe_queueing(new)
        before, after = old.status.progress, new.status.progress
        if after is not None:
            lost = after.lost_batches - (before.lost_batches if before is not None else 0.0)
            self._metrics.count_lost(new.metadata.namespace, lost, lost * gpu_seconds_per_batch(after))

    def _leave(self, key: str) -> None:
        """Count one job less in its namespace, and remove the series of namespaces that have had no job for an hour.

        Prometheus computes increases from two samples, so a series that ends and begins again loses what is counted
        before its first scrape.
        """
        namespace = key.partition("/")[0]
        if key not in self._jobs:
            return
        self._jobs.discard(key)
        self._namespaces[namespace] -= 1
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
            self._left[namespace] = self._clock()
        for empty, since in list(self._left.items()):
            if self._clock() - since < EMPTY_NAMESPACE_SECONDS:
                break
            del self._left[empty]
            self._metrics.remove_namespace(empty)

    def _forget(self, key: str) -> None:
        self._waits.pop(key, None)
        self._first_planned.pop(key, None)
