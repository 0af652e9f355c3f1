"""CPU time of a simulation with the network model over that without, in one run, and the decisions of each run.

Run with ``python benchmarks/network_cost.py`` (about two minutes). In the first part, the jobs are those of
elasticflow_cluster04 in order of submission, as gangs on nodes of 8 GPUs. In the second part, they are drawn jobs of
chunks with parameter servers on the preset edge-cloud, whose data are uploaded. The network model changes the course of
the run, so the third column has the network model without contention: gangs then take the time of their topology level,
and gangs and uploads do not slow each other down. The program exits with 1 if a bound of ranges.toml is missed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from job_logs import log_path
from ranges import all_kept
from tranche.model import Node, Resources, Site
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.recipe import DrawnJobs, FileLog, FixedCluster, LoggedJobs, PresetCluster, Recipe
from tranche.simulation.scenario import Scenario, run

LOG, GPUS, GPUS_PER_NODE = "elasticflow_cluster04", 512, 8
POLICIES = ("srsf", "first-fit", "lwf")
EDGE_LOG, EDGE_JOBS, EDGE_LOAD, CHUNK_SCALE = "elasticflow_cluster06", 40, 0.9, 0.1
EDGE_POLICIES = ("chunk", "chunk-faithful", "srsf", "srsf:uploads=held")


def cluster() -> ClusterSpec:
    """Return the nodes."""
    room = Resources(cpu=10**6, memory=2**50, gpus=GPUS_PER_NODE, pods=10**4)
    nodes = tuple(Node(f"n{number:02}", "pool", room) for number in range(GPUS // GPUS_PER_NODE))
    return ClusterSpec("nodes", nodes, (Site("pool"),))


def gangs(jobs: int) -> Recipe:
    """Return the first part."""
    return Recipe(LoggedJobs(FileLog.at(log_path(LOG)), limit=jobs, member_gpus=1), FixedCluster(cluster()))


def chunks() -> Recipe:
    """Return the second part."""
    return Recipe(DrawnJobs(FileLog.at(log_path(EDGE_LOG)), EDGE_JOBS, CHUNK_SCALE), PresetCluster("edge-cloud"))


def scenarios(recipe: Recipe, policy: str, load: float | None) -> dict[str, Scenario]:
    """Return the run without the network model, with it, and with it but without contention."""
    modelled = recipe.cluster.spec(1).level_network is not None
    off, on = (
        replace(recipe, network=network).build(policy, 1, load) for network in (False, None if modelled else True)
    )
    return {"off": off, "on": on, "on, no contention": replace(on, contention=False)}


def costs(cases: dict[str, Scenario], repeats: int) -> dict[str, tuple[float, int]]:
    """Return the least CPU time and the number of decisions of each case; the cases take turns."""
    by_case = dict.fromkeys(cases, (float("inf"), 0))
    for _ in range(repeats):
        for name, scenario in cases.items():
            began = time.process_time()
            decisions = run(scenario).events
            by_case[name] = min(by_case[name][0], time.process_time() - began), decisions
    return by_case


def measured(recipe: Recipe, policies: Sequence[str], load: float | None, repeats: int) -> float:
    """Print ratios and decisions of each policy, and return the largest ratio with the network model."""
    largest = 0.0
    for policy in policies:
        by_case = costs(scenarios(recipe, policy, load), repeats)
        ratios = {name: seconds / by_case["off"][0] for name, (seconds, _) in by_case.items()}
        largest = max(largest, ratios["on"])
        decisions = ", ".join(f"{number:,}" for _, number in by_case.values())
        texts = "".join(f"{name}: {ratio:.2f}   " for name, ratio in ratios.items())
        print(f"{policy:<20}{texts}decisions: {decisions}", flush=True)
    return largest


def main() -> None:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"CPU time with the network model over that without\n{LOG}, {options.jobs} jobs, {GPUS} GPUs:")
    largest = measured(gangs(options.jobs), POLICIES, None, options.repeats)
    print(f"edge-cloud, {EDGE_JOBS} jobs with arrivals of {EDGE_LOG}, load {EDGE_LOAD}, chunk scale {CHUNK_SCALE}:")
    largest = max(largest, measured(chunks(), EDGE_POLICIES, EDGE_LOAD, options.repeats))
    sys.exit(not all_kept({"CPU time with the network model over that without": largest}))


if __name__ == "__main__":
    main()
