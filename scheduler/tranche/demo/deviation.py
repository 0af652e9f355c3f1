"""Comparison of measured and simulated jobs, with the sources of the difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from tranche.demo.job_timeline import JobTimeline, Phases, split

WORTH_SECONDS = 0.05
"""Minimum part of a difference that is reported, in seconds."""
WORDS = {
    "waiting": "waiting for GPUs",
    "starting": "pods starting",
    "training": "training, with pauses",
    "reporting": "status written",
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """Measured and simulated times of one job."""

    job: str
    measured: Phases
    simulated: Phases
    measured_preemptions: int
    simulated_preemptions: int
    chunks: int
    moved_chunks: int
    """Chunks completed on another node than in the simulation."""

    @property
    def seconds(self) -> float:
        """Measured minus simulated completion time, in seconds."""
        return self.measured.total - self.simulated.total

    @property
    def relative(self) -> float:
        """Absolute difference as a share of the measured completion time."""
        return abs(self.seconds) / self.measured.total if self.measured.total > 0 else 0.0

    def parts(self) -> list[tuple[str, float]]:
        """Return the parts of the difference: names of `Phases` and seconds, largest first."""
        differences = [
            (name, getattr(self.measured, name) - getattr(self.simulated, name)) for name in Phases.__slots__
        ]
        return sorted(differences, key=lambda part: -abs(part[1]))

    def cause(self) -> str:
        """Describe the main parts of the difference and the different decisions."""
        main_parts = [(n, s) for n, s in self.parts() if s * self.seconds > 0 and abs(s) >= WORTH_SECONDS]
        causes = [", ".join(f"{WORDS[name]} {seconds:+.1f} s" for name, seconds in main_parts)] if main_parts else []
        if self.measured_preemptions != self.simulated_preemptions:
            causes.append(f"preempted {self.measured_preemptions}, not {self.simulated_preemptions} times")
        if self.moved_chunks:
            causes.append(f"{self.moved_chunks} of {self.chunks} chunks on other nodes")
        return "; ".join(causes)


def compare(
    measured: Mapping[str, JobTimeline],
    simulated: Mapping[str, JobTimeline],
    completed: Mapping[str, float],
    reporting: float,
) -> list[Deviation]:
    """Compare the jobs that completed in both runs, largest relative difference first.

    Args:
        measured: Measured jobs by key.
        simulated: Simulated jobs by key.
        completed: Time at which each job's status showed success, by job key, in seconds of the planner's clock.
        reporting: Delay of the status added to the end of simulated jobs, in seconds.
    """
    deviations = [
        _deviation(key, measured[key], simulated[key], completed[key], reporting)
        for key in completed
        if key in measured and key in simulated and simulated[key].ended
    ]
    return sorted(deviations, key=lambda deviation: (-deviation.relative, deviation.job))


def _deviation(
    key: str, measured: JobTimeline, simulated: JobTimeline, completed: float, reporting: float
) -> Deviation:
    measured_nodes, simulated_nodes = measured.last_nodes, simulated.last_nodes
    return Deviation(
        key,
        split(measured, completed),
        split(simulated, simulated.ended + reporting),
        measured.preemptions,
        simulated.preemptions,
        len(measured_nodes),
        sum(node != simulated_nodes.get(chunk) for chunk, node in measured_nodes.items()),
    )


def spread(deviations: Sequence[Deviation]) -> tuple[float, float]:
    """Return the median and 95th percentile of the relative differences; zeros without jobs."""
    values = [deviation.relative for deviation in deviations]
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    return median(values), quantiles(values, n=20, method="inclusive")[18]


def within(seconds: float, limits: tuple[float, float] | None, tolerance: float = 0.05) -> bool:
    """Return whether the time lies between both limits, or outside by no more than this share of a limit."""
    return limits is not None and limits[0] * (1 - tolerance) <= seconds <= limits[1] * (1 + tolerance)
