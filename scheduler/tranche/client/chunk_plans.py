"""The place and the time window of each chunk of a job, planned on paper.

They are too many for the job's status, so the planner of this process takes the cluster over on paper, as a what-if
does (`tranche.client.whatifs`), and lists them. The running scheduler is not asked. This takes the right to get the
job, and to list jobs, sites, pods, nodes and quotas of the whole cluster.
"""

import time

import msgspec

from tranche.client.sessions import Session
from tranche.client.whatifs import PlanningInputs, read_cluster, restored_planner
from tranche.planner.chunk_windows import chunk_windows
from tranche.web.chunks import Chunk, told

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
    inputs = await read_cluster(session, system_namespace, "a plan of chunks")
    return listed(inputs, f"{namespace}/{name}", time.time())


def listed(inputs: PlanningInputs, key: str, now: float) -> ChunkPlan:
    """Restore a planner from the inputs, forecast, and list the job's chunks.

    Args:
        inputs: The cluster with the job.
        key: ``namespace/name`` of the job.
        now: Seconds since the epoch.

    Raises:
        ClusterError: the scheduler's policy is not known in this version.
    """
    planner = restored_planner(inputs, now)
    planner.forecast(now)
    chunks = [told(one) for one in chunk_windows(planner, key, now)]
    notes = [inputs.note] if inputs.note else []
    notes += [ANEW] if planner.queue is None else []
    namespace, _, name = key.partition("/")
    return ChunkPlan(namespace, name, inputs.choice.policy, chunks, "; ".join(notes))
