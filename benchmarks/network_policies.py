"""Delay timers beside their comparators: gangs of a log on nodes in racks, with an idle and a congested network.

``python benchmarks/network_policies.py`` simulates the first jobs of elasticflow logs, each GPU of a gang as a member
of its own, on nodes of 8 GPUs in racks of 4 nodes, with arrivals
stretched to a load; models are drawn from measured throughputs. The links between racks
have 100 Gbit/s (idle) or 10 Gbit/s (congested). It prints makespan, average JCT and communication time of each policy,
and their ratios to no-wait (mean and range over seeds).
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from job_logs import log_path
from tranche.estimate import LevelNetwork
from tranche.estimate.transfer_start import SHARED
from tranche.model import Node, Resources, Site
from tranche.model.topology import RACK_LEVEL
from tranche.simulation.analysis.summary import Summary, summarize
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.recipe import FileLog, FixedCluster, LoggedJobs, Recipe
from tranche.simulation.scenario import run
from tranche.simulation_report.plot_style import LIGHT, Theme, heading, legend_below, render

GPUS = {
    "elasticflow_cluster06": 128,
    "elasticflow_cluster04": 512,
    "elasticflow_cluster01": 64,
    "elasticflow_cluster02": 128,
    "helios_venus_vcvGl": 160,
}
POLICIES = ("no-wait", "consolidate", "dally-like", "dally-like:timers=600/600", "srsf", "tiresias")
NODE_GPUS, RACK_NODES = 8, 4
BETWEEN_RACKS = {"idle": 100e9, "congested": 10e9}
"""Capacity of the links between racks, in bit/s; within a rack 100 Gbit/s, within a node 300 Gbit/s."""
RESTART_SECONDS = 60.0
FIGURES = {
    "makespan_seconds": "makespan",
    "average_jct_seconds": "average JCT",
    "communication_seconds": "communication",
}
"""Figures of a summary with their titles."""
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)
SummariesByPolicy = dict[str, list[Summary]]
"""Summaries of the seeds, by policy."""


def cluster(gpus: int, between_racks: float) -> ClusterSpec:
    """Return nodes of 8 GPUs in racks of 4, at one site."""
    nodes = tuple(
        Node(
            f"node-{i:02d}",
            "site",
            Resources(10**9, 2**60, NODE_GPUS, 10**6),
            labels={RACK_LEVEL: f"rack-{i // RACK_NODES}"},
        )
        for i in range(gpus // NODE_GPUS)
    )
    network = LevelNetwork((300e9, 100e9, between_racks, 1e9))
    return ClusterSpec(f"{gpus} GPUs", nodes, (Site("site", links={}),), level_network=network)


def simulated(log: str, jobs: int, network: str, policy: str, seed: int, load: float) -> Summary:
    """Simulate one policy; a start rule of transfers may follow it after a comma."""
    name, _, rule = policy.partition(",")
    workload = LoggedJobs(FileLog.at(log_path(log)), limit=jobs, member_gpus=1)
    fixed = FixedCluster(cluster(GPUS[log], BETWEEN_RACKS[network]))
    recipe = Recipe(workload, fixed, restart_seconds=RESTART_SECONDS, transfers=rule or SHARED)
    return summarize(run(recipe.build(name, seed, load)))


def ratios(values: Sequence[float], baselines: Sequence[float]) -> str:
    """Return the mean of the ratios with their range."""
    quotients = [value / base for value, base in zip(values, baselines, strict=True) if base > 0]
    if not quotients:
        return "–"
    spread = f" ({min(quotients):.2f}–{max(quotients):.2f})" if len(quotients) > 1 else ""
    return f"{mean(quotients):.2f}{spread}"


def measure(
    log: str, jobs: int, network: str, policies: Sequence[str], seeds: Sequence[int], load: float
) -> SummariesByPolicy:
    """Measure and print one log in one network."""
    by_policy = {policy: [simulated(log, jobs, network, policy, seed, load) for seed in seeds] for policy in policies}
    base = by_policy[policies[0]]
    print(
        f"\n{log}, {jobs} jobs, {GPUS[log]} GPUs, load {load:g}, network {network}, seeds {', '.join(map(str, seeds))}"
    )
    print(f"{'policy':<28}{'makespan h':>11}{'JCT h':>8}{'comm. h':>9}{'stops':>7}  ratios to {policies[0]}:")
    for policy, summaries in by_policy.items():
        columns = {name: [getattr(run, name) for run in summaries] for name in FIGURES}
        means = [mean(values) / 3600 for values in columns.values()]
        compared = "; ".join(ratios(values, [getattr(run, name) for run in base]) for name, values in columns.items())
        stops = mean(run.preemptions for run in summaries)
        lacking = sum(run.unfinished for run in summaries)
        note = f"  {lacking} unfinished" if lacking else ""
        print(
            f"{policy:<28}{means[0]:>11.2f}{means[1]:>8.2f}{means[2]:>9.2f}{stops:>7.0f}  {compared}{note}", flush=True
        )
    return by_policy


def draw_ratios(figure: Figure, theme: Theme, log: str, measured: dict[str, SummariesByPolicy]) -> None:
    """Draw the mean ratios to the first policy as bars, one panel for each figure."""
    heading(figure, f"Simulated gangs of {log}, by network between racks")
    panels = figure.subplots(1, len(FIGURES), sharey=True)
    for axes, (name, title) in zip(panels, FIGURES.items(), strict=True):
        for number, (network, by_policy) in enumerate(measured.items()):
            base = [getattr(summary, name) for summary in next(iter(by_policy.values()))]
            means = [
                mean(getattr(summary, name) / reference for summary, reference in zip(summaries, base, strict=True))
                for summaries in by_policy.values()
            ]
            places = [place + 0.4 * number for place in range(len(by_policy))]
            axes.barh(places, means, 0.4, color=theme.series[number], label=network)
            for place, value in zip(places, means, strict=True):
                axes.text(value, place, f" {value:.2f}", va="center", fontsize=8)
        axes.set_yticks([place + 0.2 for place in range(len(by_policy))], list(by_policy))
        axes.set(title=title, xscale="log", xlabel=f"ratio to {next(iter(by_policy))}", xlim=(0.5, 250))
        axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axes.minorticks_off()
    panels[0].invert_yaxis()
    legend_below(figure, panels[0], len(measured))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", nargs="+", choices=GPUS, default=["elasticflow_cluster06"], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=300, help="first jobs of each log")
    parser.add_argument("--load", type=float, default=1.0, help="arrivals are stretched to this load, 0 … 1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds of the models")
    parser.add_argument(
        "--policies",
        nargs="+",
        default=list(POLICIES),
        help="policies, or a policy and a start rule of transfers as in lwf,adadual; ratios are to the first one",
    )
    parser.add_argument("--picture", type=Path, help="PNG file for the ratios of the last log")
    options = parser.parse_args()
    for log in options.logs:
        measured = {
            network: measure(log, options.jobs, network, options.policies, options.seeds, options.load)
            for network in BETWEEN_RACKS
        }
        if options.picture is not None:
            draw = partial(draw_ratios, log=log, measured=measured)
            options.picture.write_bytes(render(draw, LIGHT, 12, 4.5))


if __name__ == "__main__":
    main()
