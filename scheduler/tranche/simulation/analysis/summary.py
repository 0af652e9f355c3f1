"""Summary figures of a simulation: completion times, queueing, cost of preemption, fairness."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import fsum, nan

import numpy as np
from numpy.typing import NDArray

from tranche.simulation.analysis.quantile import quantiles
from tranche.simulation.engine.result import JobResult, SimulationResult


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one run over its completed jobs, NaN where there are none.

    Percentiles are interpolated linearly between the two nearest jobs, both ends included (Hyndman and Fan's type 7,
    the default of numpy and R).
    """

    average_jct_seconds: float
    median_jct_seconds: float
    p95_jct_seconds: float
    p99_jct_seconds: float
    makespan_seconds: float
    """Time from the first submission to the last completion."""
    average_queueing_seconds: float
    """Mean time of a job between submission and completion in which none of its workers trained."""
    preemptions: int
    starts: int
    """Number of worker pods that were started."""
    lost_gpu_seconds: float
    """GPU time held without lasting progress."""
    utilisation: float
    """GPU time spent in training on nodes over capacity × makespan, 0 … 1; unlimited sites, which have no capacity, are
    left out; 0 if there are no others."""
    worst_slowdown: float
    """Largest ratio of a job's JCT to its JCT on an empty cluster."""
    fairness_index: float
    """Jain's index of the slowdowns, (Σx)² / (n Σx²): 1 if all jobs are slowed alike, 1/n if one bears it all."""
    jobs: int
    """Jobs that completed."""
    unfinished: int
    """Number of jobs that never completed."""
    gpu_seconds: float
    """GPU time that workers held."""
    cloud_gpu_seconds: float
    """Part of `gpu_seconds` in the cloud: at sites of that tier, or with capacity created on demand."""
    copied_bytes: float
    """Bytes of chunk uploads that were started."""
    in_vain_bytes: float
    """Part of `copied_bytes` that no chunk trained from."""
    communication_seconds: float
    """Sum over all mini-batches of the time in which workers communicated; 0 without network model."""
    total_utility: float
    """Sum of the utilities of the completed jobs that name one; jobs that never completed count 0."""

    def as_dict(self) -> dict[str, float | int]:
        """Return the figures by name, in the order above; these names are an interface of the command line."""
        return asdict(self)


def summarize(result: SimulationResult) -> Summary:
    """Compute all figures of one run, in O(n log n) of its jobs.

    GPU time, bytes, preemptions and starts count completed jobs only; `SimulationResult.sites` counts all jobs.
    """
    jobs = result.jobs
    jct = np.array([job.jct_seconds for job in jobs], dtype=np.float64)
    median, p95, p99 = percentiles(jct, (50.0, 95.0, 99.0))
    makespan = max(job.completed for job in jobs) - min(job.submitted for job in jobs) if jobs else nan
    slowdowns = [job.slowdown for job in jobs]
    room = result.capacity_gpus * makespan
    return Summary(
        average_jct_seconds=_mean([job.jct_seconds for job in jobs]),
        median_jct_seconds=median,
        p95_jct_seconds=p95,
        p99_jct_seconds=p99,
        makespan_seconds=makespan,
        average_queueing_seconds=_mean([job.waiting_seconds for job in jobs]),
        preemptions=sum(job.preemptions for job in jobs),
        starts=sum(job.starts for job in jobs),
        lost_gpu_seconds=fsum(job.lost_gpu_seconds for job in jobs),
        gpu_seconds=fsum(job.gpu_seconds for job in jobs),
        cloud_gpu_seconds=fsum(job.cloud_gpu_seconds for job in jobs),
        copied_bytes=fsum(job.use.copied_bytes for job in jobs),
        in_vain_bytes=fsum(job.use.in_vain_bytes for job in jobs),
        communication_seconds=fsum(job.communication_seconds for job in jobs),
        utilisation=_trained_on_nodes(jobs) / room if room > 0 else 0.0,
        worst_slowdown=max(slowdowns, default=nan),
        fairness_index=jain_index(slowdowns),
        jobs=len(jobs),
        unfinished=len(result.unfinished),
        total_utility=fsum(job.utility for job in jobs),
    )


def percentiles(values: NDArray[np.float64], ranks: tuple[float, ...]) -> tuple[float, ...]:
    """Return the percentiles of the values at the ranks (0 … 100), linearly interpolated; NaN without values."""
    if not values.size:
        return tuple(nan for _ in ranks)
    return tuple(float(value) for value in quantiles(values, np.array(ranks) / 100))


def jain_index(values: list[float]) -> float:
    """Return Jain's fairness index of values that are not negative; NaN if there are none, 1 if all are 0.

    Source: Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination, DEC-TR-301, 1984.
    """
    if not values:
        return nan
    squares = len(values) * fsum(value * value for value in values)
    return fsum(values) ** 2 / squares if squares else 1.0


def _trained_on_nodes(jobs: Sequence[JobResult]) -> float:
    """Return the GPU time in which workers trained, that at unlimited sites left out."""
    return fsum(job.attained_gpu_seconds - job.use.on_demand_gpu_seconds for job in jobs)


def _mean(values: list[float]) -> float:
    return fsum(values) / len(values) if values else nan
