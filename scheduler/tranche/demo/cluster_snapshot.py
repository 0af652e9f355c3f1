"""Observation of the demo cluster: TrainingJobs and Sites from the API server, and busy links from metrics."""

import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from tranche.kube.api.core_types import NodeObject
from tranche.kube.api.names import GPU_RESOURCES
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.model import Node
from tranche.web.job_views import phase_of
from tranche_testcluster import Cluster, ClusterError

ENDED = ("Succeeded", "Failed")
API = "/apis/tranche.dev/v1alpha1"
BUSY_LINK = re.compile(r'^tranche_link_busy_seconds{source="([^"]*)",target="([^"]*)"} (\S+)$', re.M)
METRICS_SECONDS = 2.0
"""Timeout of a metrics request, in seconds."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Remaining copies on a link, in seconds."""

    source: str
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All jobs and sites at one time."""

    jobs: tuple[TrainingJob, ...]
    sites: tuple[SiteObject, ...]
    copies: tuple["Copy", ...] = ()
    """Copies in progress between sites."""

    @property
    def phases(self) -> Counter[str]:
        """Number of jobs by phase."""
        return Counter(phase_of(job) for job in self.jobs)

    @property
    def preemptions(self) -> int:
        """Number of preempted workers so far."""
        return sum(job.status.progress.preemptions for job in self.jobs if job.status.progress)

    @property
    def finished(self) -> bool:
        """Whether every job has ended."""
        return all(job.status.phase in ENDED for job in self.jobs)

    def next_completions(self, count: int) -> list[TrainingJob]:
        """Return the unfinished jobs with the earliest planned completion."""
        planned = [
            (plan.estimated_completion, job)
            for job in self.jobs
            if (plan := job.status.plan) and plan.estimated_completion and job.status.phase not in ENDED
        ]
        return [job for _, job in sorted(planned, key=lambda pair: pair[0])[:count]]


def observe(cluster: Cluster, namespace: str) -> Snapshot:
    """Read all jobs of the namespace and all sites; a request without a response is retried once.

    Raises:
        ClusterError: the API server rejects the request.
        OSError: it does not respond twice.
    """
    items = []
    for path in (f"{API}/namespaces/{namespace}/trainingjobs", f"{API}/sites"):
        try:
            status, answer = cluster.request("GET", path)
        except OSError:  # the machine was asleep for a while
            status, answer = cluster.request("GET", path)
        if status != 200:
            raise ClusterError(f"GET {path}: {status} {answer}")
        items.append(answer["items"])
    jobs = tuple(TrainingJob.model_validate(item) for item in items[0])
    return Snapshot(jobs, tuple(SiteObject.model_validate(item) for item in items[1]))


def observe_copies(planner_url: str) -> tuple[Copy, ...]:
    """Return the links that are busy with chunk data, from the planner's metrics; empty without a response."""
    try:
        with urllib.request.urlopen(f"{planner_url}/metrics", timeout=METRICS_SECONDS) as reply:  # noqa: S310
            return read_copies(reply.read().decode())
    except OSError:
        return ()


def read_copies(metrics: str) -> tuple[Copy, ...]:
    """Parse the busy links from metrics in text format, by target and source."""
    copies = (Copy(source, target, float(seconds)) for source, target, seconds in BUSY_LINK.findall(metrics))
    return tuple(sorted((copy for copy in copies if copy.seconds > 0), key=lambda copy: (copy.target, copy.source)))


def observe_nodes(cluster: Cluster, sites: dict[str, SiteObject]) -> Iterator[Node]:
    """Yield the nodes as planner nodes."""
    _, answer = cluster.request("GET", "/api/v1/nodes")
    usage = ForeignNodeUsage(GPU_RESOURCES, lambda pod: False)
    for item in answer["items"]:
        node = usage.node(msgspec.convert(item, NodeObject), sites)
        if node is not None:
            yield node


def age(at: datetime | None) -> float:
    """Return the seconds from now until `at`; negative if it is in the past."""
    return (at - datetime.now(UTC)).total_seconds() if at else 0.0
