"""LWF-κ, SRSF(n) and Ada-SRSF in the setting of their source, and `lwf` on exclusive GPUs.

Run with ``python benchmarks/lwf_study.py`` (about two minutes of CPU time; ``--picture`` draws docs/pictures/lwf.png).
The first table has each placement with each start rule in the simulator of single mini-batches
(`contention_simulator.py`). The second has the same jobs under policies of the product, with one job for each GPU and
the network model. The third has three of these policies with each start rule of transfers. The fourth compares the
network model's share of links with single mini-batches: two jobs on the same two nodes.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import inf
from pathlib import Path
from statistics import fmean

from contention_simulator import (
    ALONE,
    GPUS_PER_NODE,
    MODELS,
    NODES,
    PLACEMENTS,
    RULES,
    MiniBatchJob,
    average_jct,
    jobs_of,
    measured_ends,
    pairs,
)
from tranche.estimate import LevelNetwork
from tranche.estimate.transfer_start import SHARED, START_RULES
from tranche.model import Job, Node, PodShape, Resources
from tranche.model.topology import NODE_LEVEL, RACK_LEVEL, Topology
from tranche.simulation.scenario import Scenario, run

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "lwf.png"
BITS_PER_MB = 8e6
UPLINK_BITS_PER_SECOND = BITS_PER_MB / (ALONE / 1000)
"""Capacity of a node's link: a MB takes β."""
POLICIES = ("lwf", "lwf:kappa=inf", "lwf:placement=random", "first-fit", "srsf")
BATCHES = 200
"""Mini-batches of each job of the fourth table."""
RULED_POLICIES = ("lwf", "lwf:kappa=inf", "first-fit")
"""Policies of the third table."""
Averages = Mapping[str, list[float]]
"""Average JCT of each variant, in seconds, by seed."""


def gang(job: MiniBatchJob) -> Job:
    """Return a job as a gang whose all-reduce between nodes takes M·β, on a ring of its GPUs."""
    ring = 2 * (job.workers - 1) / job.workers
    return Job(
        key=f"default/{job.number:03}",
        uid=f"{job.number:03}",
        submitted=job.arrival / 1000,
        worker=PodShape(Resources(gpus=1, pods=1)),
        chunks=job.workers,
        max_workers=job.workers,
        is_gang=True,
        batches_per_chunk=job.iterations,
        step_seconds=(job.model.forward_ms + job.model.backward_ms) / 1000,
        gradient_bits=job.model.gradient_mb * BITS_PER_MB / ring if ring else 0.0,
    )


def exclusive(jobs: list[MiniBatchJob], policy: str, seed: int, transfers: str = SHARED) -> Scenario:
    """Return the scenario with one job for each GPU."""
    room = Resources(cpu=1, memory=1, gpus=GPUS_PER_NODE, pods=GPUS_PER_NODE)
    return Scenario(
        tuple(gang(job) for job in jobs),
        tuple(Node(f"n{number:02}", "pool", room) for number in range(NODES)),
        policy=policy,
        seed=seed,
        topology=Topology((NODE_LEVEL,)),
        level_network=LevelNetwork((inf, UPLINK_BITS_PER_SECOND)),
        transfers=transfers,
    )


def table(title: str, averages: Averages, reference: str) -> None:
    """Print the average JCT of each variant, and its mean ratio to the reference with the range over the seeds."""
    print(f"\n{title}\n{'':<28}{'average JCT s':>14}   ratio to {reference}")
    for name, values in averages.items():
        ratios = [value / base for value, base in zip(values, averages[reference], strict=True)]
        spread = f"{fmean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"{name:<28}{fmean(values):>14.2f}   {spread}", flush=True)


def measured(names: list[str], seeds: int, average: Callable[[str, int], float]) -> Averages:
    """Return the averages of all variants and seeds."""
    return {name: [average(name, seed) for seed in range(1, seeds + 1)] for name in names}


def shared(count: int, seeds: int) -> Averages:
    """Return the averages of each placement with each rule."""
    names = [f"{placement}, {rule}" for placement in PLACEMENTS for rule in RULES]

    def average(name: str, seed: int) -> float:
        placement, rule = name.split(", ")
        return average_jct(placement, rule, seed, count)

    return measured(names, seeds, average)


