"""Jobs and cluster of the demo.

Real: arrival, GPU count and duration of each job of the stretch. Drawn from a seed, since no real log has them: whether
a job of several GPUs is a gang (every second one) or trains in chunks with a parameter server, the number of chunks
(GPUs × 1, 2 or 3, uniformly), and the edge site that holds the data. Set: a chunk is 32 MiB, so that it takes half a
second from edge to edge and three to the cloud, behind the other copies on the link; gradients count as nothing. The
simulated nodes have no network: nothing is sent, and the planner uses its estimated transfer times, as for every job
without ``data.staging``. The work of a job, GPUs × duration, is kept; all times are divided, and long jobs and wide
gangs are cut, as `Compression` says. The edge sites have 12 GPUs, fewer than the stretch requests. The rest runs in the
cloud, which has no node until a pod waits for one. benchmarks/demo_stretches.py prints the results of other stretches.
"""

from dataclasses import dataclass, replace
from importlib.resources import files
from math import log2
from typing import Any

from tranche.policies.seeded_choice import choose
from tranche.simulation import TraceRow, read_rows

STRETCH = "elasticflow_cluster06_rows_1650_1689.csv"
EDGE_SITES = ("edge-a", "edge-b", "edge-c")
EDGE_LINK, CLOUD_LINK, LINK_LATENCY = "500M", "100M", "20ms"
"""Links between two edge sites, and between an edge site and the cloud."""
CHUNK_SIZE = "32Mi"
BATCHES = 50
"""Mini-batches per chunk."""
CHECKPOINT_SECONDS = 0.2
"""Checkpoint time of a stopped worker, in seconds."""


@dataclass(frozen=True, slots=True)
class DemoSite:
    """One site of the demo cluster."""

    name: str
    tier: str
    nodes: int
    """Nodes at the start; an unlimited site creates nodes on demand."""
    gpus: int
    """GPUs per node."""
    unlimited: bool = False

    def link_to(self, other: "DemoSite") -> str:
        """Return the bandwidth of the link to another site."""
        return CLOUD_LINK if "Cloud" in (self.tier, other.tier) else EDGE_LINK


SITES = (
    DemoSite("edge-a", "Edge", 2, 2),
    DemoSite("edge-b", "Edge", 2, 2),
    DemoSite("edge-c", "Edge", 2, 2),
    DemoSite("cloud", "Cloud", 0, 4, unlimited=True),
)
NODE_SECONDS, IDLE_SECONDS, MAX_NODES = 8.0, 3.0, 32
"""Autoscaler of the cloud: node start time, idle time before removal (seconds), and maximum number of nodes."""
NODE_STARTUP = "9s"
"""Declared node start time, including detection of the pod before and binding after it."""


