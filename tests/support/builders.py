"""Small clusters and jobs for tests."""

from random import Random
from typing import Any, TypeVar

from tranche.model import Job, Node, PodShape, Resources, Site
from tranche.planner import Instruction, NodeChanged, Planner, PlannerSettings, SiteChanged
from tranche.policies import get_policy

T = TypeVar("T")
LARGE = Resources(cpu=64_000, memory=256 * 2**30, gpus=0, pods=110)


def node(name: str, site: str = "edge-a", gpus: int = 1, **changes: Any) -> Node:
    return Node(name, site, Resources(LARGE.cpu, LARGE.memory, gpus, LARGE.pods), **changes)


def worker(gpus: int = 1, cpu: int = 1000, **changes: Any) -> PodShape:
    return PodShape(Resources(cpu=cpu, memory=2**30, gpus=gpus, pods=1), **changes)


def job(name: str, submitted: float = 0.0, *, chunks: int = 1, seconds: float = 100.0, **changes: Any) -> Job:
    """Return a chunked job whose chunks take `seconds` each, in 100 mini-batches."""
    fields: dict[str, Any] = {
        "key": f"default/{name}",
        "uid": f"uid-{name}",
        "submitted": submitted,
        "worker": worker(),
        "chunks": chunks,
        "batches_per_chunk": 100,
        "step_seconds": seconds / 100,
        "max_workers": chunks,
    }
    return Job(**{**fields, **changes})


def gang(name: str, submitted: float = 0.0, members: int = 2, **changes: Any) -> Job:
    """Return a job whose members, of one GPU each, train together."""
    return job(name, submitted, **{"chunks": members, "is_gang": True, **changes})


def drawn_jobs(seed: int) -> list[Job]:
    """Return 25 chunked jobs of up to 6 workers, one every 30 s on average."""
    draw, jobs, at = Random(seed), [], 0.0
    for number in range(25):
        at += draw.expovariate(1 / 30)
        chunks, seconds = draw.randint(1, 6), draw.uniform(20, 400)
        jobs.append(job(f"j{number}", at, chunks=chunks, seconds=seconds, max_workers=draw.randint(1, 6)))
    return jobs


def planner(policy: str, nodes: list[Node], sites: list[Site] | None = None, **settings: Any) -> Planner:
    """Return a planner that knows the cluster and checks its invariants."""
    made = Planner(get_policy(policy), PlannerSettings(**{"validate": True, **settings}))
    for site in sites or [Site(name) for name in sorted({n.site for n in nodes})]:
        made.handle(SiteChanged(site), 0.0)
    for one in nodes:
        made.handle(NodeChanged(one), 0.0)
    return made


def of_type(kind: type[T], instructions: list[Instruction]) -> list[T]:
    return [i for i in instructions if isinstance(i, kind)]
