"""Timed submission of jobs to a live cluster, and measurement of the outcome."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from tranche.demo.cluster_snapshot import API, Snapshot, observe, observe_nodes
from tranche.demo.delay_measurement import measure_delays, report_seconds
from tranche.demo.job_timeline import read_timelines
from tranche.demo.local_stack import Stack
from tranche.demo.summary import Outcome
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.convert.trainingjob import to_job, to_site
from tranche.live.journal_file import read_journal
from tranche.model import Job
from tranche.simulation.engine.autoscaling import Autoscaling
from tranche.simulation.engine.control_plane_delays import Delays
from tranche.simulation.engine.result import SiteUse
from tranche.simulation.engine.site_use import add_uses
from tranche_testcluster import Cluster, ClusterError, Scaling

NAMESPACE = "default"
POLL_SECONDS = 0.5


class Arrival(Protocol):
    """A job to submit."""

    @property
    def name(self) -> str:
        """Name of the TrainingJob."""

    @property
    def arrival_seconds(self) -> float:
        """Submission time in seconds after the start."""

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Return the manifest to apply."""


def journal_of(cluster: Cluster) -> Path:
    """Return the path of the scheduler's journal (option ``--journal``)."""
    return cluster.directory / "journal.jsonl"


def replay(
    cluster: Cluster,
    ours: Stack,
    jobs: Sequence[Arrival],
    limit_seconds: float,
    show: Callable[[float, Snapshot], None],
    poll_seconds: float = POLL_SECONDS,
) -> tuple[Snapshot, dict[str, float]]:
    """Submit the jobs at their times and poll the cluster until all have ended.

    Args:
        cluster: Cluster to submit to.
        ours: Processes of tranche on the cluster.
        jobs: Jobs in order of arrival.
        limit_seconds: Time limit for all jobs.
        show: Called with each snapshot and the seconds since the start.
        poll_seconds: Poll interval; each poll lists all jobs.

    Returns:
        The last snapshot, and the submission time of each job by name, in seconds since the epoch.

    Raises:
        ClusterError: a job is rejected, a process of tranche ends, or the jobs do not end in time.
    """
    pending, submitted = list(jobs), dict[str, float]()
    begin = next_look = time.time()
    snapshot = Snapshot((), ())
    while pending or not snapshot.finished:
        now = time.time()
        while pending and pending[0].arrival_seconds <= now - begin:
            job = pending.pop(0)
            submitted[job.name] = time.time()
            _submit(cluster, job)
        if now >= next_look:
            next_look = now + poll_seconds
            snapshot = observe(cluster, NAMESPACE)
            show(now - begin, snapshot)
            _check(ours)
            if now - begin > limit_seconds:
                raise ClusterError(f"not all jobs ended within the time limit: {dict(snapshot.phases)}")
        due = min(next_look, begin + pending[0].arrival_seconds) if pending else next_look
        time.sleep(max(0.0, due - time.time()))
    return snapshot, submitted


def outcome_of(
    cluster: Cluster,
    snapshot: Snapshot,
    submitted: dict[str, float],
    save_seconds: float,
    scalings: Sequence[Scaling] = (),
    training_seconds: Mapping[str, float] = MappingProxyType({}),
) -> Outcome:
    """Measure the outcome of ended jobs.

    Args:
        cluster: Cluster with the journal.
        snapshot: Last snapshot.
        submitted: Submission times from `replay`.
        save_seconds: Checkpoint time of a worker, from its specification.
        scalings: Autoscaler settings of the unlimited sites.
        training_seconds: Time that each worker of a job trains, by key, where it is known.
    """
    completed: dict[str, float] = {}
    planned: list[Job] = []
    for resource in snapshot.jobs:
        job, end = to_job(resource), resource.status.completion_time
        if end is not None and resource.status.phase == "Succeeded":
            completed[job.key] = end.timestamp()
        planned.append(replace(job, submitted=submitted[resource.metadata.name]))
    sites = {site.metadata.name: site for site in snapshot.sites}
    node_seconds = {scaling.site: scaling.start_seconds for scaling in scalings}
    timelines = read_timelines(read_journal(journal_of(cluster)), node_seconds)
    outcome = Outcome(
        completed,
        snapshot.preemptions,
        timelines,
        Delays(),
        report_seconds(timelines, completed),
        tuple(planned),
        tuple(to_site(site) for site in sites.values()),
        tuple(observe_nodes(cluster, sites)),
        {scaling.site: Autoscaling(scaling.gpus, scaling.idle_seconds) for scaling in scalings},
        node_seconds,
        uses_of(snapshot.jobs, sites),
    )
    return replace(outcome, delays=measure_delays(timelines, save_seconds, outcome.kinds, training_seconds))


def uses_of(jobs: Iterable[TrainingJob], sites: Mapping[str, SiteObject]) -> tuple[SiteUse, ...]:
    """Return the use of each site by all jobs, as the planner has written it to their statuses.

    Args:
        jobs: As the API server has them.
        sites: By name; those that no job used are listed with zeros.
    """

    def use(name: str, *amounts: int) -> SiteUse:
        site = sites.get(name)
        return SiteUse(name, site.spec.tier if site else "Edge", site is not None and site.spec.unlimited, *amounts)

    used = [
        use(
            site_use.site,
            site_use.gpu_seconds,
            site_use.trained_gpu_seconds,
            site_use.chunks,
            site_use.copied_bytes,
            site_use.in_vain_bytes,
        )
        for job in jobs
        for site_use in (job.status.progress.sites if job.status.progress else ())
    ]
    return add_uses([*map(use, sites), *used])


def _check(ours: Stack) -> None:
    for name, code in ours.ended().items():
        raise ClusterError(f"{name} ended with {code}, see the logs in {ours.cluster.directory}")


def _submit(cluster: Cluster, job: Arrival) -> None:
    path = f"{API}/namespaces/{NAMESPACE}/trainingjobs"
    status, answer = cluster.request("POST", path, job.manifest(NAMESPACE))
    if status != 201:
        raise ClusterError(f"{job.name} was rejected: {answer.get('message', answer)}")
