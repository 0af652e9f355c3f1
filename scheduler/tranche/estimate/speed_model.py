"""Speed model: corrections of predicted mini-batch times, learned from workers that have ended.

The logarithm of measured over predicted seconds of a mini-batch is modelled as a sum of three unknowns: one of the job
(its prediction is wrong), one of the job on this GPU kind at this site, and one of the node (slow for all jobs). Each
is a normal variable; an observation corrects each in proportion to its variance: a Kalman filter that neglects
covariances [I], O(1) per observation. An unknown that was never observed is 0, so a node that was slow for many jobs is
predicted to be slow for a new job too.

In a live cluster, declarations may be wrong or hostile. There, a job's first window says nothing about its node, and a
node's factor comes from several jobs (`tranche.estimate.node_evidence`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import exp, hypot, log

from tranche.estimate.node_evidence import MAX_LOG_FACTOR, NodeEvidence

JOB_SIGMA, JOB_AT_SITE_SIGMA, NODE_SIGMA = 0.5, 0.1, 0.3
"""Standard deviation of each unknown before anything is observed."""
KNOWN_SIGMA = 0.1
"""Standard deviation of the unknown of a node or GPU kind that an earlier planner or several jobs have determined."""
DRIFT_SIGMA = 0.02
"""Standard deviation of an unknown's change between two observations, so that old observations lose weight."""
NOISE_SIGMA = 0.05
"""Standard deviation of an observation of a long window."""
OVERHEAD_SECONDS = 5.0
"""Time other than training that a window's measured time may contain, in seconds."""
EXACT = 1e-6
"""Logarithms below this are rounding errors and ignored, so that correct predictions stay exactly as they are."""


@dataclass(slots=True)
class NormalVariable:
    """Mean and variance of an unknown."""

    mean: float
    variance: float


