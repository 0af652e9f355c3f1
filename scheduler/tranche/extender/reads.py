"""What the read-only API tells of jobs and sites."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from tranche.extender.views import View
from tranche.kube.memberships import DEFAULT_SITE
from tranche.kube.names import CONDITION_PLANNED
from tranche.kube.resources import Resource, TrainingJob
from tranche.model import Resources

Progress = Callable[[str], Any]
"""From a job's key to how far it is, as a dataclass; None if the planner of this process does not know."""


NOT_PLANNED = "not planned yet: tranche's scheduler has not seen it, or does not run"


def not_planning(key: str) -> None:
    """No planner in this process."""


class JobSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One job in a list."""

    namespace: str
    name: str
    phase: str
    chunks: str
    """Done of all: ``12/27``."""
    done: str
    """Numbers of the chunks that are done: ``0-11``."""
    planned_start: datetime | None
    planned_completion: datetime | None
    explanation: str


class JobDetail(JobSummary, frozen=True, rename="camel"):
    """One job alone."""

    created: datetime | None
    started: datetime | None
    completed: datetime | None
    plan: str
    """Term and revision, as pods carry them: ``3.17``; empty without a plan."""
    preemptions: int
    failures: int
    trained: dict[str, Any]
    """Mini-batches by now, of how many, whether estimated from run time alone; if the job reports: when, how fast."""
    homes: dict[str, str]
    windows: list[dict[str, Any]]
    parameter_servers: list[dict[str, Any]]
    chief: dict[str, Any] | None
    """Of a gang that has one."""
    conditions: list[dict[str, Any]]


class SiteSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One site."""

    name: str
    tier: str
    unlimited: bool
    nodes: int
    ready_nodes: int
    gpus: int
    used_gpus: int
    reserved_gpus: int


def list_jobs(view: View, namespace: str = "", phase: str = "", after: str = "", limit: int = 500) -> list[JobSummary]:
    """Jobs by namespace and name, at most `limit` of them, those after the key `after`."""
    found: list[JobSummary] = []
    for key in sorted(key for key in view.jobs if key > after):
        job = view.jobs[key]
        if namespace in ("", job.metadata.namespace) and phase in ("", _phase(job)):
            found.append(summary(job))
            if len(found) == limit:
                break
    return found


def read_job(view: View, namespace: str, name: str, progress: Progress = not_planning) -> JobDetail | None:
    """One job; None if there is none. Its progress is the planner's, or else what was written last."""
    job = view.jobs.get(f"{namespace}/{name}")
    return None if job is None else detail(job, progress(job.key))


def summary(job: TrainingJob) -> JobSummary:
    """One job in a list, by what the API server has of it."""
    return JobSummary(**_summary(job))


def detail(job: TrainingJob, known: Any = None) -> JobDetail:
    """One job alone.

    Args:
        job: As the API server has it.
        known: How far it is by the planner's word; None: what was written last.
    """
    plan, ledger = job.status.plan, job.status.progress
    return JobDetail(
        **_summary(job),
        created=job.metadata.creation_timestamp,
        started=job.status.start_time,
        completed=job.status.completion_time,
        plan=f"{plan.term}.{plan.revision}" if plan else "",
        preemptions=ledger.preemptions if ledger else 0,
        failures=ledger.failures if ledger else 0,
        trained=_trained(known, job),
        homes=dict(plan.homes) if plan else {},
        windows=_dumped(plan.workers if plan else ()),
        parameter_servers=_dumped(plan.parameter_servers if plan else ()),
        chief=next(iter(_dumped([plan.chief])), None) if plan and plan.chief else None,
        conditions=_dumped(job.status.conditions),
    )


def sentence(job: TrainingJob) -> str:
    """What the job does, or what it waits for; never empty."""
    if job.status.plan is not None and job.status.plan.explanation:
        return job.status.plan.explanation
    refused = next(
        (c.message for c in job.status.conditions if c.type == CONDITION_PLANNED and c.status == "False"), ""
    )
    return refused or NOT_PLANNED


def list_sites(view: View) -> list[SiteSummary]:
    """Sites by name, with what their nodes have, use and hold for plans; nodes without a site are left out."""
    nodes: dict[str, list[str]] = {name: [] for name in view.sites or (DEFAULT_SITE,)}
    for name in view.nodes:
        site = view.site_of(name)
        if site is not None:
            nodes[site].append(name)
    return [_site(view, site, names) for site, names in sorted(nodes.items())]


def _site(view: View, name: str, nodes: list[str]) -> SiteSummary:
    declared = view.sites.get(name)
    uses = [view.reservations.node(node) for node in nodes]
    return SiteSummary(
        name=name,
        tier=declared.spec.tier if declared else "Cloud",
        unlimited=declared is not None and declared.spec.unlimited,
        nodes=len(nodes),
        ready_nodes=sum(view.nodes[node].ready for node in nodes),
        gpus=sum((use.capacity or Resources()).gpus for use in uses),
        used_gpus=sum(use.used.gpus for use in uses),
        reserved_gpus=sum(claim.requests.gpus for use in uses for claim in use.claims.values()),
    )


def _trained(known: Any, job: TrainingJob) -> dict[str, Any]:
    if known is not None:
        told: dict[str, Any] = msgspec.to_builtins(known)
        return told
    written = job.status.progress
    return {"batches": written.batches, "estimated": written.estimated} if written else {}


def _phase(job: TrainingJob) -> str:
    return job.status.phase or "Waiting"


def _summary(job: TrainingJob) -> dict[str, Any]:
    plan, progress = job.status.plan, job.status.progress
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "phase": _phase(job),
        "chunks": progress.chunks if progress else "",
        "done": progress.done if progress else "",
        "planned_start": plan.estimated_start if plan else None,
        "planned_completion": plan.estimated_completion if plan else None,
        "explanation": plan.explanation if plan else "",
    }


def _dumped(models: Iterable[Resource]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json", by_alias=True, exclude_none=True) for model in models]
