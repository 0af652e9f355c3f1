"""Share of jobs whose completion lies inside the 80 % interval that they got at submission.

``python benchmarks/interval_calibration.py`` simulates `chunk` on job logs whose durations the planner knows up to a
log-normal factor, plays the plan forward at every arrival, and compares each job's completion with its first interval.
The step of the intervals was chosen on elasticflow_cluster01 and _cluster02; the other logs were not used for it. With
``--picture``, it draws docs/pictures/calibration.png: the share by log, and in the course of completed jobs.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from estimate_errors import arrivals
from gang_bars import LOGS
from job_logs import ROOT, log_path
from tranche.model import Interval
from tranche.simulation.cluster_spec import pool
from tranche.simulation.recipe import FileLog, FixedCluster, LoggedJobs, Recipe
from tranche.simulation.scenario import Scenario, prepared

PICTURE = ROOT / "docs/pictures/calibration.png"
TUNED = ("elasticflow_cluster01", "elasticflow_cluster02")
TESTED = ("elasticflow_cluster04", "elasticflow_cluster06", "helios_venus_vcvGl", "tiresias_60")
SMALL = {"tiresias_60": 5}
"""Number of times as many seeds for a log with few jobs."""
HEADS = (
    "| log | σ | jobs | inside | by seed | after | median width | starts of waiting jobs inside | error: median, p90 "
    "| average JCT |\n|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
"""First lines of the table."""
WINDOW = 60
"""Number of completed jobs over which the course of the share is shown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Completion of a job with the first interval of its start and completion."""

    submitted: float
    started: float
    completed: float
    planned: float
    start: Interval
    completion: Interval

    @property
    def inside(self) -> bool:
        """Whether the completion lies inside its interval."""
        return self.completion.verdict(self.completed) == "inside"


def outcomes(scenario: Scenario) -> list[Outcome]:
    """Simulate, and return the outcomes of all jobs in order of completion."""
    simulation = prepared(scenario)
    planner, plans = simulation.planner, {}
    for _ in arrivals(simulation, scenario):
        for key, estimate in planner.forecast(simulation.now).items():
            if key not in plans:
                plan = planner.plan_of(key, simulation.now)
                plans[key] = (estimate.completion, plan.start_interval, plan.completion_interval)
    simulation.run()
    completed = []
    for job in simulation.result().jobs:
        planned, start, completion = plans[job.key]
        if start is not None and completion is not None:
            completed.append(Outcome(job.submitted, job.started, job.completed, planned, start, completion))
    return sorted(completed, key=lambda outcome: outcome.completed)


def course(completed: Sequence[Outcome]) -> list[float]:
    """Return the share inside among the last `WINDOW` completed jobs, after each job."""
    inside = [outcome.inside for outcome in completed]
    return [sum(inside[n - WINDOW : n]) / WINDOW for n in range(WINDOW, len(inside) + 1)]


def row(log: str, sigma: float, runs: Sequence[Sequence[Outcome]]) -> str:
    """Return a row of the table."""
    every = [job for run in runs for job in run]
    shares = [sum(job.inside for job in run) / len(run) for run in runs]
    waits = [job for job in every if job.start.latest > job.submitted + 1.0]
    starts = sum(job.start.verdict(job.started) == "inside" for job in waits) / len(waits) if waits else 1.0
    late = sum(job.completion.verdict(job.completed) == "late" for job in every) / len(every)
    errors = sorted(abs(job.planned - job.completed) / (job.completed - job.submitted) for job in every)
    error = f"{100 * median(errors):.0f} %, {100 * errors[int(0.9 * len(errors))]:.0f} %"
    jct = sum(job.completed - job.submitted for job in every) / len(every) / 60
    width = median(job.completion.latest / 60 - job.completion.earliest / 60 for job in every)
    share = sum(job.inside for job in every) / len(every)
    spread = f"{100 * min(shares):.0f}-{100 * max(shares):.0f} %"
    cells: tuple[object, ...] = (
        log,
        f"{sigma:g}",
        len(every),
        f"{100 * share:.1f} %",
        spread,
        f"{100 * late:.1f} %",
        f"{width:.0f} min",
    )
    return (
        "| " + " | ".join(map(str, (*cells, f"{100 * starts:.0f} % of {len(waits)}", error, f"{jct:.0f} min"))) + " |"
    )


def draw(by_log: dict[str, list[list[Outcome]]], path: Path) -> None:
    """Draw the share by log, and its course on the logs that were not tuned on."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(1, 1.4), layout="constrained")
    for place, (log, runs) in enumerate(by_log.items()):
        shares = [100 * sum(job.inside for job in run) / len(run) for run in runs]
        left.scatter(shares, [place] * len(shares), s=18, color="tab:grey" if log in TUNED else "tab:blue")
    left.set_yticks(range(len(by_log)), [f"{log} (tuned on)" if log in TUNED else log for log in by_log], fontsize=7)
    left.axvspan(75, 85, color="tab:green", alpha=0.15)
    left.set(xlim=(50, 100), xlabel="jobs inside their interval, % (one point a seed)")
    for log, runs in by_log.items():
        if log not in TUNED and log not in SMALL:
            shares = [100 * share for share in course(runs[0])]
            right.plot(range(WINDOW, WINDOW + len(shares)), shares, label=log, linewidth=1)
    right.axhline(80, color="black", linewidth=0.8, linestyle=":")
    right.set(ylim=(50, 100), xlabel="completed jobs", ylabel=f"% inside, last {WINDOW} jobs (simulated)")
    right.legend(fontsize=7, loc="lower right")
    figure.savefig(path, dpi=100)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--logs", nargs="+", choices=(*TUNED, *TESTED), default=[*TUNED, *TESTED], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=400, help="jobs of each log")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of the factors")
    parser.add_argument("--policy", default="chunk", help="chunk:declared=1 corrects the durations")
    parser.add_argument("--load", type=float, default=0.9, help="load to which the arrivals are stretched")
    parser.add_argument("--sigma", type=float, default=1.0, help="σ of the factors")
    parser.add_argument("--picture", action="store_true", help=f"draw {PICTURE.relative_to(ROOT)}")
    options = parser.parse_args()
    by_log: dict[str, list[list[Outcome]]] = {}
    print(HEADS)
    for log in options.logs:
        recipe = Recipe(LoggedJobs(FileLog.at(log_path(log)), limit=options.jobs), FixedCluster(pool(LOGS[log])))
        recipe = replace(recipe, estimate_sigma=options.sigma)
        for seed in range(1, 1 + options.seeds * SMALL.get(log, 1)):
            print(f"{log}, seed {seed} …", file=sys.stderr)
            by_log.setdefault(log, []).append(outcomes(recipe.build(options.policy, seed, options.load)))
        print(row(log, options.sigma, by_log[log]), flush=True)
    if options.picture:
        draw(by_log, PICTURE)


if __name__ == "__main__":
    main()
