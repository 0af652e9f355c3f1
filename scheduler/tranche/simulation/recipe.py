"""Recipes of scenarios: small values from which another process builds the same jobs and nodes, to the digit.

A cell of a study carries a recipe, not its jobs: a log of 82,247 rows is read once per process that simulates it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

from tranche.estimate import USUAL_BITS_PER_SECOND, LevelNetwork
from tranche.estimate.transfer_start import SHARED
from tranche.model import Job
from tranche.simulation.analysis.bootstrap import resample
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.job_log import Trace, TraceError, TraceRow, read_trace
from tranche.simulation.scenario import Scenario
from tranche.simulation.workload.from_log import elastic_jobs, gang_jobs, scaled_to_load, with_data
from tranche.simulation.workload.jsac_options import USUAL, JsacOptions
from tranche.simulation.workload.model_family import with_families
from tranche.simulation.workload.presets import jsac_jobs, preset_cluster
from tranche.simulation.workload.utility_draw import UtilityDraw, with_utilities

Mode = Literal["gang", "elastic"]
OnError = Literal["stop", "skip"]


class Log(Protocol):
    """Source of a job log's rows."""

    def rows(self) -> tuple[TraceRow, ...]:
        """Return all rows, in the order of the log."""
        ...


@dataclass(frozen=True, slots=True)
class RowsLog:
    """Rows that are sent with the recipe, for workers without access to this machine's files."""

    given: tuple[TraceRow, ...]

    def rows(self) -> tuple[TraceRow, ...]:
        """Return all rows, in the order of the log."""
        return self.given


@dataclass(frozen=True, slots=True)
class FileLog:
    """File that every process reads for itself; a changed file is an error."""

    path: Path
    layout: str
    on_error: OnError
    size: int
    modified_ns: int

    @classmethod
    def at(cls, path: Path, layout: str = "auto", on_error: OnError = "stop") -> "FileLog":
        """Return the file in its present state.

        Raises:
            OSError: The file is not accessible.
        """
        status = path.stat()
        return cls(path.resolve(), layout, on_error, status.st_size, status.st_mtime_ns)

    def read(self) -> Trace:
        """Return rows, layout and problems.

        Raises:
            TraceError: The file cannot be read, or has changed.
        """
        return _read(self)

    def rows(self) -> tuple[TraceRow, ...]:
        """Return all rows, in the order of the log."""
        return self.read().rows


@lru_cache(maxsize=2)
def _read(log: FileLog) -> Trace:
    now = FileLog.at(log.path, log.layout, log.on_error)
    if now != log:
        raise TraceError(f"{log.path}: the file was changed while it was in use; run again")
    return read_trace(log.path, layout=log.layout, on_error=log.on_error)


class Workload(Protocol):
    """Source of jobs."""

    @property
    def draws(self) -> bool:
        """Whether another seed gives other jobs, or other nodes to their parameter servers."""
        ...

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """Return the jobs.

        Args:
            cluster: Cluster that the jobs are made for.
            seed: Seed of all draws.
            load: Σ GPU-seconds / (GPUs x span of arrivals) to stretch the arrivals to; None: unchanged.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoggedJobs:
    """Jobs of a log, as gangs or in chunks."""

    log: Log
    mode: Mode = "gang"
    chunks_per_gpu: int = 1
    limit: int | None = None
    """Number of jobs to take in order of submission; None: all."""
    resampled: bool = False
    """Whether to draw as many jobs from the log, by blocks of neighbors."""
    chunk_bytes: float = 0.0
    """Chunk size of an elastic job; above 0, each job's data are at one edge site, drawn from the seed."""
    gradient_bits: float = 0.0
    """Gradient size of an elastic job; above 0, each has a parameter server."""
    member_gpus: int | None = None
    """GPUs of each member of a gang; None: as many as a node has room for."""

    @property
    def draws(self) -> bool:
        """Whether another seed gives other jobs, or other nodes to their parameter servers."""
        return self.resampled or self.chunk_bytes > 0 or self.gradient_bits > 0

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """Return the jobs of the log."""
        rows = first(self.log.rows(), self.limit)
        if self.resampled:
            rows = resample(rows, seed)
        if self.mode == "elastic":
            jobs = elastic_jobs(rows, self.chunks_per_gpu)
            jobs = with_data(jobs, self.chunk_bytes, self.gradient_bits, cluster, seed)
        else:
            jobs = gang_jobs(rows, cluster.nodes, self.member_gpus)
            if cluster.level_network is not None:
                jobs = with_families(jobs, [row.model for row in rows], cluster.level_network, seed)
        return jobs if load is None else scaled_to_load(jobs, capacity_gpus(cluster), load)


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """Jobs drawn in the setting of JSAC'22; only the times between arrivals are from a log."""

    log: Log
    count: int
    chunk_scale: float = 1.0
    draws: bool = True
    options: JsacOptions = USUAL
    """Options, the same as the cluster's."""

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """Return jobs drawn from the seed."""
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
    """Given jobs, such as a cluster's history."""

    given: tuple[Job, ...]
    limit: int | None = None

    @property
    def draws(self) -> bool:
        """Whether another seed gives other nodes to parameter servers and chiefs."""
        return any(job.helper_count for job in self.given)

    def jobs(self, cluster: ClusterSpec, seed: int, load: float | None) -> list[Job]:
        """Return the same jobs for every seed."""
        jobs = sorted(self.given, key=lambda job: job.submitted)[: self.limit]
        return jobs if load is None else scaled_to_load(jobs, capacity_gpus(cluster), load)


