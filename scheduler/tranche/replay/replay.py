"""Comparison of a cluster's recorded history with simulations of the same jobs under other policies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from tranche.model import Job, Preemption
from tranche.replay.export import Export
from tranche.replay.pod_history import PastRun
from tranche.simulation.analysis.summary import Summary, summarize
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.engine.result import JobResult, JobUse, SimulationResult
from tranche.simulation.scenario import Scenario, run

OnProgress = Callable[[int, int], None]
ACTUAL = "as it was"


class ReplayError(ValueError):
    """There is nothing to compare; the message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the comparison: the recorded history, or the same jobs under a policy."""

    label: str
    policy: str
    """Policy; empty for the recorded history."""
    told: bool
    """Whether the planner had the durations of jobs of other schedulers."""
    summary: Summary
    gpu_hours: float
    """GPU-hours of the counted jobs, including those lost by preemption and restarts."""


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
    ended = {key: past for key, past in export.pasts.items() if past.end != "Running"}
    if not ended:
        raise ReplayError("no job of this history has ended: nothing to compare")
    jobs = tuple(_as_replayed(job, export.pasts.get(job.key), settings) for job in export.jobs)
    results: list[tuple[str, bool, SimulationResult]] = []
    cells = [(policy, told) for policy in settings.policies for told in (True, False)]
    for number, (policy, told) in enumerate(cells):
        if on_progress is not None:
            on_progress(number, len(cells))
        results.append((policy, told, run(_scenario(jobs, cluster, settings, policy, told=told))))
    completed = set(ended).intersection(*({job.key for job in result.jobs} for _, _, result in results))
    if not completed:
        reasons = next((reason for _, _, result in results for reason in result.unfinished.values()), "")
        raise ReplayError(f"none of the {len(ended)} jobs that ended could run on {cluster.name}: {reasons}")
    rows = [_row(ACTUAL, "", [_actual(ended[key]) for key in sorted(completed)], True, results[0][2].capacity_gpus)]
    for policy, told, result in results:
        kept = [job for job in result.jobs if job.key in completed]
        label = policy if told else f"{policy}, no durations given"
        row = _row(label, policy, kept, told, result.capacity_gpus)
        if told or row.summary != rows[-1].summary:
            rows.append(row)
    times = [ended[key] for key in completed]
    span = max(past.completed for past in times) - min(past.submitted for past in times)
    unfit = tuple(sorted(set(ended) - completed))
    return Replay(tuple(rows), len(completed), len(export.jobs) - len(ended), unfit, span)


def _as_replayed(job: Job, past: PastRun | None, settings: ReplaySettings) -> Job:
    if past is not None and settings.never_preempt:
        return replace(job, preemption=Preemption.NEVER)
    return job


def _scenario(
    jobs: tuple[Job, ...], cluster: ClusterSpec, settings: ReplaySettings, policy: str, *, told: bool
) -> Scenario:
    return Scenario(
        jobs=jobs,
        nodes=cluster.nodes,
        sites=cluster.sites,
        policy=policy,
        seed=settings.seed,
        restart_seconds=settings.restart_seconds,
        unsized=0.0 if told else 1.0,
    )


def _actual(past: PastRun) -> JobResult:
    return JobResult(
        key=past.key,
        submitted=past.submitted,
        started=past.started,
        completed=past.completed,
        gpus=past.gpus,
        ideal_seconds=past.completed - past.started,
        waiting_seconds=past.started - past.submitted,
        preemptions=0,
        starts=0,
        lost_gpu_seconds=0.0,
        attained_gpu_seconds=past.gpu_seconds,
        use=JobUse(nan, nan, nan),  # not recorded
    )


def _row(label: str, policy: str, jobs: Sequence[JobResult], told: bool, gpus: int) -> Row:
    summary = summarize(SimulationResult(jobs=tuple(jobs), capacity_gpus=gpus))
    hours = sum(job.attained_gpu_seconds + job.lost_gpu_seconds for job in jobs) / 3600
    return Row(label, policy, told, summary, hours)


def facts_of(result: Replay, export: Export, cluster: str) -> dict[str, Any]:
    """Return the comparison as in the JSON output of the command line and the read API; the keys are an interface."""
    rows = [
        {
            "label": row.label,
            "policy": row.policy,
            "durations_told": row.told,
            **row.summary.as_dict(),
            "gpu_hours": row.gpu_hours,
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
