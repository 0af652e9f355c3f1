"""How fast workers are, learnt from what ended ones needed.

The logarithm of measured over predicted seconds of a mini-batch is taken as a sum of three unknowns: of the job (its
prediction is wrong), of the job on this GPU kind at this site, and of the node (slow for all jobs). Each is a normal
variable; an observation corrects each in proportion to its variance: a Kalman filter that neglects covariances [I],
O(1) an observation. An unknown that was never observed is 0, so a node that many jobs found slow is believed slow by
the next one at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, log

JOB_SIGMA, PLACE_SIGMA, NODE_SIGMA = 0.5, 0.1, 0.3
"""Standard deviation of each unknown before anything is observed."""
KNOWN_SIGMA = 0.1
"""The same of a node's that an earlier planner has learnt."""
DRIFT_SIGMA = 0.02
"""By how much an unknown changes between two observations: what is old counts less and less."""
NOISE_SIGMA = 0.05
"""Of an observation of a long window."""
OVERHEAD_SECONDS = 5.0
"""That a window's measured time may contain beside training."""
EXACT = 1e-6
"""A smaller logarithm is rounding: predictions that hold stay as they are, to the digit."""


@dataclass(slots=True)
class Belief:
    """A normal variable."""

    mean: float
    variance: float


@dataclass(slots=True)
class Lessons:
    """Learnt factors of the seconds of a mini-batch; empty, it says 1 everywhere."""

    nodes: dict[str, Belief] = field(default_factory=dict)
    jobs: dict[str, Belief] = field(default_factory=dict)
    places: dict[str, dict[tuple[str, str], Belief]] = field(default_factory=dict)
    """By job, then by GPU kind and site."""

    def factor(self, job: str, kind: str, site: str, node: str | None) -> float:
        """Believed over predicted seconds of a mini-batch of the job.

        Args:
            job: Its key.
            kind: GPU kind of the node; "" if no node is meant.
            site: Where.
            node: Its name; None if no node is meant.
        """
        if not (self.jobs or self.nodes):
            return 1.0
        total = sum(one.mean for one in self._beliefs(job, kind, site, node) if one is not None)
        return exp(total) if total else 1.0

    def node_factor(self, node: str) -> float:
        """The node's own part."""
        known = self.nodes.get(node)
        return exp(known.mean) if known is not None else 1.0

    def job_factor(self, job: str) -> float:
        """The job's own part."""
        known = self.jobs.get(job)
        return exp(known.mean) if known is not None else 1.0

    def assume(self, job: str, factor: float, sigma: float = JOB_SIGMA) -> None:
        """Begin with this factor of the job; sigma is the standard deviation of its logarithm."""
        self.jobs[job] = Belief(log(factor), sigma**2)

    def recall_node(self, node: str, factor: float) -> None:
        """Begin with this factor of the node, which has been learnt before."""
        self.nodes[node] = Belief(log(factor), KNOWN_SIGMA**2)

    def observe(self, job: str, kind: str, site: str, node: str | None, factor: float, seconds: float) -> bool:
        """A window has ended; returns whether anything was learnt.

        Args:
            job: Its key.
            kind: GPU kind of its node.
            site: Where it trained.
            node: The node; None if nothing is to be concluded about it.
            factor: Measured over predicted seconds of a mini-batch.
            seconds: That were measured.
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
        """It is over."""
        self.jobs.pop(job, None)
        self.places.pop(job, None)

    def forget_node(self, node: str) -> None:
        """It is gone."""
        self.nodes.pop(node, None)

    def _beliefs(self, job: str, kind: str, site: str, node: str | None) -> tuple[Belief | None, ...]:
        place = self.places.get(job)
        return (
            self.jobs.get(job),
            place.get((kind, site)) if place else None,
            self.nodes.get(node) if node is not None else None,
        )

    def _noted(self, job: str, kind: str, site: str, node: str | None) -> Iterator[Belief]:
        """The same, entered where they were not known."""
        yield self.jobs.setdefault(job, Belief(0.0, JOB_SIGMA**2))
        yield self.places.setdefault(job, {}).setdefault((kind, site), Belief(0.0, PLACE_SIGMA**2))
        if node is not None:
            yield self.nodes.setdefault(node, Belief(0.0, NODE_SIGMA**2))