@dataclass(slots=True)
class SpeedModel:
    """Learned factors of the seconds of a mini-batch; without observations all factors are 1."""

    nodes: dict[str, NormalVariable] = field(default_factory=dict)
    jobs: dict[str, NormalVariable] = field(default_factory=dict)
    places: dict[str, dict[tuple[str, str], NormalVariable]] = field(default_factory=dict)
    """Unknowns of a job on a GPU kind at a site: by job, then by GPU kind and site."""
    evidence: NodeEvidence | None = None
    """Windows of several jobs, which must agree before a node has a factor; None: every window corrects its node."""
    kinds: dict[str, NormalVariable] = field(default_factory=dict)
    """Unknowns of GPU kinds, for nodes that have no factor of their own; with `kind_evidence` only."""
    kind_evidence: NodeEvidence | None = None
    """The same evidence by GPU kind; None: nothing is learned about kinds."""

    def factor(self, job: str, kind: str, site: str, node: str | None) -> float:
        """Return the corrected over the predicted seconds of a mini-batch of the job.

        Args:
            job: Key of the job.
            kind: GPU kind of the node; "" without a node.
            site: Name of the site.
            node: Name of the node; None without a node.
        """
        return self.factors(job, kind, site)(node)

    def factors(self, job: str, kind: str, site: str) -> Callable[[str | None], float]:
        """Return the function from the name of a node of this kind at this site to `factor`; it is for one decision."""
        if not (self.jobs or self.nodes or self.kinds):
            return lambda node: 1.0
        common = sum([term.mean for term in self._existing_terms(job, kind, site, None) if term is not None])
        nodes, of_kind = self.nodes, self.kinds.get(kind)

        def factor(node: str | None) -> float:
            hardware = nodes.get(node, of_kind) if node is not None else None
            total = common + hardware.mean if hardware is not None else common
            return exp(total) if total else 1.0

        return factor

    def node_factor(self, node: str, kind: str = "") -> float:
        """Return the factor of the node alone; without one, that of its GPU kind."""
        hardware = self._hardware(node, kind)
        return exp(hardware.mean) if hardware is not None else 1.0

    def _hardware(self, node: str | None, kind: str) -> NormalVariable | None:
        """Return the unknown of the node, which holds all that was learned there, else that of its GPU kind."""
        variable = self.nodes.get(node) if node is not None else None
        return variable if variable is not None or node is None else self.kinds.get(kind)

    def job_factor(self, job: str) -> float:
        """Return the factor of the job alone."""
        variable = self.jobs.get(job)
        return exp(variable.mean) if variable is not None else 1.0

    def assume(self, job: str, factor: float, sigma: float = JOB_SIGMA) -> None:
        """Set the factor of the job; sigma is the standard deviation of its logarithm."""
        self.jobs[job] = NormalVariable(log(factor), sigma**2)

    def recall_node(self, node: str, factor: float) -> None:
        """Set the factor of the node, which an earlier planner has learned."""
        mean = log(factor)
        if self.evidence is not None:
            mean = max(-MAX_LOG_FACTOR, min(MAX_LOG_FACTOR, mean))
        self.nodes[node] = NormalVariable(mean, KNOWN_SIGMA**2)

    def recall_kind(self, kind: str, factor: float) -> None:
        """Set the factor of the GPU kind, which an earlier planner has learned."""
        self.kinds[kind] = NormalVariable(max(-MAX_LOG_FACTOR, min(MAX_LOG_FACTOR, log(factor))), KNOWN_SIGMA**2)

    def observe(self, job: str, kind: str, site: str, node: str | None, factor: float, seconds: float) -> bool:
        """Correct the unknowns by a window that has ended; return whether any changed, but for those of `evidence`.

        Args:
            job: Key of the job.
            kind: GPU kind of its node.
            site: Site where it trained.
            node: Name of the node; None to learn nothing about it.
            factor: Measured over predicted seconds of a mini-batch.
            seconds: Measured training time of the window.
        """
        terms = self._existing_terms(job, kind, site, node)
        error = log(factor) - sum(term.mean for term in terms if term is not None)
        noise = NOISE_SIGMA + OVERHEAD_SECONDS / seconds
        if self.evidence is not None:
            self._observe_node(self.evidence, job, kind, node, error)
            noise, node = hypot(noise, NODE_SIGMA), None
        if abs(error) < EXACT:
            return False
        corrected = list(self._terms(job, kind, site, node))
        total = sum(term.variance for term in corrected) + noise**2
        for term in corrected:
            gain = term.variance / total
            term.mean += gain * error
            term.variance = term.variance * (1 - gain) + DRIFT_SIGMA**2
        return True

    def _observe_node(self, evidence: NodeEvidence, job: str, kind: str, node: str | None, error: float) -> None:
        """Count a window as evidence on its node and GPU kind, unless it is the first one of its job.

        The first one says how wrong the job's own declaration is. A kind has a factor only relative to other kinds.
        """
        if node is None or job not in self.places:
            self.places.setdefault(job, {})
            return
        hardware = self._hardware(node, kind)
        error += hardware.mean if hardware is not None else 0.0
        mean = evidence.add(node, job, error)
        if mean is not None:
            self.nodes[node] = NormalVariable(mean, KNOWN_SIGMA**2)
        if self.kind_evidence is not None and kind:
            mean = self.kind_evidence.add(kind, job, error)
            if mean is not None and self.kind_evidence.node_count > 1:
                self.kinds[kind] = NormalVariable(mean, KNOWN_SIGMA**2)

    def forget_job(self, job: str) -> None:
        """Forget a job that has ended."""
        self.jobs.pop(job, None)
        self.places.pop(job, None)
        for evidence in (self.evidence, self.kind_evidence):
            if evidence is not None:
                evidence.forget_job(job)

    def forget_node(self, node: str) -> None:
        """Forget a node that was removed."""
        self.nodes.pop(node, None)
        if self.evidence is not None:
            self.evidence.forget_node(node)

    def _existing_terms(self, job: str, kind: str, site: str, node: str | None) -> tuple[NormalVariable | None, ...]:
        place = self.places.get(job)
        return (
            self.jobs.get(job),
            place.get((kind, site)) if place else None,
            self._hardware(node, kind),
        )

    def _terms(self, job: str, kind: str, site: str, node: str | None) -> Iterator[NormalVariable]:
        """Yield the terms of an observation, with new ones for those that are unknown."""
        yield self.jobs.setdefault(job, NormalVariable(0.0, JOB_SIGMA**2))
        yield self.places.setdefault(job, {}).setdefault((kind, site), NormalVariable(0.0, JOB_AT_SITE_SIGMA**2))
        if node is not None:
            yield self.nodes.setdefault(node, NormalVariable(0.0, NODE_SIGMA**2))
