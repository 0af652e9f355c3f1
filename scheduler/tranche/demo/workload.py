"""The demo's jobs and cluster: what is real, and what had to be drawn.

Real: arrival, GPU count and duration of each job of the stretch. Drawn from a seed, since no real log has them: whether
a job of several GPUs is a gang (every second one) or trains in chunks with a parameter server, the number of chunks
(GPUs × 1, 2 or 3, uniformly), and the edge site that holds the data. Set: a chunk is 32 MiB, so that it takes half a
second from edge to edge and three to the cloud, behind the other copies on the link; gradients count as nothing. The
simulated nodes have no network: nothing is really sent, and the planner believes its own transfer times, as it does
for every job without ``data.staging``. The work of a job, GPUs × duration, is kept; all times are divided, and long
jobs and wide gangs are cut, as `Compression` says. The edges hold 12 GPUs, less than the stretch asks for. The rest
bursts into the cloud, which has no node until a pod waits for one. What other stretches would show, better and worse,
benchmarks/demo_stretches.py prints.
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
"""Between two edge sites, and between one of them and the cloud."""
CHUNK_SIZE = "32Mi"
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
    """At the start; an unlimited site makes its own."""
    gpus: int
    """Of each node."""
    unlimited: bool = False

    def link_to(self, other: "DemoSite") -> str:
        """Bandwidth of the path to another site."""
        return CLOUD_LINK if "Cloud" in (self.tier, other.tier) else EDGE_LINK


SITES = (
    DemoSite("edge-a", "Edge", 2, 2),
    DemoSite("edge-b", "Edge", 2, 2),
    DemoSite("edge-c", "Edge", 2, 2),
    DemoSite("cloud", "Cloud", 0, 4, unlimited=True),
)
NODE_SECONDS, IDLE_SECONDS, MOST_NODES = 8.0, 3.0, 32
"""The autoscaler of the cloud: until a node comes for a pod that waits, and until one without pods goes."""
NODE_STARTUP = "9s"
"""What the Site says of it: the pod has to be seen before, and bound afterwards."""


@dataclass(frozen=True, slots=True)
class Compression:
    """How real times become demo times."""

    divisor: float = 857.6
    longest_seconds: float = 25.0
    """Above it durations are cut, after division; see `shorten`."""
    shortest_chunk_seconds: float = 1.875
    most_gpus: int = 8
    """A job's GPU count is cut here: the demo's edges have 12."""
    most_members: int = 4
    """The same for a gang, whose members need GPUs at one time."""

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
    """Members of a gang."""
    chunk_seconds: float
    site: str
    """Of the data; a gang has none."""
    gang: bool = False

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The TrainingJob that a user would apply; annotations tell the simulated kubelet how long a batch takes."""
        return self._body(namespace, self._gang_spec() if self.gang else self._chunk_spec())

    def _body(self, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {**spec, "runPolicy": {"cleanPodPolicy": "All"}},
        }

    def _gang_spec(self) -> dict[str, Any]:
        """Members that train one batch together; a checkpoint holds thousandths of it."""
        annotations = {
            "kwok.tranche.dev/batch-seconds": f"{self.chunk_seconds:.6f}",
            "kwok.tranche.dev/checkpoint-batches": "0.001",
            "kwok.tranche.dev/checkpoint-seconds": f"{CHECKPOINT_SECONDS:g}",
        }
        return {
            "workers": {"maxReplicas": self.chunks, "template": _template(annotations, "1", "2Gi", gpus=1)},
            "model": {"stepTime": f"{1000 * self.chunk_seconds:.3f}ms"},
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
    """The jobs of the shipped stretch in order of arrival; the same seed draws the same jobs.

    Args:
        seed: Of what the log does not say.
        compression: Of its times.
        gangs: Whether there are any: not all policies plan them.
    """
    text = files("tranche.demo").joinpath("data", STRETCH).read_text()
    return [draw(row, seed, compression, gangs=gangs) for row in read_rows(text.splitlines(), STRETCH).rows]


def draw(row: TraceRow, seed: int, compression: Compression, *, gangs: bool) -> DemoJob:
    """One job of the demo from one row of a log."""
    if gangs and row.gpus > 1 and choose((True, False), seed, row.job_id, "gang"):
        return DemoJob(
            name=f"job-{row.job_id}",
            arrival_seconds=row.submit_seconds / compression.divisor,
            chunks=min(row.gpus, compression.most_members),
            chunk_seconds=max(compression.shorten(row.duration_seconds), compression.shortest_chunk_seconds),
            site="",
            gang=True,
        )
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
