"""What Prometheus reads of a scheduler process. Labels are bounded: never a job's name."""

import platform
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tranche import __version__
from tranche.kube.reflectors import Stats
from tranche.kube.resources import TrainingJob

PHASES = ("Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed")
COMPLETION_BUCKETS = tuple(float(2**power) for power in range(20))
"""Seconds: 1 s to about six days."""
START_BUCKETS = tuple(0.05 * 2**power for power in range(14))
"""Seconds: 50 ms to about seven minutes."""
REQUEST_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
PLAN_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


class Watched(Protocol):
    """The part of a reflector that is reported."""

    @property
    def store(self) -> Collection[str]:
        """Objects, by key."""

    @property
    def stats(self) -> Stats:
        """Counters."""

    @property
    def age(self) -> float:
        """Seconds since the server last said anything."""


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs: Iterable[TrainingJob] = ()
        self._watches: dict[str, Watched] = {}
        registry = self.registry
        self._requests = Histogram(
            "tranche_extender_request_seconds",
            "Time to answer kube-scheduler.",
            ["verb"],
            buckets=REQUEST_BUCKETS,
            registry=registry,
        )
        self._nodes = Counter(
            "tranche_extender_nodes",
            "Nodes that were asked about, by what we said.",
            ["verb", "result"],
            registry=registry,
        )
        self._plans = Histogram(
            "tranche_plan_seconds", "Time of the planner for one event.", buckets=PLAN_BUCKETS, registry=registry
        )
        self._writes = Counter(
            "tranche_status_writes", "Status writes, by how they went.", ["result"], registry=registry
        )
        self._completion = Histogram(
            "tranche_job_completion_seconds",
            "From a job's creation to its success.",
            buckets=COMPLETION_BUCKETS,
            registry=registry,
        )
        self._starts = Histogram(
            "tranche_window_start_seconds",
            "From the opening of a window to the start of its worker; handover: a preempted worker had to leave first.",
            ["handover"],
            buckets=START_BUCKETS,
            registry=registry,
        )
        self._preemptions = Counter(
            "tranche_preemptions", "Workers stopped before their end, by why.", ["reason"], registry=registry
        )
        self._reports = Counter(
            "tranche_reports", "Progress reports, by what became of them.", ["result"], registry=registry
        )
        self._chunk_requests = Counter(
            "tranche_chunk_requests", "Requests for chunks, by what became of them.", ["result"], registry=registry
        )
        build = Gauge("tranche_build_info", "Always 1.", ["version", "python"], registry=registry)
        build.labels(__version__, platform.python_version()).set(1)
        registry.register(_Live(self._collect))

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)

    # ---- the extender's

    def observe_request(self, verb: str, seconds: float, passed: int, rejected: int) -> None:
        """One answer to kube-scheduler."""
        self._requests.labels(verb).observe(seconds)
        if passed:
            self._nodes.labels(verb, "passed").inc(passed)
        if rejected:
            self._nodes.labels(verb, "rejected").inc(rejected)

    def add_watch(self, kind: str, watched: Watched) -> None:
        """Report a reflector under this kind from now on."""
        self._watches[kind] = watched

    def count_request(self, result: str) -> None:
        """A worker that asked was given chunks, or told to exit, or refused with this status."""
        self._chunk_requests.labels(result).inc()

    def count_report(self, result: str) -> None:
        """A progress report was accepted, or refused with this status."""
        self._reports.labels(result).inc()

    # ---- the planner's

    def time_plan(self) -> AbstractContextManager[Any]:
        """Measure what is done inside as one event of the planner."""
        return self._plans.time()

    def count_status_write(self, result: str) -> None:
        """One status write: written, retried, refused or gone."""
        self._writes.labels(result).inc()

    def count_preemption(self, reason: str) -> None:
        """A worker was stopped before its end; the reason is one of a few words."""
        self._preemptions.labels(reason).inc()

    def observe_window_start(self, seconds: float, *, handover: bool) -> None:
        """A window's worker has started to train, so long after the window was opened."""
        self._starts.labels("yes" if handover else "no").observe(max(0.0, seconds))

    def observe_completion(self, job: TrainingJob) -> None:
        """A job has succeeded."""
        created, completed = job.metadata.creation_timestamp, job.status.completion_time
        if created is not None and completed is not None:
            self._completion.observe(max(0.0, (completed - created).total_seconds()))

    def set_jobs(self, jobs: Iterable[TrainingJob]) -> None:
        """Count these jobs by phase whenever the metrics are read; a view of a store stays live."""
        self._jobs = jobs

    # ---- computed when read

    def _collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("tranche_jobs", "Jobs by phase.", labels=["phase"])
        tally = Tally[str](job.status.phase or "Waiting" for job in self._jobs)
        for phase in PHASES:
            jobs.add_metric([phase], tally[phase])
        yield jobs
        objects = GaugeMetricFamily("tranche_watch_objects", "Objects in the local copy.", labels=["kind"])
        events = CounterMetricFamily("tranche_watch_events", "Changes seen.", labels=["kind"])
        relists = CounterMetricFamily("tranche_watch_relists", "Complete lists read.", labels=["kind"])
        errors = CounterMetricFamily("tranche_watch_errors", "Failed requests and unreadable objects.", labels=["kind"])
        age = GaugeMetricFamily(
            "tranche_watch_age_seconds", "Since the API server last said anything.", labels=["kind"]
        )
        for kind, watched in self._watches.items():
            objects.add_metric([kind], len(watched.store))
            events.add_metric([kind], watched.stats.events)
            relists.add_metric([kind], watched.stats.relists)
            errors.add_metric([kind], watched.stats.errors)
            age.add_metric([kind], watched.age)
        yield from (objects, events, relists, errors, age)


class _Live(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()
