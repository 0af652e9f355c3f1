"""Speed of workers, learnt from the measured times of ended windows.

The logarithm of measured over predicted seconds of a mini-batch is taken as a sum of three unknowns: of the job (its
prediction is wrong), of the job on this GPU kind at this site, and of the node (slow for all jobs). Each is a normal
variable; an observation corrects each in proportion to its variance: a Kalman filter that neglects covariances [I],
O(1) an observation. An unknown that was never observed is 0, so a node that many jobs found slow is expected to be
slow for the next job at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log

JOB_SIGMA, PLACE_SIGMA, NODE_SIGMA = 0.5, 0.1, 0.3
"""Standard deviation of each unknown before anything is observed."""
KNOWN_SIGMA = 0.1
"""Standard deviation of a node's unknown whose mean an earlier planner has learnt."""
DRIFT_SIGMA = 0.02
"""Drift of an unknown between two observations (standard deviation), so that older observations lose weight."""
NOISE_SIGMA = 0.05
"""Standard deviation of an observation of a long window."""
OVERHEAD_SECONDS = 5.0
"""Overhead beside training that a window's measured time may contain."""
EXACT = 1e-6
"""Threshold below which a logarithm is rounding error: accurate predictions stay unchanged, to the digit."""


@dataclass(slots=True)
class Belief:
    """Normally distributed estimate."""

    mean: float
    variance: float


@dataclass(slots=True)
class Lessons:
    """Learnt factors of the time of a mini-batch; without observations every factor is 1."""

    nodes: dict[str, Belief] = field(default_factory=dict)
    jobs: dict[str, Belief] = field(default_factory=dict)
    places: dict[str, dict[tuple[str, str], Belief]] = field(default_factory=dict)
    """Estimates by job, then by GPU kind and site."""

    def factor(self, job: str, kind: str, site: str, node: str | None) -> float:
        """Return estimated over predicted seconds of a mini-batch of the job.

        Args:
            job: Key of the job.
            kind: GPU kind of the node; "" if no node is meant.
            site: Name of the site.
            node: Name of the node; None if no node is meant.
        """
        if not (self.jobs or self.nodes):
            return 1.0
        total = sum(one.mean for one in self._beliefs(job, kind, site, node) if one is not None)
        return exp(total) if total else 1.0

    def node_factor(self, node: str) -> float:
        """Return the factor of the node alone."""
        known = self.nodes.get(node)
        return exp(known.mean) if known is not None else 1.0

    def job_factor(self, job: str) -> float:
        """Return the factor of the job alone."""
        known = self.jobs.get(job)
        return exp(known.mean) if known is not None else 1.0

    def assume(self, job: str, factor: float, sigma: float = JOB_SIGMA) -> None:
        """Start with this factor for the job; sigma is the standard deviation of its logarithm."""
        self.jobs[job] = Belief(log(factor), sigma**2)

    def recall_node(self, node: str, factor: float) -> None:
        """Start with this factor for the node, which an earlier planner has learnt."""
        self.nodes[node] = Belief(log(factor), KNOWN_SIGMA**2)

    def observe(self, job: str, kind: str, site: str, node: str | None, factor: float, seconds: float) -> bool:
        """Update the estimates with an ended window; return whether they changed.

        Args:
            job: Key of the job.
            kind: GPU kind of the node.
            site: Site where the window trained.
            node: Name of the node; None if the node's estimate must not change.
            factor: Measured over predicted seconds of a mini-batch.
            seconds: Measured duration.
        """
        beliefs = self._beliefs(job, kind, site, node)
        error = log(factor) - sum(one.mean for one in beliefs if one is not None)
        if abs(error) < EXACT:
            return False
        noise = NOISE_SIGMA + OVERHEAD_SECONDS / seconds
        parts = list(self._noted(job, kind, site, node))
        total = sum(one.variance for one in parts) + noise**2
        for one in parts:
            gain = one.variance / total
            one.mean += gain * error
            one.variance = one.variance * (1 - gain) + DRIFT_SIGMA**2
        return True

    def forget_job(self, job: str) -> None:
        """Remove the estimates of a job that has ended."""
        self.jobs.pop(job, None)
        self.places.pop(job, None)

    def forget_node(self, node: str) -> None:
        """Remove the estimate of a node that is gone."""
        self.nodes.pop(node, None)

    def _beliefs(self, job: str, kind: str, site: str, node: str | None) -> tuple[Belief | None, ...]:
        place = self.places.get(job)
        return (
            self.jobs.get(job),
            place.get((kind, site)) if place else None,
            self.nodes.get(node) if node is not None else None,
        )

    def _noted(self, job: str, kind: str, site: str, node: str | None) -> Iterator[Belief]:
        """Yield the estimates, after adding those that are missing."""
        yield self.jobs.setdefault(job, Belief(0.0, JOB_SIGMA**2))
        yield self.places.setdefault(job, {}).setdefault((kind, site), Belief(0.0, PLACE_SIGMA**2))
        if node is not None:
            yield self.nodes.setdefault(node, Belief(0.0, NODE_SIGMA**2))
