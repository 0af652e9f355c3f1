"""Each job as it was measured beside itself as it was simulated, and source of the difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from tranche.demo.courses import Course, Phases, split

WORTH_SECONDS = 0.05
"""Smaller parts of a difference are not told."""
WORDS = {
    "waiting": "waiting for GPUs",
    "starting": "pods starting",
    "training": "training, with pauses",
    "reporting": "status written",
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One job twice."""

    job: str
    measured: Phases
    simulated: Phases
    measured_preemptions: int
    simulated_preemptions: int
    chunks: int
    moved_chunks: int
    """Chunks that were finished on another node than simulated."""

    @property
    def seconds(self) -> float:
        """Measured minus simulated."""
        return self.measured.total - self.simulated.total

    @property
    def relative(self) -> float:
        """Its size as a share of the measured completion time."""
        return abs(self.seconds) / self.measured.total if self.measured.total > 0 else 0.0

    def parts(self) -> list[tuple[str, float]]:
        """What makes up the difference: names of `Phases` and seconds, largest first."""
        found = [(name, getattr(self.measured, name) - getattr(self.simulated, name)) for name in Phases.__slots__]
        return sorted(found, key=lambda part: -abs(part[1]))

    def cause(self) -> str:
        """The parts that point the same way as the difference, and what was decided otherwise."""
        telling = [(n, s) for n, s in self.parts() if s * self.seconds > 0 and abs(s) >= WORTH_SECONDS]
        said = [", ".join(f"{WORDS[name]} {seconds:+.1f} s" for name, seconds in telling)] if telling else []
        if self.measured_preemptions != self.simulated_preemptions:
            said.append(f"preempted {self.measured_preemptions}, not {self.simulated_preemptions} times")
        if self.moved_chunks:
            said.append(f"{self.moved_chunks} of {self.chunks} chunks on other nodes")
        return "; ".join(said)


def compare(
    measured: Mapping[str, Course], simulated: Mapping[str, Course], completed: Mapping[str, float], reporting: float
) -> list[Deviation]:
    """All jobs that completed in both, the largest relative difference first.

    Args:
        measured: By job key.
        simulated: The same jobs in virtual time.
        completed: When each job's status said that it succeeded, by job key; seconds of the planner's clock.
        reporting: What is added to a simulated job's last end for that, in seconds.
    """
    found = [
        _deviation(key, measured[key], simulated[key], completed[key], reporting)
        for key in completed
        if key in measured and key in simulated and simulated[key].ended
    ]
    return sorted(found, key=lambda deviation: (-deviation.relative, deviation.job))


def _deviation(key: str, measured: Course, simulated: Course, completed: float, reporting: float) -> Deviation:
    here, there = measured.last_nodes, simulated.last_nodes
    return Deviation(
        key,
        split(measured, completed),
        split(simulated, simulated.ended + reporting),
        measured.preemptions,
        simulated.preemptions,
        len(here),
        sum(node != there.get(chunk) for chunk, node in here.items()),
    )


def spread(deviations: Sequence[Deviation]) -> tuple[float, float]:
    """Median and 95th percentile of the relative differences; zeros without jobs."""
    values = [deviation.relative for deviation in deviations]
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    return median(values), quantiles(values, n=20, method="inclusive")[18]


def within(seconds: float, limits: tuple[float, float] | None, tolerance: float = 0.05) -> bool:
    """Whether the time lies between both limits, or outside by no more than this share of it."""
    return limits is not None and limits[0] * (1 - tolerance) <= seconds <= limits[1] * (1 + tolerance)
