"""How a scenario is made: small values that another process turns into the same jobs and nodes, to the digit.

A cell of a study carries a recipe, not its jobs: a log of 82,247 rows is read where it is simulated, once a process.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

from tranche.model import Job
from tranche.simulation.analysis.bootstrap import resample
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.job_log import Trace, TraceError, TraceRow, read_trace
from tranche.simulation.scenario import Scenario
from tranche.simulation.workload.from_log import elastic_jobs, gang_jobs, scaled_to_load, with_data
from tranche.simulation.workload.jsac_options import USUAL, JsacOptions
from tranche.simulation.workload.presets import jsac_jobs, preset_cluster

Mode = Literal["gang", "elastic"]
OnError = Literal["stop", "skip"]


class Log(Protocol):
    """Where rows of a job log come from."""

    def rows(self) -> tuple[TraceRow, ...]:
        """All rows, in the order of the log."""
        ...


@dataclass(frozen=True, slots=True)
class RowsLog:
    """Rows that travel with the recipe: for workers that do not see this machine's files."""

    given: tuple[TraceRow, ...]

    def rows(self) -> tuple[TraceRow, ...]:
        """All rows, in the order of the log."""
        return self.given


@dataclass(frozen=True, slots=True)
class FileLog:
    """A file, read again by every process that needs it, and the same file for all."""

    path: Path
    layout: str
    on_error: OnError
    size: int
    modified_ns: int

    @classmethod
    def at(cls, path: Path, layout: str = "auto", on_error: OnError = "stop") -> "FileLog":
        """The file as it is now.

        Raises:
            OSError: it cannot be looked at.
        """
        status = path.stat()
        return cls(path.resolve(), layout, on_error, status.st_size, status.st_mtime_ns)

    def read(self) -> Trace:
        """Rows, layout and problems.

        Raises:
            TraceError: the file cannot be read, or is not the one that it was.
        """
        return _read(self)

    def rows(self) -> tuple[TraceRow, ...]:
        """All rows, in the order of the log."""
        return self.read().rows


@lru_cache(maxsize=2)
def _read(log: FileLog) -> Trace:
    now = FileLog.at(log.path, log.layout, log.on_error)
    if now != log:
        raise TraceError(f"{log.path}: the file was changed while it was in use; run again")
    return read_trace(log.path, layout=log.layout, on_error=log.on_error)


class Workload(Protocol):
    """Where jobs come from."""

    @property
    def draws(self) -> bool:
        """Whether another seed means other jobs."""
        ...

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """The jobs.

        Args:
            cluster: That they are made for.
            seed: Of everything drawn.
            load: Σ GPU-seconds / (GPUs x span of arrivals) to stretch the arrivals to; None: as they are.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoggedJobs:
    """The jobs of a log, as gangs or in chunks."""

    log: Log
    mode: Mode = "gang"
    chunks_per_gpu: int = 1
    limit: int | None = None
    """Only the first so many in order of submission."""
    resampled: bool = False
    """Draw as many jobs from the log, by blocks of neighbours."""
    chunk_bytes: float = 0.0
    """Of an elastic job; above 0, each job's data are at one edge site, drawn from the seed."""
    gradient_bits: float = 0.0
    """Of an elastic job; above 0, each has a parameter server."""

    @property
    def draws(self) -> bool:
        """Whether another seed means other jobs."""
        return self.resampled or self.chunk_bytes > 0

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """The jobs of the log."""
        rows = first(self.log.rows(), self.limit)
        if self.resampled:
            rows = resample(rows, seed)
        if self.mode == "elastic":
            jobs = elastic_jobs(rows, self.chunks_per_gpu)
            jobs = with_data(jobs, self.chunk_bytes, self.gradient_bits, cluster, seed)
        else:
            jobs = gang_jobs(rows, cluster.nodes)
        return jobs if load is None else scaled_to_load(jobs, capacity_gpus(cluster), load)


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """Jobs of the setting of JSAC'22, drawn; only the times between arrivals are a log's."""

    log: Log
    count: int
    chunk_scale: float = 1.0
    draws: bool = True
    options: JsacOptions = USUAL
    """The same as the cluster's."""

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """Jobs drawn from the seed."""
        if load is None:
            raise ValueError("drawn jobs need a load")
        arrivals = sorted(row.submit_seconds for row in self.log.rows())
        return jsac_jobs(
            arrivals,
            jobs=self.count,
            load=load,
            chunk_scale=self.chunk_scale,
            seed=seed,
            cluster=cluster,
            options=self.options,
        )


