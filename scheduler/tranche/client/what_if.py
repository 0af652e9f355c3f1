"""What would become of a job that was submitted now, as the production planner sees it, on paper.

The planner of this process takes over the cluster as one that is started after a crash does, from the API server alone;
hears of the job; and plays its plan forward. Nothing is created and the running scheduler is not asked, so its loop
loses no time. It takes the right to create TrainingJobs in the namespace (the API server is asked, dry-run), and to
list jobs, sites, pods, nodes and quotas of the whole cluster.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.client.api_session import Session, refusals
from tranche.client.errors import ClusterError, ManifestError
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.errors import ApiError
from tranche.kube.client.leader_election import LEASE
from tranche.kube.convert.trainingjob import LATEST
from tranche.live import Controller, ControllerSettings
from tranche.live.informers import Watches
from tranche.live.job_events import submission
from tranche.live.lease_annotations import PlannerChoice, read_choice, read_memory
from tranche.metrics.scheduler import Metrics
from tranche.planner import Planner
from tranche.planner.learned_state import Memory

SYSTEM_NAMESPACE = "tranche-system"


class WhatIf(msgspec.Struct, frozen=True, rename="camel"):
    """What would be planned."""

    namespace: str
    name: str
    planned_start: datetime | None
    planned_completion: datetime | None
    """None: it would never run; `explanation` says why."""
    explanation: str
    """The sentence that its status would have."""
    workers: int
    """That would start at once."""
    policy: str
    note: str = ""
    """What was assumed."""


async def what_if(session: Session, namespace: str, manifest: dict[str, Any], system_namespace: str) -> WhatIf:
    """Plan a job on paper.

    Args:
        session: Of the cluster.
        namespace: Of the job.
        manifest: A TrainingJob.
        system_namespace: Where the scheduler's Lease is.

    Raises:
        ManifestError: the API server does not take the job, or the planner cannot read it.
        ClusterError: a right is missing, or the API server cannot be reached.
    """
    asked = await session.create(namespace, manifest, dry_run=True)
    watches, choice, memory, note = await read_cluster(session, system_namespace, "a what-if")
    return answer(asked, watches, choice, note, time.time(), memory)


async def read_cluster(
    session: Session, system_namespace: str, what: str
) -> tuple[Watches, PlannerChoice, Memory, str]:
    """All that a planner on paper needs: the cluster's objects, which planner to make, what it has learnt, and a note.

    Args:
        session: Of the cluster.
        system_namespace: Where the scheduler's Lease is.
        what: Plans with it, for the message if a right is missing.

    Raises:
        ClusterError: a right is missing, or the API server cannot be reached.
    """
    choice, memory, note = await _told(session, system_namespace)
    watches = Watches(session.api)
    with refusals(f"see the whole cluster, which {what} plans with"):
        await asyncio.gather(*(reflector.read() for _, reflector in watches))
    return watches, choice, memory, note


def answer(
    asked: TrainingJob, watches: Watches, choice: PlannerChoice, note: str, now: float, memory: Memory | None = None
) -> WhatIf:
    """Take over what the stores of the watches hold, and plan the job too.

    Raises:
        ManifestError: the planner cannot read the job.
        ClusterError: there is no such policy here.
    """
    planner = paper_planner(watches, choice, now, memory)
    try:
        planner.handle(submission(asked, choice.gpu_resource), now)
    except ValueError as error:
        raise ManifestError(f"{asked.metadata.name}: {' '.join(str(error).split())}") from None
    planner.forecast(now)
    plan = planner.plan_of(asked.key, now)
    return WhatIf(
        namespace=asked.metadata.namespace,
        name=asked.metadata.name,
        planned_start=_moment(plan.estimated_start),
        planned_completion=_moment(plan.estimated_completion),
        explanation=plan.explanation,
        workers=len(plan.windows),
        policy=choice.policy,
        note=note,
    )


def paper_planner(watches: Watches, choice: PlannerChoice, now: float, memory: Memory | None = None) -> Planner:
    """A planner that has taken over what the stores of the watches hold, as a restarted scheduler does.

    Raises:
        ClusterError: there is no such policy here.
    """
    planner = _planner(choice)
    settings = ControllerSettings(choice.gpu_resource)
    nobody: Any = None  # nothing is sent
    Controller(nobody, watches, planner, Metrics(), settings, clock=lambda: now).restore(memory)
    return planner


def _planner(choice: PlannerChoice) -> Planner:
    try:
        return choice.planner()
    except ValueError as error:
        raise ClusterError(f"the scheduler's policy {choice.policy} is not known here: {error}") from None


async def _told(session: Session, system_namespace: str) -> tuple[PlannerChoice, Memory, str]:
    """Which planner the scheduler runs and what that has learnt, by its Lease, and what is to be said of it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{system_namespace}/leases/{LEASE}"
    try:
        lease = await session.api.request("GET", path)
    except ApiError as error:
        if error.status not in (403, 404):
            with refusals("read the scheduler's Lease"):
                raise
        lease = {}
    memory = read_memory(lease.get("metadata", {}).get("annotations") or {})
    told = read_choice(lease)
    if told is not None:
        return told, memory, ""
    assumed = PlannerChoice()
    return assumed, memory, f"policy {assumed.policy} is assumed: the Lease {system_namespace}/{LEASE} cannot be read"


def _moment(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(min(at, LATEST), UTC).replace(microsecond=0) if at else None
