"""Prometheus metrics of a scheduler process. Label values are bounded and never contain a job name."""

import collections
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Any, Protocol

from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.reflector import Stats
from tranche.metrics.job_counts import JobCounts
from tranche.metrics.process import ProcessMetrics, Rows, Samples

PHASES = ("Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed")
OVER = frozenset({"Succeeded", "Failed"})
COMPLETION_BUCKETS = tuple(float(2**power) for power in range(20))
"""Upper bounds in seconds: 1 s to about six days."""
START_BUCKETS = tuple(0.05 * 2**power for power in range(14))
"""Upper bounds in seconds: 50 ms to about seven minutes."""
REQUEST_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
PLAN_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
HORIZONS = (60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Horizons for planned starts of waiting jobs, in seconds."""
EXTENDER, PLANNER, API = "extender", "planner", "api"
"""Processes of the scheduler, each with metrics of its own."""


class Watched(Protocol):
    """The part of a reflector that the metrics read."""

    @property
    def store(self) -> Collection[str]:
        """Objects by key."""

    @property
    def stats(self) -> Stats:
        """Counters of the watch."""

    @property
    def age(self) -> float:
        """Seconds since the last data from the API server."""


class GpuUse(Protocol):
    """Usage of the GPUs of one resource at one site."""

    @property
    def resource(self) -> str:
        """Name of the resource."""

    @property
    def gpus(self) -> int:
        """GPUs on its nodes."""

    @property
    def used_gpus(self) -> int:
        """GPUs used by pods."""

    @property
    def reserved_gpus(self) -> int:
        """GPUs reserved by plans for pods that are not bound yet."""


class SiteUse(Protocol):
    """Usage of one site."""

    @property
    def name(self) -> str:
        """Name of the site."""

    @property
    def gpu_resources(self) -> Sequence[GpuUse]:
        """Usage of its GPUs by resource."""


class Metrics(ProcessMetrics):
    """All metrics of one scheduler process, in a separate registry."""

    def __init__(
        self,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        parts: Collection[str] = (EXTENDER, PLANNER, API),
    ) -> None:
        """Define the metrics.

        Args:
            clock: Current time.
            parts: Processes whose metrics this one has.
        """
        super().__init__(next(iter(parts)) if len(parts) == 1 else "scheduler")
        self.parts = frozenset(parts)
        self._clock = clock
        self._jobs = JobCounts()
        self._watches: dict[str, Watched] = {}
        self._sites: Callable[[], Awaitable[Sequence[SiteUse]]] | None = None
        self._known_sites: Sequence[SiteUse] = ()
        self._links: Callable[[], Mapping[tuple[str, str], float]] = dict
        self._site_totals: Callable[[], Rows] = tuple
        self._namespace_totals: Callable[[], Rows] = tuple
        self._excluded_nodes: Callable[[], Mapping[tuple[str], float]] = dict
        self._certificate_times: Callable[[], Sequence[tuple[float, float]]] = tuple
        self._waits: Mapping[str, str] = {}
        self._reasons: tuple[str, ...] = ()
        if EXTENDER in self.parts:
            self._define_extender()
        if API in self.parts:
            self._define_api()
        text = "API objects and requests of kube-scheduler that could not be read."
        self._errors = self.counter("tranche_errors_total", text, ("kind",), ("object", "request"))
        if PLANNER in self.parts:
            self._define_planner()
            self._define_jobs()
            self._define_namespace_totals()
            self._define_job_counts()
        if EXTENDER in self.parts:
            self._define_site_use()
        if PLANNER in self.parts:
            self._define_site_totals()
        self._define_watches()

    def _define_extender(self) -> None:
        verbs, results = ("filter", "prioritize", "preempt"), ("passed", "rejected")
        self._requests = self.histogram(
            "tranche_extender_request_seconds",
            "Duration of a request of kube-scheduler to the extender.",
            ("verb",),
            REQUEST_BUCKETS,
            verbs,
        )
        text = "Nodes in requests of kube-scheduler, by the extender's result."
        self._nodes = self.counter("tranche_extender_nodes_total", text, ("verb", "result"), verbs, results)
        text = "Time for which the extender is busy before it begins with a request, ten samples a second."
        self._loop_delays = self.histogram("tranche_extender_delay_seconds", text, (), REQUEST_BUCKETS)

    def _define_api(self) -> None:
        self._reports = self.counter(
            "tranche_reports_total",
            "Progress reports, by result: accepted, or the HTTP status of the refusal.",
            ("result",),
            ("accepted",),
        )
        text = "Chunk requests of workers, by result: continued, exit, or the HTTP status of the refusal."
        self._chunk_requests = self.counter("tranche_chunk_requests_total", text, ("result",), ("continued", "exit"))
        texts = {
            "tranche_report_certificate_not_before_timestamp_seconds": "Time from which the report API's certificate "
            "is valid; absent without TLS.",
            "tranche_report_certificate_not_after_timestamp_seconds": "Time at which the report API's certificate "
            "expires; absent without TLS.",
        }
        self.computed_together("gauge", texts, (), lambda: [((), times) for times in self._certificate_times()])

    def _define_planner(self) -> None:
        self._leads = self.gauge("tranche_leader", "1 in the leading replica, 0 in the others.")
        text = (
            "0 while kube-scheduler decides about none of the pods that wait for it, so that preemption pauses; else 1."
        )
        self._scheduler_responds = self.gauge("tranche_kube_scheduler_responds", text)
        self._scheduler_responds.set(1)
        self._plans = self.histogram("tranche_plan_seconds", "Planner time for one event.", (), PLAN_BUCKETS)
        text = "Duration of a forecast, which computes planned starts and completions."
        self._forecasts = self.histogram("tranche_forecast_seconds", text, (), START_BUCKETS)
        results = ("written", "retried", "refused", "gone")
        text = "Status writes of TrainingJobs and Sites, by result."
        self._writes = self.counter("tranche_status_writes_total", text, ("result",), results)
        text = (
            "Time from opening a window to the start of its worker; handover=yes: a preempted worker had to stop first."
        )
        self._starts = self.histogram("tranche_window_start_seconds", text, ("handover",), START_BUCKETS, ("yes", "no"))
        text = (
            "Workers stopped before they completed. planned: by the planner, for another job or a new specification; "
            "preempted: by others, such as a drain; lost: the node or pod disappeared."
        )
        reasons = ("planned", "preempted", "lost")
        self._preemptions = self.counter("tranche_preemptions_total", text, ("reason",), reasons)
        text = (
            "Pods that ended or were stopped before a container started. refused: by the kubelet; Configuration, "
            "ImagePull, Creation: stopped because the containers did not start in time."
        )
        kinds = ("refused", "Configuration", "ImagePull", "Creation")
        self._not_started = self.counter("tranche_pods_not_started_total", text, ("reason",), kinds)
        text = "Run time of workers that were stopped before they completed; many short times mean thrashing."
        self._stopped = self.histogram("tranche_preempted_worker_seconds", text, (), COMPLETION_BUCKETS)
        text = "Trained mini-batches that were lost by preemption or failure."
        self._lost = self.counter("tranche_lost_batches_total", text)
        text = "Started copies of a chunk's data to another site; source is empty if it is no declared site."
        self._uploads = self.counter("tranche_uploads_total", text, ("source", "target"))
        text = "Size of the started copies, by spec.data.chunkSize."
        self._upload_bytes = self.counter("tranche_upload_bytes_total", text, ("source", "target"))

    def _define_jobs(self) -> None:
        labels = ("namespace",)
        self._queueing = self.histogram(
            "tranche_job_queueing_seconds",
            "Time from a job's creation to the start of its first pod.",
            labels,
            COMPLETION_BUCKETS,
        )
        self._completion = self.histogram(
            "tranche_job_completion_seconds", "Time from a job's creation to its success.", labels, COMPLETION_BUCKETS
        )
        self._planned = self.histogram(
            "tranche_job_planned_completion_seconds",
            "First planned time from a job's creation to its completion; observed when the job succeeds.",
            labels,
            COMPLETION_BUCKETS,
        )
        self._estimate_errors = self.histogram(
            "tranche_job_estimate_error_seconds",
            "Difference between the first planned completion and the actual one.",
            ("direction",),
            COMPLETION_BUCKETS,
            ("early", "late"),
        )
        self._interval_outcomes = self.counter(
            "tranche_job_interval_outcomes_total",
            "Succeeded jobs by the place of their completion: inside their first interval, early (before it) or late "
            "(after it). The share inside should be 80 %.",
            ("place",),
            ("inside", "early", "late"),
        )

    def _define_namespace_totals(self) -> None:
        texts = {
            "tranche_namespace_gpu_seconds_total": "GPU time of ended workers of the namespace's jobs, deleted ones "
            "included, from opening the window to the end of the pod.",
            "tranche_namespace_trained_gpu_seconds_total": "Part of this time from the start of the container to the "
            "end of the pod; work that was lost is included.",
        }
        self.computed_together("counter", texts, ("namespace",), lambda: self._namespace_totals())
        text = (
            "Part of the trained GPU time whose mini-batches were lost, estimated as if all of a job took equally long."
        )
        self._lost_seconds = self.counter("tranche_namespace_lost_gpu_seconds_total", text, ("namespace",))

    def _define_job_counts(self) -> None:
        self.computed("gauge", "tranche_jobs", "Jobs by phase.", ("phase",), self._phases)
        text = "Waiting jobs by the constraint that delays them, as last planned; Unknown before the first plan."
        self.computed("gauge", "tranche_jobs_waiting", text, ("reason",), self._reasons_of_waits)
        text = (
            "Waiting jobs that are planned to start within this number of seconds (cumulative; +Inf: all with a plan)."
        )
        self.computed("gauge", "tranche_jobs_planned_start", text, ("within",), self._planned_starts)
        text = "Age of the oldest waiting job; 0 if no job waits."
        self.computed("gauge", "tranche_jobs_oldest_waiting_seconds", text, (), self._oldest)

    def _define_site_use(self) -> None:
        texts = {
            "tranche_site_gpus": "GPUs on the site's nodes, by resource.",
            "tranche_site_used_gpus": "GPUs used by pods at the site, by resource.",
            "tranche_site_planned_gpus": "GPUs reserved by plans for pods that are not bound yet, by resource.",
        }
        self.computed_together("gauge", texts, ("site", "resource"), self._site_rows)

    def _define_site_totals(self) -> None:
        text = "Nodes that take no pods because pods of several jobs failed or were refused there."
        self.computed("gauge", "tranche_site_excluded_nodes", text, ("site",), lambda: self._excluded_nodes().items())
        texts = {
            "tranche_site_gpu_seconds_total": "GPU time of ended workers, from opening the window to the end of "
            "the pod; running workers are not counted yet.",
            "tranche_site_copied_bytes_total": "Bytes of chunk data in started copies to the site.",
            "tranche_site_copied_in_vain_bytes_total": "Bytes of these copies that no chunk trained from.",
        }
        self.computed_together("counter", texts, ("site", "tier"), lambda: self._site_totals())
        text = "Remaining time of started copies on a link between sites; source is empty if it is no declared site."
        self.computed("gauge", "tranche_link_busy_seconds", text, ("source", "target"), lambda: self._links().items())

    def _define_watches(self) -> None:
        texts = {
            "tranche_watch_events_total": "Object changes received by the watch.",
            "tranche_watch_relists_total": "Complete lists read, at the start and when a watch had to be restarted.",
            "tranche_watch_errors_total": "Failed requests, and objects that could not be read.",
        }
        self.computed_together("counter", texts, ("kind",), self._watch_counts)
        texts = {
            "tranche_watch_objects": "Objects in the local cache of the watch.",
            "tranche_watch_age_seconds": "Time since the last data from the API server.",
        }
        self.computed_together("gauge", texts, ("kind",), self._watch_states)

    # ---- the extender's

    def observe_request(self, verb: str, seconds: float, passed: int, rejected: int) -> None:
        """Record one request of kube-scheduler: duration in seconds, and numbers of passed and rejected nodes."""
        self._requests.labels(verb).observe(seconds)
        if passed:
            self._nodes.labels(verb, "passed").inc(passed)
        if rejected:
            self._nodes.labels(verb, "rejected").inc(rejected)

    def observe_delay(self, seconds: float) -> None:
        """Record a delay of the extender's event loop."""
        self._loop_delays.observe(seconds)

    def add_watch(self, kind: str, watched: Watched) -> None:
        """Export metrics of a reflector under this kind."""
        self._watches[kind] = watched

    def count_request(self, result: str) -> None:
        """Count a chunk request by result: ``continued``, ``exit``, or the HTTP status of the refusal."""
        self._chunk_requests.labels(result).inc()

    def count_report(self, result: str) -> None:
        """Count a progress report by result: ``accepted``, or the HTTP status of the refusal."""
        self._reports.labels(result).inc()

    def count_error(self, kind: str) -> None:
        """Count an API object (``object``) or extender request (``request``) that could not be read."""
        self._errors.labels(kind).inc()

    def set_certificate(self, times: Callable[[], Sequence[tuple[float, float]]]) -> None:
        """Set the function that returns the validity of the report API's certificate, empty without one."""
        self._certificate_times = times

    def set_jobs(self, jobs: JobCounts) -> None:
        """Set the job counts that are exported."""
        self._jobs = jobs

    def set_sites(self, sites: Callable[[], Awaitable[Sequence[SiteUse]]]) -> None:
        """Set the function that returns the usage of all sites; it is called when the metrics are read."""
        self._sites = sites

    async def read(self) -> bytes:
        """Render the metrics in the Prometheus text format, yielding to the event loop in between."""
        if self._sites is not None:
            self._known_sites = await self._sites()
        return await super().read()

    # ---- the planner's

    def set_leading(self, *, leads: bool) -> None:
        """Set whether this process is the leader."""
        self._leads.set(leads)

    def set_scheduler_responds(self, *, responds: bool) -> None:
        """Set whether kube-scheduler decides about the pods that wait for it."""
        self._scheduler_responds.set(responds)

    def time_plan(self) -> AbstractContextManager[Any]:
        """Measure the enclosed block as the handling of one planner event."""
        return self._plans.time()

    def observe_forecast(self, seconds: float) -> None:
        """Record the duration of a forecast, in seconds."""
        self._forecasts.observe(seconds)

    def count_status_write(self, result: str) -> None:
        """Count a status write by result: ``written``, ``retried``, ``refused`` or ``gone``."""
        self._writes.labels(result).inc()

    def count_preemption(self, reason: str, seconds: float) -> None:
        """Count a worker that was stopped before it completed, by reason, with its run time in seconds."""
        self._preemptions.labels(reason).inc()
        self._stopped.observe(max(0.0, seconds))

    def count_lost(self, namespace: str, batches: float, gpu_seconds: float) -> None:
        """Count lost mini-batches of a job in the namespace, and the GPU-seconds in which they were trained."""
        self._lost.inc(max(0.0, batches))
        self._lost_seconds.labels(namespace).inc(max(0.0, gpu_seconds))

    def add_link(self, source: str, target: str) -> None:
        """Create the series of a declared link, so that they start at zero."""
        self._uploads.labels(source, target)
        self._upload_bytes.labels(source, target)

    def count_uploads(self, source: str, target: str, chunks: int, size_bytes: float) -> None:
        """Count started copies of chunks, with their total size in bytes."""
        self._uploads.labels(source, target).inc(chunks)
        self._upload_bytes.labels(source, target).inc(size_bytes)

    def observe_window_start(self, seconds: float, *, handover: bool) -> None:
        """Record the time from opening a window to the start of its worker, in seconds."""
        self._starts.labels("yes" if handover else "no").observe(max(0.0, seconds))

    def set_links(self, links: Callable[[], Mapping[tuple[str, str], float]]) -> None:
        """Set the function that returns the remaining busy seconds of links, by (source, target)."""
        self._links = links

    def set_site_totals(self, totals: Callable[[], Rows]) -> None:
        """Set the function that returns GPU-seconds, copied bytes and unused copied bytes by (site, tier).

        Values never fall.
        """
        self._site_totals = totals

    def set_namespace_totals(self, totals: Callable[[], Rows]) -> None:
        """Set the function that returns held and trained GPU-seconds by namespace; values never fall."""
        self._namespace_totals = totals

    def set_excluded_nodes(self, excluded: Callable[[], Mapping[tuple[str], float]]) -> None:
        """Set the function that returns the number of excluded nodes of each site."""
        self._excluded_nodes = excluded

    def count_refused_pod(self, reason: str) -> None:
        """Count a pod without a started container by reason: ``refused`` by its node, or its kind of `StartProblem`."""
        self._not_started.labels(reason).inc()

    def set_waits(self, waits: Mapping[str, str], reasons: Iterable[str]) -> None:
        """Set the mapping from job key to wait reason, which is read on export, and all possible reasons."""
        self._waits, self._reasons = waits, tuple(reasons)

    # ---- the jobs'

    def add_namespace(self, namespace: str) -> None:
        """Create the series of a namespace, so that they start at zero and not with the first ended job."""
        for metric in (self._queueing, self._completion, self._planned, self._lost_seconds):
            metric.labels(namespace)

    def remove_namespace(self, namespace: str) -> None:
        """Remove the series of a namespace without jobs, so that short-lived namespaces do not accumulate."""
        for metric in (self._queueing, self._completion, self._planned, self._lost_seconds):
            with suppress(KeyError):
                metric.remove(namespace)

    def observe_queueing(self, job: TrainingJob) -> None:
        """Record the queueing time of a job whose first pod has started."""
        created, started = job.metadata.creation_timestamp, job.status.start_time
        if created is not None and started is not None:
            self._queueing.labels(job.metadata.namespace).observe(_seconds(created, started))

    def observe_completion(self, job: TrainingJob, planned: datetime | None = None, place: str = "") -> None:
        """Record the completion time of a succeeded job, the error of its first planned completion, and its place.

        Args:
            job: The job.
            planned: First planned completion; None if there was none.
            place: Place of the completion in its first interval: inside, early or late; "" without an interval.
        """
        created, completed = job.metadata.creation_timestamp, job.status.completion_time
        if created is None or completed is None:
            return
        self._completion.labels(job.metadata.namespace).observe(_seconds(created, completed))
        if planned is not None:
            self._planned.labels(job.metadata.namespace).observe(_seconds(created, planned))
            error = (completed - planned).total_seconds()
            self._estimate_errors.labels("late" if error > 0 else "early").observe(abs(error))
        if place:
            self._interval_outcomes.labels(place).inc()

    # ---- computed when read

    def _phases(self) -> Samples:
        return [((phase,), self._jobs.phases[phase]) for phase in PHASES]

    def _reasons_of_waits(self) -> Samples:
        counts = collections.Counter(self._waits.get(key, "Unknown") for key in self._jobs.waiting)
        return [((reason,), counts[reason]) for reason in self._reasons]

    def _planned_starts(self) -> Samples:
        now = self._clock().timestamp()
        planned, within = self._jobs.planned(now + horizon for horizon in HORIZONS)
        return [*(((f"{at:g}",), count) for at, count in zip(HORIZONS, within, strict=True)), (("+Inf",), planned)]

    def _oldest(self) -> Samples:
        created = self._jobs.oldest()
        return [((), 0.0 if created is None else max(0.0, self._clock().timestamp() - created))]

    def _site_rows(self) -> Rows:
        return (
            ((site.name, use.resource), (use.gpus, use.used_gpus, use.reserved_gpus))
            for site in self._known_sites
            for use in site.gpu_resources
        )

    def _watch_counts(self) -> Rows:
        all_stats = ((kind, watch.stats) for kind, watch in self._watches.items())
        return (((kind,), (stats.events, stats.relists, stats.errors)) for kind, stats in all_stats)

    def _watch_states(self) -> Rows:
        return (((kind,), (len(watch.store), watch.age)) for kind, watch in self._watches.items())


def count_jobs(metrics: Metrics, subscribe: Callable[[Callable[..., None]], None]) -> None:
    """Export the numbers of jobs that a watch shows.

    Args:
        metrics: Metrics of the process.
        subscribe: Subscribes to the watch of TrainingJobs.
    """
    counts = JobCounts()
    subscribe(counts.note)
    metrics.set_jobs(counts)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())
