"""Comparison of a cluster's recorded history with simulations of the same jobs under other policies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, nan
from statistics import median
from typing import Any

from tranche.model import Job, Preemption, Site
from tranche.replay.export import Export
from tranche.replay.pod_history import UNKNOWN_SITE, PastRun
from tranche.simulation.analysis.summary import Summary, summarize
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.engine.result import JobResult, JobUse, SimulationResult, SiteUse
from tranche.simulation.engine.site_use import add_uses
from tranche.simulation.scenario import Scenario, run

OnProgress = Callable[[int, int], None]
ACTUAL = "as it was"
SITE_KEYS = ("site", "tier", "unlimited", "gpu_seconds", "copied_bytes", "in_vain_bytes")
"""Fields of a row about a site; these names are an interface."""


class ReplayError(ValueError):
    """There is nothing to compare; the message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the comparison: the recorded history, or the same jobs under a policy."""

    label: str
    policy: str
    """Policy; empty for the recorded history."""
    with_durations: bool
    """Whether the planner had the durations of jobs of other schedulers."""
    summary: Summary
    gpu_hours: float
    """GPU time that the counted jobs held, including the part lost to preemption and restarts."""
    sites: tuple[SiteUse, ...] = ()
    """Use of each site by the counted jobs; trained GPU time and chunks of the past are unknown and set to 0."""

    @property
    def has_sites(self) -> bool:
        """Whether the row has the use of several sites, `UNKNOWN_SITE` not counted."""
        return len({use.site for use in self.sites} - {UNKNOWN_SITE}) > 1


@dataclass(frozen=True, slots=True)
class Replay:
    """Comparison; all rows count the same jobs."""

    rows: tuple[Row, ...]
    counted: int
    running: int
    """Jobs that were running at the end of the history, or without a recorded outcome: they use GPUs but are not
    counted."""
    unfit: tuple[str, ...]
    """Keys of jobs that ended in the history but never would under some policy; they are not counted."""
    span_seconds: float
    """Time from the first submission to the last counted end."""
    median_run_seconds: float = 0.0
    """Median time from the start to the end of the counted jobs, as recorded."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Assumptions of the simulation."""

    policies: tuple[str, ...] = ("fifo", "chunk")
    restart_seconds: float = 30.0
    """Restart cost at every pod start."""
    never_preempt: bool = False
    """Jobs of other schedulers are never stopped once they run."""
    seed: int = 1


def replay(
    export: Export, cluster: ClusterSpec, settings: ReplaySettings, on_progress: OnProgress | None = None
) -> Replay:
    """Simulate the history under each policy, with and without durations, and count the jobs that all completed.

    Args:
        export: Recorded history.
        cluster: Cluster of the simulation.
        settings: Assumptions.
        on_progress: Called with the numbers of completed and all simulations.

    Raises:
        ReplayError: no job has ended, or no job completes under every policy.
    """
    ended = {key: past for key, past in export.past_runs.items() if past.end != "Running"}
    if not ended:
        raise ReplayError("no job of this history has ended: nothing to compare")
    jobs = tuple(_as_replayed(job, export.past_runs.get(job.key), settings) for job in export.jobs)
    results: list[tuple[str, bool, SimulationResult]] = []
    cells = [(policy, with_durations) for policy in settings.policies for with_durations in (True, False)]
    for number, (policy, with_durations) in enumerate(cells):
        if on_progress is not None:
            on_progress(number, len(cells))
        results.append(
            (policy, with_durations, run(_scenario(jobs, cluster, settings, policy, with_durations=with_durations)))
        )
    completed = set(ended).intersection(*({job.key for job in result.jobs} for _, _, result in results))
    if not completed:
        reasons = next((reason for _, _, result in results for reason in result.unfinished.values()), "")
        none = "the job that ended could not" if len(ended) == 1 else f"none of the {len(ended)} jobs that ended could"
        raise ReplayError(f"{none} run on {cluster.name}: {reasons}")
    places = {site.name: site for site in export.sites}
    past = [_actual(ended[key], places) for key in sorted(completed)]
    rows = [_row(ACTUAL, "", past, True, SimulationResult((), capacity_gpus=results[0][2].capacity_gpus))]
    for policy, with_durations, result in results:
        counted_jobs = [job for job in result.jobs if job.key in completed]
        label = policy if with_durations else f"{policy}, no durations given"
        row = _row(label, policy, counted_jobs, with_durations, result)
        if with_durations or row.summary != rows[-1].summary:
            rows.append(row)
    times = [ended[key] for key in completed]
    span = max(past.completed for past in times) - min(past.submitted for past in times)
    unfit = tuple(sorted(set(ended) - completed))
    median_run = median(past.completed - past.started for past in times)
    return Replay(tuple(rows), len(completed), len(export.jobs) - len(ended), unfit, span, median_run)


