"""The place and the time window of each chunk of a job, planned on paper.

They are too many for the job's status, so the planner of this process takes the cluster over on paper, as a what-if
does (`tranche.client.what_if`), and lists them. The running scheduler is not asked. This takes the right to get the
job, and to list jobs, sites, pods, nodes and quotas of the whole cluster.
"""

import time

import msgspec

from tranche.client.api_session import Session
from tranche.client.what_if import paper_planner, read_cluster
from tranche.live.informers import Watches
from tranche.live.lease_annotations import PlannerChoice
from tranche.planner.forecast.chunk_windows import chunk_windows
from tranche.planner.learned_state import Memory
from tranche.web.chunk_plan import Chunk, told

ANEW = (
    "the status holds the sites of waiting chunks, not their slots: slots, Q and the times at dispatch are worked out "
    "anew here; the scheduler's own are on the job's page"
)


class ChunkPlan(msgspec.Struct, frozen=True, rename="camel"):
    """Where and when the chunks of a job train."""

    namespace: str
    name: str
    policy: str
    chunks: list[Chunk]
    """One a chunk, or a member of a gang."""
    note: str = ""
    """What was assumed, or worked out anew."""


async def chunk_plan(session: Session, namespace: str, name: str, system_namespace: str) -> ChunkPlan:
    """Plan the cluster on paper and list the chunks of a job.

    Args:
        session: Of the cluster.
        namespace: Of the job.
        name: Of the job.
        system_namespace: Where the scheduler's Lease is.

    Raises:
        NoSuchJob: there is none.
        ClusterError: a right is missing, or the API server cannot be reached.
    """
    await session.job(namespace, name)
    watches, choice, memory, note = await read_cluster(session, system_namespace, "a plan of chunks")
    return listed(watches, choice, f"{namespace}/{name}", note, time.time(), memory)


def listed(
    watches: Watches, choice: PlannerChoice, key: str, note: str, now: float, memory: Memory | None = None
) -> ChunkPlan:
    """Take over what the stores of the watches hold, play the plan forward, and list the job's chunks.

    Raises:
        ClusterError: there is no such policy here.
    """
    planner = paper_planner(watches, choice, now, memory)
    planner.forecast(now)
    chunks = [told(one) for one in chunk_windows(planner, key, now)]
    notes = [note] if note else []
    notes += [ANEW] if planner.queue is None else []
    namespace, _, name = key.partition("/")
    return ChunkPlan(namespace, name, choice.policy, chunks, "; ".join(notes))
