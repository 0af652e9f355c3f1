"""Evidence of jobs of different tenants on the speed of a node, so that no single job decides it for all.

A job's own declaration may be wrong by any factor, and the job may be a hostile one. Therefore a window counts at most
a factor of two, and a node's factor is a median: over the jobs of each namespace, and over the namespaces.
"""

from collections import Counter
from collections.abc import Mapping
from math import log
from statistics import median
from typing import Self

MAX_LOG_FACTOR = log(2.0)
"""Maximum absolute logarithm of one window."""
RATE = 0.5
"""Weight of a job's newest window on a node against its earlier ones there."""
MAX_JOBS = 16
"""Number of jobs that are kept for a node, the latest ones."""


class NodeEvidence:
    """Logarithms of measured over expected seconds of a mini-batch, by node and job."""

    def __init__(self, jobs_required: int) -> None:
        """Create without evidence.

        Args:
            jobs_required: Number of different jobs that must have trained on a node.
        """
        self._jobs_required = jobs_required
        self._by_node: dict[str, dict[str, float]] = {}
        self._kept: Counter[str] = Counter()
        """Number of the kept measurements of jobs by namespace."""
        self._training: dict[str, set[str]] = {}
        """Jobs that have measured and have not ended, by namespace."""

    @property
    def node_count(self) -> int:
        """Number of nodes with measurements of jobs."""
        return len(self._by_node)

    def __deepcopy__(self, memo: Mapping[int, object]) -> Self:
        """Return empty evidence: rollouts learn nothing about nodes."""
        return type(self)(self._jobs_required)

    def add(self, node: str, job: str, error: float) -> float | None:
        """Record the measurement of one window; return the node's logarithm, None while too few jobs have measured it.

        If only one namespace trains in the whole cluster, its jobs suffice; otherwise a second one must agree. A
        namespace counts until its jobs have ended and their measurements have given way to later ones.

        Args:
            node: Name of the node.
            job: ``namespace/name`` of the job.
            error: Logarithm of measured over expected seconds, expected without the node's factor.
        """
        jobs = self._by_node.setdefault(node, {})
        measured = max(-MAX_LOG_FACTOR, min(MAX_LOG_FACTOR, error))
        mean = jobs.pop(job, None)
        jobs[job] = measured if mean is None else mean + RATE * (measured - mean)
        self._kept[_namespace(job)] += mean is None
        self._training.setdefault(_namespace(job), set()).add(job)
        while len(jobs) > MAX_JOBS:
            self._drop(jobs, next(iter(jobs)))
        groups: dict[str, list[float]] = {}
        for name, logarithm in jobs.items():
            groups.setdefault(_namespace(name), []).append(logarithm)
        if len(jobs) < self._jobs_required or len(groups) < min(2, len(self._kept.keys() | self._training.keys())):
            return None
        return median(median(group) for group in groups.values())

    def forget_node(self, node: str) -> None:
        """Forget a node that was removed."""
        jobs = self._by_node.pop(node, {})
        for job in list(jobs):
            self._drop(jobs, job)

    def forget_job(self, job: str) -> None:
        """Record that a job has ended; its measurements stay."""
        jobs = self._training.get(_namespace(job), set())
        jobs.discard(job)
        if not jobs:
            self._training.pop(_namespace(job), None)

    def _drop(self, jobs: dict[str, float], job: str) -> None:
        """Forget the measurement of a job on a node."""
        del jobs[job]
        self._kept[_namespace(job)] -= 1
        if not self._kept[_namespace(job)]:
            del self._kept[_namespace(job)]


def _namespace(job: str) -> str:
    return job.partition("/")[0]
