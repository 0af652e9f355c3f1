"""Total utility of OASiS, the PD-ORS-like policy and their comparators, on drawn jobs.

``python benchmarks/utility_policies.py utility`` compares the policies by the number of jobs; ``lateness`` has the
completion of time-sensitive and time-critical jobs less their targets, ``scale`` varies the ratio of the bounds of
prices, ``bandwidth`` the bandwidth inside a machine over that between machines, ``arrival`` measures the time of one
offer, and ``table`` the size of what jobs have reserved, as their statuses have it. Pods, gradients and utilities are
drawn as in OASiS or from a part of its ranges; work and arrivals are ours: 4 to 200 GPU-hours, log-uniform, in 4 to 32
chunks, over 80 hours, on nodes of 8 GPUs, 6 by default. Each node is a site, so that communication inside a machine and
between machines differ in the simulator.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, exp, log
from pathlib import Path
from statistics import fmean, median, pstdev
from time import process_time

from matplotlib.figure import Figure

from tranche.kube.convert.worker_grant import grant_status
from tranche.model import Job, Link, Node, PodShape, Resources, Site, SlotPlan, Utility, WorkerGrant
from tranche.policies import get_policy
from tranche.policies.seeded_choice import uniform
from tranche.policies.slot_table.machine_table import MachineTable
from tranche.policies.slot_table.offer import PricedTable, admit, offer
from tranche.policies.slot_table.pool import Pool
from tranche.policies.slot_table.pooled_table import PooledTable
from tranche.policies.slot_table.price import PriceRange
from tranche.policies.slot_table.slot_job import Amounts, SlotJob
from tranche.policies.slot_table.slot_table_policy import SlotTablePolicy
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.scenario import Scenario, prepared, run
from tranche.simulation.workload.utility_draw import with_utilities
from tranche.simulation_report.plot_style import LIGHT, Theme, heading, legend_below, lines, render

PICTURES = Path(__file__).resolve().parents[1] / "docs/pictures"
NODES, GPUS = 6, 8
HOUR, GIB = 3600.0, 2**30
SPAN_SECONDS = 80 * HOUR
BETWEEN_BITS = 2.5e9
"""Bandwidth between machines, in bit/s."""
POLICIES = (
    "oasis",
    "oasis:price_ratio=1000",
    "pd-ors-like",
    "pd-ors-like:price_ratio=1000",
    "rrh",
    "dorm",
    "drf:users=jobs",
    "fifo:workers=30",
)
HORIZON = 100
"""Slots in which a job may complete, for `lateness`, as in OASiS."""
SCALES = (0.2, 1.0, 10.0)
RATIOS = (1.0, 10.0, 100.0)


def cluster(ratio: float, count: int = NODES) -> tuple[tuple[Node, ...], tuple[Site, ...]]:
    """Return nodes and sites, with that ratio of the bandwidth inside a machine to that between machines."""
    names = [f"m{number:02}" for number in range(count)]
    offered = Resources(32_000 * GPUS // 4, 64 * GIB * GPUS // 2, GPUS, 110)
    nodes = tuple(Node(name, name, offered) for name in names)
    links = {here: {there: Link(BETWEEN_BITS * (ratio if here == there else 1.0)) for there in names} for here in names}
    return nodes, tuple(Site(name, links=links[name]) for name in names)


def jobs_of(count: int, seed: int) -> list[Job]:
    """Draw jobs; each draw depends on seed and number alone."""

    def between(low: float, high: float, number: int, draw_name: str) -> float:
        return low + (high - low) * uniform(seed, number, draw_name)

    jobs = []
    for number in range(count):
        chunks = round(between(4, 32, number, "chunks"))
        hours = exp(between(log(4), log(200), number, "work"))
        gradient_bits = 8e6 * between(30, 575, number, "gradients")
        pod = Resources(
            1000 * round(between(1, 4, number, "cores")), round(between(2, 24, number, "memory")) * GIB, 1, 1
        )
        server = Resources(
            1000 * round(between(1, 4, number, "server cores")), round(between(2, 16, number, "server")) * GIB, 0, 1
        )
        seconds = hours * HOUR / chunks
        batches = max(1, round(seconds / between(2.0, 12.0, number, "batch")))
        jobs.append(
            Job(
                key=f"default/j{number:03}",
                uid=f"j{number}",
                submitted=between(0.0, SPAN_SECONDS, number, "arrival"),
                worker=PodShape(pod),
                chunks=chunks,
                batches_per_chunk=batches,
                step_seconds=seconds / batches,
                gradient_bits=gradient_bits,
                max_workers=chunks,
                server=PodShape(server),
                servers=max(1, ceil(chunks / between(4, 16, number, "served"))),
            )
        )
    return with_utilities(jobs, "hours", seed)


def total_utility(policy: str, count: int, seed: int, ratio: float, machines: int = NODES) -> float:
    """Return the total utility of a simulated run; the processor time of the run goes to standard error."""
    nodes, sites = cluster(ratio, machines)
    begun = process_time()
    result = run(Scenario(tuple(jobs_of(count, seed)), nodes, sites, policy, seed=seed))
    assert not result.unfinished, policy
    utility = summarize(result).total_utility
    line = f"{policy}, {count} jobs, {machines} nodes, seed {seed}: {utility:.1f}, {process_time() - begun:.1f} s"
    print(line, file=sys.stderr, flush=True)
    return utility


def measured(
    policies: Sequence[str], count: int, seeds: Iterable[int], ratio: float, machines: int = NODES
) -> dict[str, list[float]]:
    """Return the total utility by policy and seed."""
    by_policy: dict[str, list[float]] = {policy: [] for policy in policies}
    for seed in seeds:
        for policy in policies:
            by_policy[policy].append(total_utility(policy, count, seed, ratio, machines))
    return by_policy


def lateness(policy: str, count: int, seed: int, machines: int) -> tuple[list[float], list[float]]:
    """Return the JCT less the target of each time-sensitive and of each time-critical job, in hours, in a run.

    The first half of the jobs are time-sensitive, γ2 from 0.01 to 1, the others time-critical, γ2 from 4 to 6.
    """
    jobs = []
    for number, job in enumerate(jobs_of(count, seed)):
        assert job.utility is not None
        low, high = (0.01, 1.0) if number < count // 2 else (4.0, 6.0)
        decay = (low + (high - low) * uniform(seed, number, "decay")) / HOUR
        jobs.append(replace(job, utility=replace(job.utility, decay_per_second=decay)))
    nodes, sites = cluster(1.0, machines)
    result = run(Scenario(tuple(jobs), nodes, sites, policy, seed=seed))
    assert not result.unfinished, policy
    targets = {job.key: job.utility.target_seconds for job in jobs if job.utility is not None}
    late = {job.key: (job.jct_seconds - targets[job.key]) / HOUR for job in result.jobs}
    print(f"{policy}, {count} jobs, {machines} nodes, seed {seed}: done", file=sys.stderr, flush=True)
    halves = jobs[: count // 2], jobs[count // 2 :]
    sensitive, critical = ([late[job.key] for job in half] for half in halves)
    return sensitive, critical


def print_lateness(count: int, seeds: Iterable[int], machines: int) -> None:
    """Print a line for each policy: mean and standard deviation of both kinds of jobs."""
    print("| policy | time-sensitive: mean | standard deviation | time-critical: mean | standard deviation |")
    print("|:--|--:|--:|--:|--:|")
    for policy in (name for name in POLICIES if "price_ratio" not in name):
        with_options = f"{policy}:horizon={HORIZON}" if policy in ("oasis", "pd-ors-like") else policy
        runs = [lateness(with_options, count, seed, machines) for seed in seeds]
        cells = []
        for kind in zip(*runs, strict=True):
            hours = [late for run in kind for late in run]
            cells += [f"{fmean(hours):+.1f} h", f"{pstdev(hours):.1f} h"]
        print(f"| `{policy}` | {' | '.join(cells)} |", flush=True)


def nodes_for(count: int, jobs_per_node: float) -> int:
    """Return the number of nodes."""
    return max(1, round(count / jobs_per_node)) if jobs_per_node else NODES


def row(label: object, values: dict[str, list[float]]) -> str:
    """Return a line of a Markdown table: means, and in brackets the mean over seeds of ratios to the first policy."""
    first = next(iter(values.values()))
    cells = []
    for utilities in values.values():
        ratio = fmean(utility / base for utility, base in zip(utilities, first, strict=True))
        cells.append(f"{fmean(utilities):,.0f} (× {ratio:.2f})")
    return f"| {label} | {' | '.join(cells)} |"


def head(first_column: str, policies: Sequence[str]) -> str:
    """Return the head of a Markdown table."""
    return f"| {first_column} | {' | '.join(policies)} |\n|--:|{'--:|' * len(policies)}"


def picture(name: str, title: str, label: str, rows: dict[float, dict[str, list[float]]], *, logarithmic: bool) -> None:
    """Draw total utility by the first column, a line for each policy."""

    def draw(figure: Figure, theme: Theme) -> None:
        heading(figure, title)
        axes = figure.subplots()
        policies = list(next(iter(rows.values())))
        for policy, style in zip(policies, lines(theme), strict=False):
            axes.plot(
                list(rows), [fmean(by_policy[policy]) for by_policy in rows.values()], marker="o", label=policy, **style
            )
        if logarithmic:
            axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("total utility")
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=theme.grid)
        legend_below(figure, axes, len(policies))

    (PICTURES / f"{name}.png").write_bytes(render(draw, LIGHT, 7.2, 4.2))


def drawn_slot_job(number: int) -> SlotJob:
    """Draw a job of many quanta, with parameter servers, for the time of one offer."""

    def between(low: float, high: float, draw_name: str) -> float:
        return low + (high - low) * uniform(1, number, draw_name)

    near = between(0.001, 0.01, "near")
    return SlotJob(
        key=f"j{number}",
        samples=between(500, 5000, "samples"),
        internal_slots=near,
        external_slots=near * between(1.0, 2.0, "far"),
        most_workers=round(between(5, 60, "most")),
        worker=Amounts(round(between(1, 4, "gpus")), round(between(1, 10, "cores")), round(between(2, 32, "memory"))),
        server=Amounts(0.0, round(between(1, 10, "server")), round(between(2, 32, "server memory"))),
        workers_per_server=between(1, 10, "served"),
    )


def default_quanta(kind: str) -> int:
    """Return the number of quanta by default."""
    policy = get_policy(kind)
    assert isinstance(policy, SlotTablePolicy)
    return int(policy.quanta)


def offer_seconds(kind: str, jobs: int, quanta: int) -> list[float]:
    """Return the processor time of each offer, at 100 slots and 80 machines, while jobs fill the table."""
    prices = PriceRange(1e-4, Amounts(60.0, 20.0, 6.0))
    machines = {f"h{number:02}": Amounts(16.0, 96.0, 384.0) for number in range(40 if kind == "oasis" else 80)}
    servers = {f"k{number:02}": Amounts(0.0, 96.0, 384.0) for number in range(40)}
    table: PricedTable = (
        PooledTable(Pool(machines, prices), Pool(servers, prices))
        if kind == "oasis"
        else MachineTable(Pool(machines, prices), lambda *names: uniform(1, *names))
    )
    seconds = []
    for number in range(jobs):
        utility = Utility(50.0, (0.0, 0.5, 5.0)[number % 3], 5.0 + number % 10)
        values = [utility.at(slot) for slot in range(100)]
        begun = process_time()
        offer(table, drawn_slot_job(number), 0, values, quanta)
        seconds.append(process_time() - begun)
        admit(table, drawn_slot_job(number), 0, values, min(10, quanta))
    return seconds


def table_sizes(policy: str, count: int, seed: int, machines: int) -> tuple[list[int], int]:
    """Return the most bytes of each job's offer and cells in its status, and the most bytes of all jobs at one time."""
    nodes, sites = cluster(1.0, machines)
    simulation = prepared(Scenario(tuple(jobs_of(count, seed)), nodes, sites, policy, seed=seed))
    largest: dict[str, int] = {}
    sizes: dict[str, tuple[SlotPlan, int]] = {}
    most = 0
    while len(simulation.completed) < count:
        simulation.step()
        states = simulation.planner.cluster.jobs
        for key, state in states.items():
            plan = state.slot_plan
            if plan is not None and (key not in sizes or sizes[key][0] is not plan):
                status = grant_status(WorkerGrant(policy, 0, 0.0, None, HOUR, plan))["slots"]
                sizes[key] = plan, len(json.dumps(status, separators=(",", ":")))
                largest[key] = max(largest.get(key, 0), sizes[key][1])
        most = max(most, sum(sizes[key][1] for key in states if key in sizes))
    return list(largest.values()), most


