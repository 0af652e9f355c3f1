"""Cost of an event for the planner with the default policy, by size of the cluster and length of its queue.

``python benchmarks/planner_speed.py`` builds clusters of 8-GPU nodes in sites with links, fills every GPU, lets jobs
wait, and times `Planner.handle`: for arrivals of a job of 115 chunks, and for chunks that end. The jobs have 27, 60 or
115 chunks, data at one site and a parameter server; one in five has workers of several GPUs; durations are log-uniform.
The reactions of pods (start, save and stop) and timers are passed to the planner between the timed events. Exit status
1 if a bar of ranges.toml is missed at 5,000 nodes with 10,000 jobs waiting. ``--picture`` draws
docs/pictures/planner-speed.png; ``--most N`` leaves out clusters of more nodes; with ``--kinds N``, each site has nodes
of N GPU kinds.
"""

import argparse
import gc
import os
import random
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, quantiles
from typing import NamedTuple

import ranges
from tranche.model import Job, Link, Node, PodShape, Resources, Site
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import (
    CloseWindow,
    Event,
    Instruction,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    PlannerSettings,
    SiteChanged,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.policies import get_policy

PICTURE = Path(__file__).resolve().parents[1] / "docs/pictures/planner-speed.png"
GPUS = 8
BAR = (5_000, 10_000)
"""Size that the bar applies to: nodes, and waiting jobs."""
SIZES = ((100, 10_000), (500, 10_000), (1_000, 10_000), (5_000, 100), (5_000, 1_000), BAR, (125_000, 10_000))
CHUNKS, SHORTEST, LONGEST = (27, 60, 115), 600.0, 100_000.0
"""Chunks of a job, and shortest and longest time of one chunk in seconds."""
BATCHES = 58
ARRIVAL_SECONDS = 3.0
"""Time between arrivals, as at 20 a minute."""
LINKS = (1e8, 1e10)
CHUNK_BYTES = 1e9
KIND_LABEL = "nvidia.com/gpu.product"


class Costs(NamedTuple):
    """Wall milliseconds of an event."""

    median: float
    p99: float
    mean: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Costs":
        """Return the costs of the timed events."""
        cuts = quantiles(seconds, n=100, method="inclusive")
        return cls(1000 * cuts[49], 1000 * cuts[98], 1000 * fmean(seconds))


@dataclass(slots=True)
class Cluster:
    """Planner, and the pods of its windows."""

    planner: Planner
    draw: random.Random
    now: float = 0.0
    open: list[tuple[str, int]] = field(default_factory=list)
    """Windows by job and attempt, in any order."""
    places: dict[tuple[str, int], int] = field(default_factory=dict)

    def follow(self, instructions: Iterable[Instruction]) -> None:
        """Carry out the instructions as pods would, at once."""
        instructions = list(instructions)
        while instructions:
            events: list[Event] = []
            for instruction in instructions:
                if isinstance(instruction, OpenWindow):
                    self.places[instruction.job, instruction.window.attempt] = len(self.open)
                    self.open.append((instruction.job, instruction.window.attempt))
                    events.append(WorkerStarted(instruction.job, instruction.window.attempt, self.now))
                elif isinstance(instruction, CloseWindow):
                    self.forget((instruction.job, instruction.window.attempt))
                    events.append(WorkerEnded(instruction.job, instruction.window.attempt, "Preempted", self.now, {}))
            instructions = self.planner.handle_all(events, self.now) if events else []

    def tick(self) -> None:
        """Process the timers that are due."""
        while (due := self.planner.next_wakeup()) is not None and due <= self.now:
            self.follow(self.planner.handle(Tick(), self.now))

    def forget(self, window: tuple[str, int]) -> None:
        """Remove a window that is no longer open."""
        place, last = self.places.pop(window), self.open.pop()
        if last != window:
            self.open[place] = last
            self.places[last] = place

    def timed(self, event: Event) -> tuple[float, bool]:
        """Return the seconds that the planner takes for an event, and whether it preempted a job."""
        self.tick()
        began = time.perf_counter()
        instructions = self.planner.handle(event, self.now)
        seconds = time.perf_counter() - began
        self.follow(instructions)
        return seconds, any(isinstance(instruction, CloseWindow) for instruction in instructions)


def job(number: int, now: float, sites: Sequence[str], draw: random.Random, chunks: int | None = None) -> Job:
    """Return a job of the mix, or one with the given chunks that may be shorter, so that it preempts."""
    gpus = 1 if chunks else draw.choices((1, 2, 4, 8), (80, 10, 5, 5))[0]
    shortest = SHORTEST / 10 if chunks else SHORTEST
    seconds = shortest * (LONGEST / shortest) ** draw.random()
    shape = PodShape(Resources(1000 * draw.randint(1, 4), draw.randint(3, 6) * 10**9, gpus, 1))
    parts = chunks or draw.choice(CHUNKS)
    name = f"speed/job-{number}"
    return Job(
        key=name,
        uid=name,
        submitted=now,
        order=number,
        worker=shape,
        chunks=parts,
        max_workers=parts,
        batches_per_chunk=BATCHES,
        step_seconds=seconds / BATCHES,
        data_site=draw.choice(sites),
        chunk_bytes=CHUNK_BYTES,
        server=PodShape(Resources(1000, 10**9, 0, 1)),
        servers=1,
        gradient_bits=1e6,
    )


def filled(nodes: int, waiting: int, policy: str, seed: int, kinds: int) -> Cluster:
    """Return a cluster of `nodes` nodes whose GPUs all train, with `waiting` further jobs."""
    draw = random.Random(f"{seed} {nodes} {waiting}")
    names = [f"site-{number:02d}" for number in range(max(5, min(50, nodes // 20), nodes // 500))]
    speeds = {f"kind-{kind}": 1.0 / (1 + kind) for kind in range(kinds)}
    settings = PlannerSettings(gpu_kinds=GpuKinds((KIND_LABEL,), speeds))
    cluster = Cluster(Planner(get_policy(policy), settings), draw)
    links = {name: {name: Link(10e9)} for name in names}
    for site in names:
        for other_site in names:
            if site < other_site:
                link = Link(LINKS[0] * (LINKS[1] / LINKS[0]) ** draw.random())
                links[site][other_site] = links[other_site][site] = link
    offered = Resources(128_000, 2**40, GPUS, 110)
    events: list[Event] = [SiteChanged(Site(name, links=links[name])) for name in names]
    for i in range(nodes):
        labels = {KIND_LABEL: f"kind-{i // len(names) % kinds}"}
        events.append(NodeChanged(Node(f"node-{i:06d}", names[i % len(names)], offered, labels=labels)))
    cluster.planner.handle_all(events, 0.0)
    jobs: list[Event] = []
    gpus = 0
    while gpus < nodes * GPUS:
        new = job(len(jobs), 0.0, names, draw)
        jobs.append(JobSubmitted(new))
        gpus += new.gpus * new.chunks
    jobs += [JobSubmitted(job(len(jobs) + i, 0.0, names, draw)) for i in range(waiting)]
    cluster.follow(cluster.planner.handle_all(jobs, 0.0))
    cluster.now = 2 * 8 * CHUNK_BYTES / LINKS[0]
    cluster.tick()  # all copies are there
    return cluster


def arrivals(cluster: Cluster, count: int) -> tuple[list[float], int]:
    """Return the seconds for each of `count` arrivals, and how many preempted."""
    names = list(cluster.planner.cluster.sites)
    first = len(cluster.planner.cluster.jobs)
    times, preempted = [], 0
    for number in range(count):
        cluster.now += ARRIVAL_SECONDS
        arrival = job(first + number, cluster.now, names, cluster.draw, chunks=CHUNKS[-1])
        seconds, preempts = cluster.timed(JobSubmitted(arrival))
        times.append(seconds)
        preempted += preempts
    return times, preempted


def ends(cluster: Cluster, count: int) -> list[float]:
    """Return the seconds for each of `count` chunks that end, at the rate at which they would."""
    times = []
    for _ in range(count):
        cluster.now += SHORTEST / len(cluster.open)
        window = cluster.draw.choice(cluster.open)
        cluster.forget(window)
        times.append(cluster.timed(WorkerEnded(*window, "Succeeded", cluster.now))[0])
    return times


def measured(nodes: int, waiting: int, options: argparse.Namespace) -> tuple[Costs, Costs]:
    """Measure and print the costs of arrivals and of ends."""
    few = nodes > BAR[0]
    began = time.perf_counter()
    cluster = filled(nodes, waiting, options.policy, options.seed, options.kinds)
    built = time.perf_counter() - began
    gc.collect()
    gc.freeze()
    of_ends = Costs.of(ends(cluster, 100 if few else options.ends))
    arrival_seconds, preempted = arrivals(cluster, 20 if few else options.arrivals)
    of_arrivals = Costs.of(arrival_seconds)
    gc.unfreeze()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = "".join(f"{value:>9.2f}" for value in (*of_arrivals, *of_ends))
    print(f"{nodes:>7,}{nodes * GPUS:>11,}{waiting:>9,}{figures}", end="")
    print(f"{100 * preempted / len(arrival_seconds):>11.0f}{built:>9.0f}{memory:>8.0f}", flush=True)
    return of_arrivals, of_ends


def draw(by_size: dict[tuple[int, int], tuple[Costs, Costs]], path: Path) -> None:
    """Draw medians and 99th percentiles over the nodes, at the longest queue; both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    longest = max(waiting for _, waiting in by_size)
    sizes = sorted(nodes for nodes, waiting in by_size if waiting == longest)
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for place, (panel, name) in enumerate(zip(panels, ("a job of 115 chunks arrives", "a chunk ends"), strict=True)):
        for kind in ("median", "p99"):
            costs = [getattr(by_size[nodes, longest][place], kind) for nodes in sizes]
            panel.plot([nodes * GPUS for nodes in sizes], costs, marker="o", markersize=4, label=kind)
        panel.set(xscale="log", yscale="log", xlabel=f"GPUs, all busy; {longest:,} jobs wait", title=name)
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.legend(frameon=False)
    panels[0].set_ylabel("ms")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def judged(arrival: Costs, end: Costs) -> bool:
    """Print the figures against their bounds; return whether all keep them."""
    return ranges.all_kept(
        {
            "planner, arrival, median ms": arrival.median,
            "planner, arrival, p99 ms": arrival.p99,
            "planner, end, p99 ms": end.p99,
        }
    )


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="chunk")
    parser.add_argument("--arrivals", type=int, default=200)
    parser.add_argument("--ends", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", type=int, default=1, help="GPU kinds of each site; kind k has a speed of 1/k")
    parser.add_argument("--most", type=int, default=SIZES[-1][0], metavar="NODES", help="largest cluster to measure")
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        action="append",
        metavar=("NODES", "WAITING"),
        help="measure only this size; repeatable",
    )
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    sizes = [(nodes, waiting) for nodes, waiting in options.size or SIZES if nodes <= options.most]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; policy {options.policy}, seed {options.seed}; ms")
    heading = "".join(f"{text:>9}" for text in ("arrival", "p99", "mean", "end", "p99", "mean"))
    print(f"{'nodes':>7}{'GPUs':>11}{'waiting':>9}{heading}{'preempt, %':>11}{'built, s':>9}{'MiB':>8}")
    by_size = {size: measured(*size, options) for size in sizes}
    if options.picture:
        draw(by_size, PICTURE)
    sys.exit(BAR in by_size and not judged(*by_size[BAR]))


if __name__ == "__main__":
    main()