def product(names: Sequence[str], count: int, seeds: int) -> Averages:
    """Return the averages of policies of the product; a start rule may follow a policy."""

    def average(name: str, seed: int) -> float:
        policy, _, rule = name.partition(", ")
        result = run(exclusive(jobs_of(seed, count), policy, seed, rule or SHARED))
        assert not result.unfinished, result.unfinished
        return result.average_jct_seconds

    return measured(list(names), seeds, average)


def share_of_links() -> None:
    """Compare the ends of two jobs on the same links with those of single mini-batches."""
    print("\nTwo jobs on the same two nodes: network model against single mini-batches")
    for models in combinations_with_replacement(MODELS, 2):
        jobs, nodes = pairs(models, BATCHES), [(0, 1)] * 2
        exact = measured_ends(jobs, START_RULES["at-once"], nodes)
        line = f"{' and '.join(model.name for model in models):<30}"
        for transfers in (SHARED, "at-once"):
            ends = network_ends(jobs, nodes, transfers)
            errors = [round(100 * (model_end / end - 1), 1) + 0.0 for model_end, end in zip(ends, exact, strict=True)]
            line += f"  {transfers}:" + "".join(f"{error:>+8.1f} %" for error in errors)
        print(line, flush=True)


def network_ends(jobs: list[MiniBatchJob], places: Sequence[tuple[int, int]], transfers: str = SHARED) -> list[float]:
    """Return when jobs of two workers are done that are on these pairs of nodes, in seconds.

    The links of racks take the place of those of nodes. The nodes of each job follow each other, so that jobs that
    arrive in their order get their own.
    """
    room, racks = Resources(cpu=1, memory=1, gpus=1, pods=1), [str(rack) for place in places for rack in place]
    scenario = replace(
        exclusive(jobs, "fifo", 1, transfers),
        nodes=tuple(Node(f"n{at}", "pool", room, labels={RACK_LEVEL: rack}) for at, rack in enumerate(racks)),
        topology=Topology((NODE_LEVEL, RACK_LEVEL)),
        level_network=LevelNetwork((inf, inf, UPLINK_BITS_PER_SECOND)),
    )
    return [job.completed for job in sorted(run(scenario).jobs, key=lambda job: job.key)]


def draw(first: Averages, second: Averages) -> None:
    """Draw the average JCT of all variants."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4))
    width = 0.8 / len(RULES)
    for position, rule in enumerate(RULES):
        heights = [fmean(first[f"{placement}, {rule}"]) for placement in PLACEMENTS]
        panels[0].bar([at + (position - 1) * width for at in range(len(PLACEMENTS))], heights, width, label=rule)
    panels[0].set_xticks(range(len(PLACEMENTS)), list(PLACEMENTS))
    panels[0].set_title("GPUs shared by memory")
    panels[0].legend(frameon=False)
    panels[1].bar(range(len(second)), [fmean(values) for values in second.values()], 0.6, color="C3")
    panels[1].set_xticks(range(len(second)), [name.replace(":", "\n").replace("=", "=\n") for name in second])
    panels[1].set_title("GPUs of one job each, policies of tranche")
    for panel in panels:
        panel.set_ylabel("average JCT in s (simulated)")
        panel.grid(visible=True, axis="y", alpha=0.3)
        panel.set_axisbelow(True)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=160, help="number of jobs, a multiple of 80")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    print(f"{NODES} nodes of {GPUS_PER_NODE} GPUs, {options.jobs} jobs, seeds 1 to {options.seeds}")
    first = shared(options.jobs, options.seeds)
    table("GPUs shared by memory, single mini-batches", first, "LWF-1, SRSF(1)")
    second = product(POLICIES, options.jobs, options.seeds)
    table("One job for each GPU, policies of tranche with the network model", second, "lwf")
    for policy in RULED_POLICIES:
        ruled = product([f"{policy}, {rule}" for rule in (SHARED, *START_RULES)], options.jobs, options.seeds)
        table("The same with start rules of transfers", ruled, f"{policy}, srsf-1")
    share_of_links()
    if options.picture:
        draw(first, second)


if __name__ == "__main__":
    main()