@dataclass(frozen=True, slots=True)
class GivenJobs:
    """Jobs as they are, such as a cluster's history."""

    given: tuple[Job, ...]
    limit: int | None = None
    draws: bool = False

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """The same jobs for every seed."""
        jobs = sorted(self.given, key=lambda job: job.submitted)[: self.limit]
        return jobs if load is None else scaled_to_load(jobs, capacity_gpus(cluster), load)


class Cluster(Protocol):
    """Where nodes come from."""

    def spec(self, seed: int) -> ClusterSpec:
        """Sites, nodes and failures."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCluster:
    """The same for every seed."""

    given: ClusterSpec

    def spec(self, seed: int) -> ClusterSpec:
        """Sites, nodes and failures."""
        return self.given


@dataclass(frozen=True, slots=True)
class PresetCluster:
    """A named setting, drawn from the seed where it has something to draw."""

    name: str
    options: JsacOptions = USUAL

    def spec(self, seed: int) -> ClusterSpec:
        """Sites, nodes and failures."""
        return preset_cluster(self.name, seed, self.options)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything of a scenario but policy, seed and load."""

    workload: Workload
    cluster: Cluster
    restart_seconds: float = 0.0
    period_seconds: float = 0.0
    speed_sigma: float = 0.0
    estimate_sigma: float = 0.0
    link_sigma: float = 0.0
    unsized: float = 0.0
    speed_factor: float = 1.0
    """1 + ε of speed augmentation: each chunk takes its time over this, arrivals and uploads stay (`at_speed`)."""

    @property
    def draws(self) -> bool:
        """Whether jobs, nodes or speeds are drawn; what the policy itself draws is its own."""
        drawn_nodes = isinstance(self.cluster, PresetCluster)
        drawn_beliefs = self.speed_sigma + self.estimate_sigma + self.link_sigma > 0 or 0 < self.unsized < 1
        return self.workload.draws or drawn_nodes or drawn_beliefs

    def portable(self) -> "Recipe":
        """The same without files, for machines that do not see this one's.

        Raises:
            TraceError: the log cannot be read.
        """
        if isinstance(self.workload, LoggedJobs | DrawnJobs):
            return replace(self, workload=replace(self.workload, log=RowsLog(self.workload.log.rows())))
        return self

    def build(self, policy: str, seed: int, load: float | None, *, record: bool = False) -> Scenario:
        """The scenario; the same arguments give the same one in every process.

        Raises:
            TraceError: the log cannot be read.
            ValueError: the jobs cannot be made, as the message says.
        """
        cluster = self.cluster.spec(seed)
        return Scenario(
            jobs=tuple(at_speed(job, self.speed_factor) for job in self.workload.jobs(cluster, seed, load)),
            nodes=cluster.nodes,
            sites=cluster.sites,
            policy=policy,
            seed=seed,
            restart_seconds=self.restart_seconds,
            period_seconds=self.period_seconds,
            speed_sigma=self.speed_sigma,
            estimate_sigma=self.estimate_sigma,
            link_sigma=self.link_sigma,
            unsized=self.unsized,
            failures=cluster.failures,
            record=record,
        )


def at_speed(job: Job, factor: float) -> Job:
    """The job as it is on workers, of nodes and unlimited sites, that are so many times as fast.

    In the model of JSAC'22 a worker of speed 1 + ε takes 1/(1 + ε) of the processing time, which includes what it
    exchanges with the parameter server: so computation and gradients shrink alike. Data to upload do not.
    """
    if factor == 1:
        return job
    return replace(job, step_seconds=job.step_seconds / factor, gradient_bits=job.gradient_bits / factor)


def capacity_gpus(cluster: ClusterSpec) -> int:
    """GPUs of all nodes; an unlimited site counts nothing."""
    return sum(node.allocatable.gpus for node in cluster.nodes)


def first(rows: Iterable[TraceRow], limit: int | None) -> tuple[TraceRow, ...]:
    """The first so many rows in order of submission; all of them, as they are, without a limit."""
    if limit is None:
        return tuple(rows)
    return tuple(sorted(rows, key=lambda row: row.submit_seconds)[:limit])