def print_table_sizes(count: int, seeds: Iterable[int], machines: int) -> None:
    """Print a line for each policy."""
    print("| policy | a job: median | most | all jobs at one time: most |\n|:--|--:|--:|--:|")
    for policy in ("oasis", "pd-ors-like"):
        runs = [table_sizes(policy, count, seed, machines) for seed in seeds]
        of_jobs = [size for sizes, _ in runs for size in sizes]
        most = max(most for _, most in runs)
        print(f"| {policy} | {median(of_jobs):,.0f} B | {max(of_jobs):,} B | {most:,} B |", flush=True)


def main() -> None:
    """Measure and print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("utility", "lateness", "scale", "bandwidth", "arrival", "table"))
    parser.add_argument("--jobs", type=int, nargs="+", default=[50, 100], help="numbers of jobs")
    parser.add_argument(
        "--jobs-per-node", type=float, default=0.0, help="as many nodes as have this many jobs each (0: 6 nodes)"
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--quanta", type=int, default=0, help="quanta of an offer (arrival; 0: those of the policy)")
    parser.add_argument("--pictures", action="store_true", help="write docs/pictures")
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    rows: dict[float, dict[str, list[float]]] = {}
    names: tuple[str, ...]
    if options.part == "utility":
        print(head("jobs", POLICIES))
        for count in options.jobs:
            rows[count] = measured(POLICIES, count, seeds, 1.0, nodes_for(count, options.jobs_per_node))
            print(row(count, rows[count]), flush=True)
        if options.pictures:
            picture("oasis", "Total utility by number of jobs (simulated)", "jobs", rows, logarithmic=False)
    elif options.part == "lateness":
        count = options.jobs[-1]
        print_lateness(count, seeds, nodes_for(count, options.jobs_per_node))
    elif options.part == "table":
        count = options.jobs[-1]
        print_table_sizes(count, seeds, nodes_for(count, options.jobs_per_node))
    elif options.part == "scale":
        names = ("oasis", "oasis:price_ratio=100", "oasis:price_ratio=10000", "oasis:price_ratio=1e8", "pd-ors-like")
        print(head("price_scale", names))
        for scale in SCALES:
            by_name = {n: measured((f"{n}:price_scale={scale:g}",), options.jobs[-1], seeds, 1.0) for n in names}
            rows[scale] = {name: next(iter(by_seed.values())) for name, by_seed in by_name.items()}
            print(row(f"{scale:g}", rows[scale]), flush=True)
    elif options.part == "bandwidth":
        names = ("pd-ors-like", "pd-ors-like:locality=off", "pd-ors-like:rounding=ceil", "oasis")
        print(head("inside / between", names))
        for ratio in RATIOS:
            speeds = f"internal={BETWEEN_BITS * ratio:g}:external={BETWEEN_BITS:g}"
            by_name = {
                n: measured((f"{n}:{speeds}" if n != "oasis" else n,), options.jobs[-1], seeds, ratio) for n in names
            }
            rows[ratio] = {name: next(iter(by_seed.values())) for name, by_seed in by_name.items()}
            print(row(f"{ratio:g}", rows[ratio]), flush=True)
        if options.pictures:
            title = "Total utility by bandwidth inside a machine over between machines (simulated)"
            picture("pd-ors", title, "ratio of bandwidths", rows, logarithmic=True)
    else:
        print("| policy | median | p99 | most |\n|:--|--:|--:|--:|")
        for kind in ("oasis", "pd-ors-like"):
            quanta = options.quanta or default_quanta(kind)
            seconds = sorted(offer_seconds(kind, options.jobs[-1], quanta))
            p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
            print(f"| {kind} | {median(seconds):.3f} s | {p99:.3f} s | {seconds[-1]:.3f} s |", flush=True)


if __name__ == "__main__":
    main()
