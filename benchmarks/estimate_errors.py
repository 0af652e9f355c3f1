"""Differences between planned and real completions, by the time of the plan.

``python benchmarks/estimate_errors.py`` simulates `chunk` and plays the plan forward at every arrival. For every job it
takes the plan that was known at its submission, and at 25, 50 and 75 % of its job completion time (JCT), and prints, as
a table of Markdown, median and p90 of |planned - real completion| / JCT over all jobs and seeds, and the median of
(planned - real) / JCT: below 0 is optimistic, as every plan is that knows no later arrivals.
"""

import argparse
import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median, quantiles

from job_logs import log_path
from tranche.simulation.cluster_spec import pool
from tranche.simulation.engine.simulation import Simulation
from tranche.simulation.recipe import DrawnJobs, FileLog, FixedCluster, LoggedJobs, PresetCluster, Recipe
from tranche.simulation.scenario import Scenario, prepared

LOG = FileLog.at(log_path("elasticflow_cluster06"))
SEEDS = (1, 2, 3)
LOAD = 0.9
"""Load of the drawn jobs; the log's jobs arrive as logged."""
SIGMAS = {"exact": 0.0, "predicted, σ = 1": 1.0}
MOMENTS = {"submission": 0.0, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75}
SETTINGS = {
    "jsac-edge, 60 jobs": (Recipe(DrawnJobs(LOG, 60), PresetCluster("jsac-edge")), LOAD),
    "gangs @128, 500 jobs": (Recipe(LoggedJobs(LOG, "gang", limit=500), FixedCluster(pool(128))), None),
}


@dataclass(slots=True)
class Plans:
    """Planned completions of a job, with the times of the plans."""

    at: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)

    def known(self, time: float) -> float | None:
        """Return the latest plan by that time."""
        index = bisect_right(self.at, time + 1e-6)
        return self.completion[index - 1] if index else None


def arrivals(simulation: Simulation, scenario: Scenario) -> Iterator[None]:
    """Simulate up to each arrival, and yield there."""
    for arrival in sorted({job.submitted for job in scenario.jobs}):
        while simulation.now < arrival or not simulation.events:
            simulation.step()
        yield


def errors(scenario: Scenario) -> dict[str, list[float]]:
    """Return (planned - real) / JCT of all jobs, by moment."""
    simulation = prepared(scenario)
    plans = {job.key: Plans() for job in scenario.jobs}
    for _ in arrivals(simulation, scenario):
        for key, estimate in simulation.planner.forecast(simulation.now).items():
            plans[key].at.append(simulation.now)
            plans[key].completion.append(estimate.completion)
    simulation.run()
    by_moment: dict[str, list[float]] = {moment: [] for moment in MOMENTS}
    for result in simulation.result().jobs:
        jct = result.completed - result.submitted
        for moment, fraction in MOMENTS.items():
            planned = plans[result.key].known(result.submitted + fraction * jct)
            if planned is not None:
                by_moment[moment].append((planned - result.completed) / jct)
    return by_moment


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--policy", default="chunk", help="policy; chunk:declared=1 corrects declared durations")
    policy = parser.parse_args().policy
    print("| jobs | durations | planned at | estimates | median | p90 | bias |\n|:--|:--|:--|--:|--:|--:|--:|")
    for name, (recipe, load) in SETTINGS.items():
        for label, sigma in SIGMAS.items():
            by_moment: dict[str, list[float]] = {moment: [] for moment in MOMENTS}
            for seed in SEEDS:
                print(f"{name}, {label}, seed {seed} …", file=sys.stderr)
                scenario = replace(recipe, estimate_sigma=sigma).build(policy, seed, load)
                for moment, values in errors(scenario).items():
                    by_moment[moment] += values
            for moment, signed in by_moment.items():
                sizes = [abs(error) for error in signed]
                cells = (median(sizes), quantiles(sizes, n=10)[-1], median(signed))
                figures = " | ".join(f"{100 * cell:.1f} %" for cell in cells)
                print(f"| {name} | {label} | {moment} | {len(signed)} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
