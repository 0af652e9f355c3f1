"""What a simulation answers, as values; figures over them are in `tranche.simulation.analysis.summary`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from types import MappingProxyType

from tranche.model import ChunkWindow


@dataclass(frozen=True, slots=True)
class JobUse:
    """What one job used of the cloud, of links, and of each site."""

    cloud_gpu_seconds: float = 0.0
    """GPU time that its workers held in the cloud: at sites of that tier, or with capacity made on demand."""
    copied_bytes: float = 0.0
    """Of uploads of its chunks that were begun."""
    in_vain_bytes: float = 0.0
    """Of these, what no chunk trained from."""
    sites: tuple["SiteUse", ...] = ()
    """What it used at each site, by name, if the run was asked to keep that."""


@dataclass(frozen=True, slots=True)
class SiteUse:
    """What one job, or all jobs together, used at one site."""

    site: str
    tier: str
    """Edge or Cloud."""
    unlimited: bool
    """Capacity is made on demand."""
    gpu_seconds: float = 0.0
    """GPU time that workers held, from the openings of their windows to the ends of their pods."""
    trained_gpu_seconds: float = 0.0
    """Of these, in which they trained."""
    chunks: int = 0
    """Chunks that were completed there."""
    copied_bytes: float = 0.0
    """Of uploads to the site that were begun."""
    in_vain_bytes: float = 0.0
    """Of these, what no chunk trained from."""

    @property
    def is_cloud(self) -> bool:
        """Whether its GPU time is the cloud's."""
        return self.unlimited or self.tier == "Cloud"


@dataclass(frozen=True, slots=True)
class JobResult:
    """How one job fared."""

    key: str
    submitted: float
    """Seconds of the simulation's clock, as all times here."""
    started: float
    """When its first worker began to train."""
    completed: float
    gpus: int
    """GPUs that its workers hold together when all of them run."""
    ideal_seconds: float
    """JCT on an empty cluster of its fastest nodes, without transfers and restart costs."""
    waiting_seconds: float
    """Time between submission and completion in which no worker of the job trained."""
    preemptions: int
    starts: int
    """Pods of workers that were started."""
    lost_gpu_seconds: float
    """GPU time held without lasting progress: restart costs, and work that a stopped worker could not save."""
    attained_gpu_seconds: float
    """GPU time in which its workers trained."""
    tenant: str = ""
    chunk_completions: tuple[float, ...] = ()
    use: JobUse = JobUse()

    @property
    def gpu_seconds(self) -> float:
        """GPU time that its workers held."""
        return self.attained_gpu_seconds + self.lost_gpu_seconds

    @property
    def cloud_gpu_seconds(self) -> float:
        """Of these, in the cloud."""
        return self.use.cloud_gpu_seconds

    @property
    def bytes_copied(self) -> float:
        """Of uploads of its chunks that were begun."""
        return self.use.copied_bytes

    @property
    def jct_seconds(self) -> float:
        """Job completion time."""
        return self.completed - self.submitted

    @property
    def slowdown(self) -> float:
        """JCT over the JCT on an empty cluster (at least 1 but for rounding)."""
        return self.jct_seconds / self.ideal_seconds if self.ideal_seconds > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Occupation:
    """One worker pod on its GPUs, from the opening of its window to its end; for the Gantt chart."""

    job: str
    site: str
    node: str
    gpus: int
    opened: float
    """The GPUs are held from here; training starts ρ later."""
    ended: float
    outcome: str
    """Succeeded, Preempted or Lost."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster's load from `at` until the next sample."""

    at: float
    busy_gpus: int
    waiting_jobs: int
    """Jobs that were submitted, have not completed and hold no GPU."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came out."""

    jobs: tuple[JobResult, ...]
    """Completed jobs, in order of completion."""
    unfinished: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Jobs that never completed, by key: why, in the planner's words."""
    capacity_gpus: int = 0
    """Of all nodes together; 0 if only unlimited sites exist."""
    samples: tuple[Sample, ...] = ()
    """Changes of the load in order of time; at most a few thousand (the engine thins them out evenly)."""
    occupations: tuple[Occupation, ...] = ()
    """Every worker pod, if the run was asked to record them."""
    events: int = 0
    """Instants at which the planner decided."""
    sites: tuple[SiteUse, ...] = ()
    """By name; all jobs count, also those that did not complete."""
    chunks: Mapping[str, tuple[ChunkWindow, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By job, the window of each chunk with its executed windows, if the run was asked to record them."""

    @property
    def average_jct_seconds(self) -> float:
        """Mean job completion time; NaN without jobs."""
        return mean(job.jct_seconds for job in self.jobs) if self.jobs else float("nan")
