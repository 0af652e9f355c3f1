"""A cluster's history beside what policies would have made of the same jobs on the same nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from tranche.kube.exports import Export
from tranche.kube.histories import PastRun
from tranche.model import Job, Preemption
from tranche.simulation.clusters import ClusterSpec
from tranche.simulation.metrics import Summary, summarize
from tranche.simulation.results import JobResult, JobUse, SimulationResult
from tranche.simulation.scenarios import Scenario, run

OnProgress = Callable[[int, int], None]
ACTUAL = "as it was"


class ReplayError(ValueError):
    """There is nothing to compare; the text is one line that says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One column of fate: the past, or the same jobs under a policy."""

    label: str
    policy: str
    """Empty: what really happened."""
    told: bool
    """Whether the planner was told how long jobs of other schedulers take."""
    summary: Summary
    gpu_hours: float
    """That the counted jobs held, with what preemption and restarts lost."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The comparison; all rows count the same jobs."""

    rows: tuple[Row, ...]
    counted: int
    running: int
    """Jobs that ran when the history ended, or that do not say how they fared: they take room, and are not counted."""
    unfit: tuple[str, ...]
    """Jobs that ended in reality and never would under some policy, by key: not counted."""
    span_seconds: float
    """From the first submission to the last end that is counted."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What the simulation assumes."""

    policies: tuple[str, ...] = ("fifo", "chunk")
    restart_seconds: float = 30.0
    """Lost at every pod start."""
    never_preempt: bool = False
    """Jobs of other schedulers are never stopped once they run."""
    seed: int = 1


def replay(
    export: Export, cluster: ClusterSpec, settings: ReplaySettings, on_progress: OnProgress | None = None
) -> Replay:
    """Simulate the history under each policy, told of durations and not, and count what all of them completed.

    Args:
        export: The history.
        cluster: On which it is replayed.
        settings: What is assumed.
        on_progress: Told how many simulations of how many are done.

    Raises:
        ReplayError: no job has ended, or no policy completes any of those.
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
        use=JobUse(nan, nan, nan),  # a history does not say
    )


def _row(label: str, policy: str, jobs: Sequence[JobResult], told: bool, gpus: int) -> Row:
    summary = summarize(SimulationResult(jobs=tuple(jobs), capacity_gpus=gpus))
    hours = sum(job.attained_gpu_seconds + job.lost_gpu_seconds for job in jobs) / 3600
    return Row(label, policy, told, summary, hours)


def facts_of(result: Replay, export: Export, cluster: str) -> dict[str, Any]:
    """The comparison as the command line and the read API give it; these names are an interface."""
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
