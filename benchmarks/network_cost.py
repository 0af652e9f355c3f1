"""CPU time of a simulation with the network model over that without, in one run.

Run with ``python benchmarks/network_cost.py`` (about a minute). The jobs are those of elasticflow_cluster04 in order of
submission, on nodes of 8 GPUs. The network model changes the course of the run, so the third column has the network
model without contention: gangs then take the time of their topology level and do not slow each other down. The program
exits with 1 if a bound of ranges.toml is missed: the model must not double the time under any policy.
"""

import argparse
import sys
import time
from dataclasses import replace

from job_logs import log_path
from ranges import all_kept
from tranche.model import Node, Resources, Site
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.recipe import FileLog, FixedCluster, LoggedJobs, Recipe
from tranche.simulation.scenario import Scenario, run

LOG, GPUS, GPUS_PER_NODE = "elasticflow_cluster04", 512, 8
POLICIES = ("srsf", "first-fit", "lwf")


def cluster() -> ClusterSpec:
    """Return the nodes."""
    room = Resources(cpu=10**6, memory=2**50, gpus=GPUS_PER_NODE, pods=10**4)
    nodes = tuple(Node(f"n{number:02}", "pool", room) for number in range(GPUS // GPUS_PER_NODE))
    return ClusterSpec("nodes", nodes, (Site("pool"),))


def scenarios(policy: str, jobs: int) -> dict[str, Scenario]:
    """Return the run without the network model, with it, and with it but without contention."""
    log = LoggedJobs(FileLog.at(log_path(LOG)), limit=jobs, member_gpus=1)
    off, on = (
        Recipe(log, FixedCluster(cluster()), network=network).build(policy, 1, None) for network in (False, True)
    )
    return {"off": off, "on": on, "on, no contention": replace(on, contention=False)}


def cpu_seconds(cases: dict[str, Scenario], repeats: int) -> dict[str, float]:
    """Return the least CPU time of each case; the cases take turns."""
    least = dict.fromkeys(cases, float("inf"))
    for _ in range(repeats):
        for name, scenario in cases.items():
            began = time.process_time()
            run(scenario)
            least[name] = min(least[name], time.process_time() - began)
    return least


def main() -> None:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{LOG}, {options.jobs} jobs, {GPUS} GPUs: CPU time with the network model over that without")
    largest = 0.0
    for policy in POLICIES:
        least = cpu_seconds(scenarios(policy, options.jobs), options.repeats)
        ratios = {name: least[name] / least["off"] for name in least}
        largest = max(largest, ratios["on"])
        print(f"{policy:<12}" + "".join(f"{name}: {ratio:.2f}   " for name, ratio in ratios.items()), flush=True)
    sys.exit(not all_kept({"CPU time with the network model over that without": largest}))


if __name__ == "__main__":
    main()
