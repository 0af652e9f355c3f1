"""Accounting of a run: costs and progress per job, and the load of the cluster over time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tranche.model import Job, Node, Site
from tranche.simulation.engine.result import JobResult, JobUse, Sample

MAX_SAMPLES = 4096


@dataclass(slots=True, eq=False)
class JobAccount:
    """Account of one job between submission and completion."""

    job: Job
    started: float | None = None
    training: int = 0
    """Number of workers that are training."""
    holding: int = 0
    """Number of workers that hold GPUs."""
    idle_since: float = 0.0
    waited: float = 0.0
    preemptions: int = 0
    starts: int = 0
    lost: float = 0.0
    attained: float = 0.0
    communicated: float = 0.0
    chunk_ends: dict[int, float] = field(default_factory=dict)

    def begin(self, now: float) -> None:
        """Record that a worker begins to train."""
        if self.started is None:
            self.started = now
        if not self.training:
            self.waited += now - self.idle_since
        self.training += 1

    def end(self, now: float) -> None:
        """Record that a worker that trained stops."""
        self.training -= 1
        if not self.training:
            self.idle_since = now

    def result(self, completed: float, ideal_seconds: float, use: JobUse) -> JobResult:
        """Return the result of the completed job."""
        job = self.job
        started = completed if self.started is None else self.started
        return JobResult(
            key=job.key,
            submitted=job.submitted,
            started=started,
            completed=completed,
            gpus=job.gpus * job.width,
            ideal_seconds=ideal_seconds,
            waiting_seconds=self.waited,
            preemptions=self.preemptions,
            starts=self.starts,
            lost_gpu_seconds=self.lost,
            attained_gpu_seconds=self.attained,
            tenant=job.tenant,
            chunk_completions=tuple([self.chunk_ends.get(chunk, completed) for chunk in range(job.chunks)]),
            use=use,
            communication_seconds=self.communicated,
            utility=0.0 if job.utility is None else job.utility.at(completed - job.submitted),
        )


def ideal_seconds(job: Job, fastest: float) -> float:
    """Return the JCT on an empty cluster of GPUs of that speed, without transfers, restarts and communication."""
    return -(-job.chunks // job.width) * job.batches_per_chunk_total * job.step_seconds / fastest


def speeds_by_kind(nodes: Iterable[Node], sites: Iterable[Site]) -> dict[str, float]:
    """Return the largest speed of each GPU kind of nodes and unlimited sites, which create nodes."""
    speeds: dict[str, float] = {}
    for kind, speed in [
        *((node.gpu_kind, node.speed) for node in nodes),
        *((site.gpu_kind, site.speed) for site in sites if site.unlimited),
    ]:
        speeds[kind] = max(speed, speeds.get(kind, 0.0))
    return speeds


def fastest_speed(job: Job, speeds: Mapping[str, float]) -> float:
    """Return the largest speed that any of these GPU kinds has for the job; 1 without any."""
    return max([job.speed_on(kind, speed) for kind, speed in speeds.items()], default=1.0)


@dataclass(slots=True, eq=False)
class LoadCurve:
    """Busy GPUs and waiting jobs over time; when it grows long, every second sample is dropped and fewer are taken."""

    samples: list[Sample] = field(default_factory=list)
    spacing: float = 0.0
    """Minimum time between two samples, in seconds."""
    latest: Sample | None = None
    """Last change, whether it is among the samples or was left out."""

    def whole(self) -> list[Sample]:
        """Return the samples, and the last change."""
        last = self.samples[-1] if self.samples else None
        left_out = self.latest is not last
        return [*self.samples, self.latest] if left_out and self.latest is not None else self.samples

    def take(self, now: float, busy: int, waiting: int) -> None:
        """Record the load from now on; of several calls at one instant the last one counts."""
        samples, latest = self.samples, self.latest
        if latest is not None and latest.busy_gpus == busy and latest.waiting_jobs == waiting:
            return  # also for events that wake the engine without changing anything, after the last job
        self.latest = Sample(now, busy, waiting)
        if samples and samples[-1].at == now:
            samples.pop()
        elif samples and now - samples[-1].at < self.spacing:
            return
        samples.append(self.latest)
        if len(samples) > MAX_SAMPLES:
            self.spacing = max(2 * self.spacing, 2 * (samples[-1].at - samples[0].at) / MAX_SAMPLES)
            thinned = samples[:1]
            for sample in samples[1:]:
                if sample.at - thinned[-1].at >= self.spacing:
                    thinned.append(sample)
            self.samples = thinned