@dataclass(frozen=True, slots=True)
class Compression:
    """Conversion of real times to demo times."""

    divisor: float = 857.6
    longest_seconds: float = 25.0
    """Limit after division, above which durations are shortened; see `shorten`."""
    shortest_chunk_seconds: float = 1.875
    max_gpus: int = 8
    """Maximum GPU count of a job; the edge sites have 12."""
    max_members: int = 4
    """Maximum members of a gang, which need GPUs at the same time."""

    def shorten(self, seconds: float) -> float:
        """Convert a real duration to a demo duration.

        Above the limit, a doubling adds a twentieth of the limit. If all were cut to the same length, jobs would tie in
        every order by work, and their order would depend on rounding.
        """
        divided, longest = seconds / self.divisor, self.longest_seconds
        return divided if divided <= longest else longest * (1 + log2(divided / longest) / 20)

    def slowed(self, factor: float) -> "Compression":
        """Return the compression with all times, arrivals and work, multiplied by a factor."""
        return replace(
            self,
            divisor=self.divisor / factor,
            longest_seconds=self.longest_seconds * factor,
            shortest_chunk_seconds=self.shortest_chunk_seconds * factor,
        )


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job of the demo."""

    name: str
    arrival_seconds: float
    chunks: int
    """Number of chunks, or of members of a gang."""
    chunk_seconds: float
    site: str
    """Site of the data; empty for a gang."""
    gang: bool = False

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Return the TrainingJob; annotations set the batch time for the simulated kubelet."""
        return self._body(namespace, self._gang_spec() if self.gang else self._chunk_spec())

    def _body(self, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {**spec, "runPolicy": {"cleanPodPolicy": "All"}},
        }

    def _gang_spec(self) -> dict[str, Any]:
        """Return the spec of a gang that trains one batch together; checkpoints store thousandths of it."""
        annotations = {
            "kwok.tranche.dev/batch-seconds": f"{self.chunk_seconds:.6f}",
            "kwok.tranche.dev/checkpoint-batches": "0.001",
            "kwok.tranche.dev/checkpoint-seconds": f"{CHECKPOINT_SECONDS:g}",
        }
        return {
            "workers": {"maxReplicas": self.chunks, "template": _template(annotations, "1", "2Gi", gpus=1)},
            "estimatedDuration": f"{1000 * self.chunk_seconds:.3f}ms",
        }

    def _chunk_spec(self) -> dict[str, Any]:
        step = self.chunk_seconds / BATCHES
        annotations = {
            "kwok.tranche.dev/batch-seconds": f"{step:.6f}",
            "kwok.tranche.dev/checkpoint-seconds": f"{CHECKPOINT_SECONDS:g}",
        }
        return {
            "data": {
                "chunks": self.chunks,
                "epochs": 1,
                "batchesPerChunk": BATCHES,
                "chunkSize": CHUNK_SIZE,
                "site": self.site,
            },
            "workers": {"maxReplicas": self.chunks, "template": _template(annotations, "1", "2Gi", gpus=1)},
            "parameterServers": {"replicas": 1, "template": _template({}, "500m", "1Gi", gpus=0)},
            "model": {"gradientSize": "0", "stepTime": f"{1000 * step:.3f}ms"},
        }


def load(seed: int, compression: Compression = Compression(), *, gangs: bool = True) -> list[DemoJob]:
    """Load the jobs of the included stretch in order of arrival; the same seed gives the same jobs.

    Args:
        seed: Seed for what the log does not contain.
        compression: Compression of times.
        gangs: Whether to create gangs; not all policies plan them.
    """
    text = files("tranche.demo").joinpath("data", STRETCH).read_text()
    return [draw(row, seed, compression, gangs=gangs) for row in read_rows(text.splitlines(), STRETCH).rows]


def draw(row: TraceRow, seed: int, compression: Compression, *, gangs: bool) -> DemoJob:
    """Create a demo job from a row of a log."""
    if gangs and row.gpus > 1 and choose((True, False), seed, row.job_id, "gang"):
        return DemoJob(
            name=f"job-{row.job_id}",
            arrival_seconds=row.submit_seconds / compression.divisor,
            chunks=min(row.gpus, compression.max_members),
            chunk_seconds=max(compression.shorten(row.duration_seconds), compression.shortest_chunk_seconds),
            site="",
            gang=True,
        )
    gpus = min(row.gpus, compression.max_gpus)
    work = gpus * compression.shorten(row.duration_seconds)
    drawn = gpus * choose((1, 2, 3), seed, row.job_id, "chunks")
    chunks = max(1, min(drawn, int(work / compression.shortest_chunk_seconds)))
    return DemoJob(
        name=f"job-{row.job_id}",
        arrival_seconds=row.submit_seconds / compression.divisor,
        chunks=chunks,
        chunk_seconds=max(work / chunks, compression.shortest_chunk_seconds),
        site=choose(EDGE_SITES, seed, row.job_id, "site"),
    )


def _template(annotations: dict[str, str], cpu: str, memory: str, *, gpus: int) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "train", "image": "registry.example/train:1", "resources": {"requests": requests, **limits}}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
