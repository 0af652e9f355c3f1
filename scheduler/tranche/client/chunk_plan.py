"""Node and time window of each chunk of a job, from a planner in this process.

The job status has no room for them. Therefore this process restores a planner from the whole cluster, as a what-if
does (`tranche.client.what_if`), without a request to the running scheduler. It requires permission to get the job and
to list jobs, sites, pods, nodes and quotas of the whole cluster.
"""

import msgspec

from tranche.client.api_session import Session
from tranche.client.what_if import PlanningInputs, read_cluster, restored_planner
from tranche.planner.forecast.chunk_windows import chunk_windows
from tranche.web.chunk_plan import Chunk, to_chunk

RECOMPUTED = (
    "the status contains the sites of waiting chunks but not their slots: slots, Q and the times at dispatch are "
    "recomputed here; the page of the job shows those of the scheduler"
)


class ChunkPlan(msgspec.Struct, frozen=True, rename="camel"):
    """Plan of the chunks of a job."""

    namespace: str
    name: str
    policy: str
    chunks: list[Chunk]
    """One entry per chunk or gang member."""
    note: str = ""
    """Notes on assumed or recomputed values."""


async def chunk_plan(session: Session, namespace: str, name: str, system_namespace: str) -> ChunkPlan:
    """Read the cluster, restore a planner, and list the chunks of a job.

    Args:
        session: Session with the cluster.
        namespace: Namespace of the job.
        name: Name of the job.
        system_namespace: Namespace of the scheduler's Lease.

    Raises:
        NoSuchJob: the job does not exist.
        ClusterError: a permission is missing, or the API server cannot be reached.
    """
    await session.job(namespace, name)
    inputs = await read_cluster(session, system_namespace, "a plan of chunks")
    return listed(inputs, f"{namespace}/{name}", session.now().timestamp())


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
    chunks = [to_chunk(window) for window in chunk_windows(planner, key, now)]
    notes = [inputs.note] if inputs.note else []
    notes += [RECOMPUTED] if planner.queue is None else []
    namespace, _, name = key.partition("/")
    return ChunkPlan(namespace, name, inputs.config.policy, chunks, "; ".join(notes))
