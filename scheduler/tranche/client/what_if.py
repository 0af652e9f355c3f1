"""Compute the plan that a job would get if it were submitted now, with the production planner in this process.

Such a computation is a what-if. The planner is restored from the API server alone, as after a restart; then the job is
submitted to it and a forecast runs. Nothing is created, and the running scheduler receives no request, so it is not
slowed down. A what-if requires permission to create TrainingJobs in the namespace (for a dry-run request) and to list
jobs, sites, pods, nodes and quotas of the whole cluster.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from tranche.client.api_session import Session, refusals
from tranche.client.errors import ClusterError, ManifestError
from tranche.client.scheduler_lease import read_lease
from tranche.kube.api.resources import TrainingJob
from tranche.kube.api.timestamp import whole_second
from tranche.kube.client.leader_election import LEASE
from tranche.live.cluster_translator import restore_planner
from tranche.live.informers import ClusterObjects, Informers
from tranche.live.job_events import submission
from tranche.live.lease_annotations import read_config, read_learned_state
from tranche.live.planner_config import PlannerConfig
from tranche.model.explanation_text import as_what_if
from tranche.planner import Planner
from tranche.planner.learned_state import LearnedState
from tranche.web.job_views import TimeInterval, time_interval

SYSTEM_NAMESPACE = "tranche-system"


class WhatIf(msgspec.Struct, frozen=True, rename="camel"):
    """Result of a what-if."""

    namespace: str
    name: str
    planned_start: datetime | None
    planned_completion: datetime | None
    """Planned completion; None if the job would never run (`explanation` has the reason)."""
    explanation: str
    """Explanation that the job status would have, in the conditional."""
    workers: int
    """Number of workers that would start immediately."""
    policy: str
    note: str = ""
    """Assumptions for what could not be read; empty if none."""
    start_interval: TimeInterval | None = None
    completion_interval: TimeInterval | None = None


@dataclass(frozen=True, slots=True)
class PlanningInputs:
    """Input to restore a planner that writes nothing."""

    objects: ClusterObjects
    config: PlannerConfig
    learned: LearnedState = field(default_factory=LearnedState)
    """Learned state of the scheduler's planner."""
    note: str = ""
    """Assumptions for what could not be read; empty if none."""


async def what_if(session: Session, namespace: str, manifest: dict[str, Any], system_namespace: str) -> WhatIf:
    """Read the cluster and plan a job without creating it.

    Args:
        session: Session with the cluster.
        namespace: Namespace of the job.
        manifest: A TrainingJob.
        system_namespace: Namespace of the scheduler's Lease.

    Raises:
        ManifestError: the API server rejects the job, or the planner cannot read it.
        ClusterError: a permission is missing, or the API server cannot be reached.
    """
    job = await session.create(namespace, manifest, dry_run=True)
    inputs = await read_cluster(session, system_namespace, "a what-if")
    return answer(job, inputs, session.now().timestamp())


async def read_cluster(session: Session, system_namespace: str, purpose: str) -> PlanningInputs:
    """Read the whole cluster, the scheduler's planner configuration and what the scheduler has learned.

    Args:
        session: Session with the cluster.
        system_namespace: Namespace of the scheduler's Lease.
        purpose: What the inputs are for, for the error message if a permission is missing.

    Raises:
        ClusterError: a permission is missing, or the API server cannot be reached.
    """
    config, learned, note = await _read_scheduler(session, system_namespace)
    watches = Informers(session.api)
    with refusals(f"read the whole cluster, which {purpose} requires"):
        results = await asyncio.gather(*(reflector.read() for _, reflector in watches), return_exceptions=True)
        for failure in filter(None, results):  # all requests have ended, so that none is left when the loop closes
            raise failure
    return PlanningInputs(watches.objects, config, learned, note)


def answer(job: TrainingJob, inputs: PlanningInputs, now: float) -> WhatIf:
    """Restore a planner from the inputs, submit the job to it, and return the job's plan.

    Args:
        job: The job as the API server would store it.
        inputs: The cluster without the job.
        now: Seconds since the epoch.

    Raises:
        ManifestError: the planner cannot read the job.
        ClusterError: the scheduler's policy is not known in this version.
    """
    planner = restored_planner(inputs, now)
    try:
        planner.handle(submission(job, inputs.config.gpu_resources), now)
    except ValueError as error:
        raise ManifestError(f"{job.metadata.name}: {' '.join(str(error).split())}") from None
    planner.forecast(now)
    plan = planner.plan_of(job.key, now)
    return WhatIf(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        planned_start=whole_second(plan.estimated_start),
        planned_completion=whole_second(plan.estimated_completion),
        explanation=as_what_if(plan.explanation, len(plan.windows)),
        workers=len(plan.windows),
        policy=inputs.config.policy,
        note=inputs.note,
        start_interval=time_interval(plan.start_interval),
        completion_interval=time_interval(plan.completion_interval),
    )


def restored_planner(inputs: PlanningInputs, now: float) -> Planner:
    """Create a planner with the state that a restarted scheduler would restore.

    Raises:
        ClusterError: the scheduler's policy is not known in this version.
    """
    config = inputs.config
    try:
        planner = config.planner()
    except ValueError as error:
        raise ClusterError(f"the scheduler's policy {config.policy} is not known to this version: {error}") from None
    restore_planner(planner, inputs.objects, config.gpu_resources, now, inputs.learned)
    return planner


async def _read_scheduler(session: Session, system_namespace: str) -> tuple[PlannerConfig, LearnedState, str]:
    """Return the scheduler's planner configuration, what it has learned, and a note if defaults are assumed."""
    lease = await read_lease(session, system_namespace)
    learned = read_learned_state(lease.get("metadata", {}).get("annotations") or {})
    published = read_config(lease)
    if published is not None:
        return published, learned, ""
    assumed = PlannerConfig()
    return assumed, learned, f"assuming policy {assumed.policy}: the Lease {system_namespace}/{LEASE} cannot be read"
