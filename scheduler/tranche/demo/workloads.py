"""The demo's jobs and cluster: what is real, and what had to be drawn.

Real: arrival, GPU count and duration of each job of the stretch. Drawn from a seed, since no real log has them: the
number of chunks (GPUs × 1, 2 or 3, uniformly) and the edge site that holds the data. Set: a chunk is 1 MiB, gradients
count as nothing (the simulated nodes have no network). The work of a job, GPUs × duration, is kept; all times are
divided, and long jobs are cut, as `Compression` says. The stretch was chosen for its mix of sizes and a load near the
capacity of the demo's cluster; what others would show, better and worse, benchmarks/demo_stretches.py prints.
"""

from dataclasses import dataclass, replace
from importlib.resources import files
from math import log2
from typing import Any

from tranche.policies.choices import choose
from tranche.simulation import TraceRow, read_rows

STRETCH = "elasticflow_cluster06_rows_1650_1689.csv"
EDGE_SITES = ("edge-a", "edge-b", "edge-c")
LINK_BANDWIDTH, LINK_LATENCY = "500M", "20ms"
"""Between any two sites."""
BATCHES = 50
"""Mini-batches of a chunk."""
CHECKPOINT_SECONDS = 0.2
"""What a worker takes to save when it is stopped."""


@dataclass(frozen=True, slots=True)
class DemoSite:
    """One site of the demo's cluster."""

    name: str
    tier: str
    nodes: int
    gpus: int
    """Of each node."""


SITES = (
    DemoSite("edge-a", "Edge", 2, 2),
    DemoSite("edge-b", "Edge", 2, 2),
    DemoSite("edge-c", "Edge", 2, 2),
    DemoSite("cloud", "Cloud", 2, 4),
)


@dataclass(frozen=True, slots=True)
class Compression:
    """How real times become demo times."""

    divisor: float = 857.6
    longest_seconds: float = 25.0
    """Above it durations are cut, after division; see `shorten`."""
    shortest_chunk_seconds: float = 1.875
    most_gpus: int = 8
    """A job's GPU count is cut here: the demo's cluster has 20."""

    def shorten(self, seconds: float) -> float:
        """A real duration as one of the demo.

        Above the longest, a doubling adds a twentieth of it: jobs that are cut to one length would tie in every order
        by work, and who of them goes first would hang on the last digit.
        """
        divided, longest = seconds / self.divisor, self.longest_seconds
        return divided if divided <= longest else longest * (1 + log2(divided / longest) / 20)

    def slowed(self, factor: float) -> "Compression":
        """The same jobs with all times, of arrivals and of work, longer by this factor."""
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
    chunk_seconds: float
    site: str

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The TrainingJob that a user would apply; annotations tell the simulated kubelet how long a batch takes."""
        step = self.chunk_seconds / BATCHES
        annotations = {
            "kwok.tranche.dev/batch-seconds": f"{step:.6f}",
            "kwok.tranche.dev/checkpoint-seconds": f"{CHECKPOINT_SECONDS:g}",
        }
        return {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "data": {
                    "chunks": self.chunks,
                    "epochs": 1,
                    "batchesPerChunk": BATCHES,
                    "chunkSize": "1Mi",
                    "site": self.site,
                },
                "workers": {"maxReplicas": self.chunks, "template": _template(annotations, "1", "2Gi", gpus=1)},
                "parameterServers": {"replicas": 1, "template": _template({}, "500m", "1Gi", gpus=0)},
                "model": {"gradientSize": "0", "stepTime": f"{1000 * step:.3f}ms"},
                "runPolicy": {"cleanPodPolicy": "All"},
            },
        }


def load(seed: int, compression: Compression = Compression()) -> list[DemoJob]:
    """The jobs of the shipped stretch in order of arrival; the same seed draws the same jobs."""
    text = files("tranche.demo").joinpath("data", STRETCH).read_text()
    return [draw(row, seed, compression) for row in read_rows(text.splitlines(), STRETCH).rows]


def draw(row: TraceRow, seed: int, compression: Compression) -> DemoJob:
    """One job of the demo from one row of a log."""
    gpus = min(row.gpus, compression.most_gpus)
    work = gpus * compression.shorten(row.duration_seconds)
    wanted = gpus * choose((1, 2, 3), seed, row.job_id, "chunks")
    chunks = max(1, min(wanted, int(work / compression.shortest_chunk_seconds)))
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