def _as_replayed(job: Job, past: PastRun | None, settings: ReplaySettings) -> Job:
    if past is not None and past.is_foreign and settings.never_preempt:
        return replace(job, preemption=Preemption.NEVER)
    return job


def _scenario(
    jobs: tuple[Job, ...], cluster: ClusterSpec, settings: ReplaySettings, policy: str, *, with_durations: bool
) -> Scenario:
    return Scenario(
        jobs=jobs,
        nodes=cluster.nodes,
        sites=cluster.sites,
        policy=policy,
        seed=settings.seed,
        restart_seconds=settings.restart_seconds,
        unsized=0.0 if with_durations else 1.0,
        by_site=True,
    )


def _actual(past: PastRun, sites: Mapping[str, Site]) -> JobResult:
    uses = tuple(_past_uses(past, sites))
    sites_known = bool(sites) and all(use.site in sites for use in uses)
    held, on_demand = (fsum(use.gpu_seconds for use in some) for some in (uses, [use for use in uses if use.unlimited]))
    lasting = past.gpu_seconds - past.lost_gpu_seconds
    return JobResult(
        key=past.key,
        submitted=past.submitted,
        started=past.started,
        completed=past.completed,
        gpus=past.gpus,
        ideal_seconds=past.completed - past.started,
        waiting_seconds=past.started - past.submitted,
        preemptions=past.preemptions,
        starts=0,
        lost_gpu_seconds=max(past.lost_gpu_seconds, held - lasting),
        attained_gpu_seconds=lasting,
        use=JobUse(
            fsum(use.gpu_seconds for use in uses if use.is_cloud) if sites_known else nan,
            fsum(use.copied_bytes for use in uses),
            fsum(use.in_vain_bytes for use in uses),
            uses,
            lasting * on_demand / held if on_demand > 0 else 0.0,
        ),
    )


def _past_uses(past: PastRun, sites: Mapping[str, Site]) -> Iterator[SiteUse]:
    for use in past.uses:
        site = sites.get(use.site)
        tier, unlimited = (site.tier.value, site.unlimited) if site is not None else ("", False)
        yield SiteUse(use.site, tier, unlimited, use.gpu_seconds, 0.0, 0, use.copied_bytes, use.in_vain_bytes)


def _row(label: str, policy: str, jobs: Sequence[JobResult], with_durations: bool, result: SimulationResult) -> Row:
    summary = summarize(SimulationResult(jobs=tuple(jobs), capacity_gpus=result.capacity_gpus))
    hours = sum(job.attained_gpu_seconds + job.lost_gpu_seconds for job in jobs) / 3600
    unused = [SiteUse(use.site, use.tier, use.unlimited) for use in result.sites]
    sites = add_uses([*unused, *(use for job in jobs for use in job.use.sites)])
    return Row(label, policy, with_durations, summary, hours, sites)


def facts_of(result: Replay, export: Export, cluster: str) -> dict[str, Any]:
    """Return the comparison as in the JSON output of the command line and the read API; the keys are an interface."""
    rows = [
        {
            "label": row.label,
            "policy": row.policy,
            "durations_told": row.with_durations,
            **row.summary.as_dict(),
            "gpu_hours": row.gpu_hours,
            "sites": [{key: getattr(use, key) for key in SITE_KEYS} for use in row.sites],
        }
        for row in result.rows
    ]
    return {
        "rows": rows,
        "counted": result.counted,
        "running": result.running,
        "waiting": export.waiting,
        "unfit": list(result.unfit),
        "span_seconds": result.span_seconds,
        "problems": list(export.problems),
        "cluster": cluster,
    }