class Cluster(Protocol):
    """Source of nodes."""

    def spec(self, seed: int) -> ClusterSpec:
        """Return sites, nodes and failures."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCluster:
    """Cluster that is the same for every seed."""

    given: ClusterSpec

    def spec(self, seed: int) -> ClusterSpec:
        """Return sites, nodes and failures."""
        return self.given


@dataclass(frozen=True, slots=True)
class PresetCluster:
    """Cluster of a named setting; random parts are drawn from the seed."""

    name: str
    options: JsacOptions = USUAL

    def spec(self, seed: int) -> ClusterSpec:
        """Return sites, nodes and failures."""
        return preset_cluster(self.name, seed, self.options)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Complete description of a scenario except policy, seed and load."""

    workload: Workload
    cluster: Cluster
    restart_seconds: float = 0.0
    period_seconds: float = 0.0
    speed_sigma: float = 0.0
    estimate_sigma: float = 0.0
    link_sigma: float = 0.0
    unsized: float = 0.0
    network: bool | None = None
    """Whether the network model is on (`Scenario.level_network`); None: if the cluster describes its links."""
    transfers: str = SHARED
    """Start rule of the transfers of gangs (`Scenario.transfers`)."""
    utility: UtilityDraw = "none"
    """Utilities that are drawn for jobs without one (`with_utilities`)."""
    speed_factor: float = 1.0
    """1 + ε of speed augmentation: the time of each chunk is divided by it, not arrivals and uploads (`at_speed`)."""

    @property
    def draws(self) -> bool:
        """Whether jobs, nodes or speeds are drawn; draws of the policy do not count."""
        drawn_nodes = isinstance(self.cluster, PresetCluster)
        described = isinstance(self.cluster, FixedCluster) and self.cluster.given.level_network is not None
        drawn_models = self.network is True or (self.network is None and described)
        drawn_beliefs = self.speed_sigma + self.estimate_sigma + self.link_sigma > 0 or 0 < self.unsized < 1
        drawn_utilities = self.utility != "none"
        return self.workload.draws or drawn_nodes or drawn_models or drawn_beliefs or drawn_utilities

    @property
    def resampled(self) -> bool:
        """Whether each seed resamples the log."""
        return isinstance(self.workload, LoggedJobs) and self.workload.resampled

    def portable(self) -> "Recipe":
        """Return the same recipe without files, for machines without access to this one's.

        Raises:
            TraceError: The log cannot be read.
        """
        if isinstance(self.workload, LoggedJobs | DrawnJobs):
            return replace(self, workload=replace(self.workload, log=RowsLog(self.workload.log.rows())))
        return self

    def build(self, policy: str, seed: int, load: float | None, *, record: bool = False) -> Scenario:
        """Build the scenario; the same arguments give the same scenario in every process.

        Raises:
            TraceError: The log cannot be read.
            ValueError: The jobs cannot be built; the text says why.
        """
        cluster = with_network(self.cluster.spec(seed), on=self.network)
        jobs = with_utilities(self.workload.jobs(cluster, seed, load), self.utility, seed)
        return Scenario(
            jobs=tuple(at_speed(job, self.speed_factor) for job in jobs),
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
            topology=cluster.topology,
            level_network=cluster.level_network,
            transfers=self.transfers,
            record=record,
        )


def with_network(cluster: ClusterSpec, *, on: bool | None) -> ClusterSpec:
    """Return the cluster with or without the network model; without descriptions of links, usual ones are assumed."""
    if on is None or on == (cluster.level_network is not None):
        return cluster
    return replace(cluster, level_network=LevelNetwork(USUAL_BITS_PER_SECOND) if on else None)


def at_speed(job: Job, factor: float) -> Job:
    """Return the job as it is on workers, of nodes and unlimited sites, that are `factor` times as fast.

    In the model of JSAC'22 a worker of speed 1 + ε takes 1/(1 + ε) of the processing time, which includes the
    communication with the parameter server: so computation and gradients shrink alike. Data to upload do not.
    """
    if factor == 1:
        return job
    return replace(
        job,
        step_seconds=job.step_seconds / factor,
        step_seconds_by_kind={kind: seconds / factor for kind, seconds in job.step_seconds_by_kind.items()},
        gradient_bits=job.gradient_bits / factor,
    )


def capacity_gpus(cluster: ClusterSpec) -> int:
    """Return the GPUs of all nodes; an unlimited site counts nothing."""
    return sum(node.allocatable.gpus for node in cluster.nodes)


def first(rows: Iterable[TraceRow], limit: int | None) -> tuple[TraceRow, ...]:
    """Return the first `limit` rows in order of submission; without a limit all rows, unchanged."""
    if limit is None:
        return tuple(rows)
    return tuple(sorted(rows, key=lambda row: row.submit_seconds)[:limit])
