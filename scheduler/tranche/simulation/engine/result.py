"""Results of a simulation as values; `tranche.simulation.analysis.summary` computes figures from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from types import MappingProxyType
from typing import NamedTuple

from tranche.model import ChunkWindow


class JobUse(NamedTuple):
    """Use of the cloud, of links, and of each site by one job."""

    cloud_gpu_seconds: float = 0.0
    """GPU time that its workers held in the cloud: at sites of that tier, or with capacity created on demand."""
    copied_bytes: float = 0.0
    """Bytes of uploads of its chunks that were started."""
    in_vain_bytes: float = 0.0
    """Part of `copied_bytes` that no chunk trained from."""
    sites: tuple["SiteUse", ...] = ()
    """Use of each site, by name, if the run keeps that."""
    on_demand_gpu_seconds: float = 0.0
    """GPU time in which its workers trained at unlimited sites, which no capacity limits."""


@dataclass(frozen=True, slots=True)
class SiteUse:
    """Use of one site by one job, or by all jobs together."""

    site: str
    tier: str
    """Tier: Edge or Cloud."""
    unlimited: bool
    """Whether capacity is created on demand."""
    gpu_seconds: float = 0.0
    """GPU time that workers held, from the openings of their windows to the ends of their pods."""
    trained_gpu_seconds: float = 0.0
    """Part of `gpu_seconds` in which the workers trained."""
    chunks: int = 0
    """Number of chunks that were completed there."""
    copied_bytes: float = 0.0
    """Bytes of uploads to the site that were started."""
    in_vain_bytes: float = 0.0
    """Part of `copied_bytes` that no chunk trained from."""

    @property
    def is_cloud(self) -> bool:
        """Whether its GPU time counts as GPU time of the cloud."""
        return self.unlimited or self.tier == "Cloud"


class JobResult(NamedTuple):
    """Result of one completed job."""

    key: str
    submitted: float
    """Time of submission, in seconds of the simulation's clock, as all times here."""
    started: float
    """Time when its first worker began to train."""
    completed: float
    gpus: int
    """GPUs that its workers hold together when all of them run."""
    ideal_seconds: float
    """JCT on an empty cluster of its fastest nodes, without transfers and restart costs."""
    waiting_seconds: float
    """Time between submission and completion in which no worker of the job trained."""
    preemptions: int
    """Number of its workers that were stopped for others after they had begun to train."""
    starts: int
    """Number of worker pods that were started."""
    lost_gpu_seconds: float
    """GPU time held without lasting progress: restart costs, and work that a stopped worker could not save."""
    attained_gpu_seconds: float
    """GPU time in which its workers trained."""
    tenant: str = ""
    chunk_completions: tuple[float, ...] = ()
    use: JobUse = JobUse()
    communication_seconds: float = 0.0
    """Time of its mini-batches, one after the other, in which its workers communicated; 0 without network model."""
    utility: float = 0.0
    """Utility of its completion at that time; 0 if the job names no utility."""

    @property
    def gpu_seconds(self) -> float:
        """GPU time that its workers held."""
        return self.attained_gpu_seconds + self.lost_gpu_seconds

    @property
    def cloud_gpu_seconds(self) -> float:
        """Part of `gpu_seconds` in the cloud."""
        return self.use.cloud_gpu_seconds

    @property
    def jct_seconds(self) -> float:
        """Job completion time."""
        return self.completed - self.submitted

    @property
    def slowdown(self) -> float:
        """JCT over the JCT on an empty cluster; below 1 by rounding only, or if chunks were split."""
        return self.jct_seconds / self.ideal_seconds if self.ideal_seconds > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Occupation:
    """One worker pod on its GPUs, from the opening of its window to its end; for the Gantt chart."""

    job: str
    site: str
    node: str
    gpus: int
    opened: float
    """Time from which the GPUs are held; training starts ρ later."""
    ended: float
    outcome: str
    """Outcome: Succeeded, Preempted or Lost."""


class Sample(NamedTuple):
    """Load of the cluster from `at` until the next sample."""

    at: float
    busy_gpus: int
    waiting_jobs: int
    """Number of jobs that were submitted, have not completed and hold no GPU."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Result of a run."""

    jobs: tuple[JobResult, ...]
    """Completed jobs, in order of completion."""
    unfinished: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Jobs that never completed, by key, with the planner's explanation."""
    capacity_gpus: int = 0
    """GPUs of all nodes together, those of unlimited sites left out; 0 if only unlimited sites exist."""
    samples: tuple[Sample, ...] = ()
    """Changes of the load in order of time; at most a few thousand (the engine thins them out evenly)."""
    occupations: tuple[Occupation, ...] = ()
    """Every worker pod, if the run records them."""
    events: int = 0
    """Number of instants at which the planner decided."""
    sites: tuple[SiteUse, ...] = ()
    """Use of sites by name, over all jobs, also those that did not complete."""
    chunks: Mapping[str, tuple[ChunkWindow, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Planned and executed windows of each chunk, by job, if the run records them."""

    @property
    def average_jct_seconds(self) -> float:
        """Mean job completion time; NaN without jobs."""
        return mean(job.jct_seconds for job in self.jobs) if self.jobs else float("nan")
