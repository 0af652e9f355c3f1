"""Cost of a decision by number of waiting jobs: the queue policies must not look at all of them.

``python benchmarks/simulator_curve.py`` fills a pool of 512 GPUs, lets a number of jobs wait, and times the instants
that follow (arrivals and ends, one of each a second or so), the planner's work and the engine's together. It prints CPU
microseconds (the median; the mean in brackets), and with ``--picture`` draws docs/pictures/simulator-curve.png. It
exits with 1 if a mean grows by more than the bound of ranges.toml.
"""

import argparse
import gc
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import ranges
from tranche.planner import Planner
from tranche.policies import get_policy
from tranche.simulation.cluster_spec import pool
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.simulation.job_log import TraceRow
from tranche.simulation.workload.from_log import gang_jobs

GPUS = 512
WAITING = (1_000, 3_000, 10_000, 30_000, 100_000)
POLICIES = ("srsf", "srtf", "fifo-skip", "las", "tiresias", "gittins", "drf")
PICTURE = Path(__file__).resolve().parents[1] / "docs/pictures/simulator-curve.png"
TENANTS = 15
"""Number of tenants, as many as Philly has virtual clusters."""


class Costs(NamedTuple):
    """CPU microseconds of a decision."""

    median: float
    mean: float


def crowd(waiting: int, further: int, seed: int) -> list[TraceRow]:
    """Return `waiting` jobs at once, then further ones, two a second: widths and durations spread as in logs."""
    draw = random.Random(seed)
    rows = []
    for number in range(waiting + further):
        gpus = draw.choices((1, 2, 4, 8, 16, 32), (60, 10, 10, 15, 3, 2))[0]
        seconds = 1 + draw.lognormvariate(6.0, 2.0)  # no whole number: each end is an instant of its own
        submitted = 0.0 if number < waiting else 0.5 * (number - waiting + 1)
        rows.append(TraceRow(str(number), submitted, gpus, seconds, f"vc-{draw.randrange(TENANTS)}"))
    return rows


def decisions(policy: str, waiting: int, count: int, seed: int) -> list[float]:
    """Return CPU microseconds of `count` instants while about `waiting` jobs wait."""
    cluster = pool(GPUS)
    simulation = Simulation(Planner(get_policy(policy)), keep_history=False, forget_finished=True)
    prepare(simulation, gang_jobs(crowd(waiting, count, seed), cluster.nodes), cluster.nodes, cluster.sites)
    for _ in range(count // 10):  # the crowd enters, and the first ones start and end
        simulation.step()
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(count):
        began = time.process_time_ns()
        simulation.step()
        times.append((time.process_time_ns() - began) / 1000)
    gc.unfreeze()
    return times


def draw(curves: dict[str, list[Costs]], waiting: list[int], path: Path) -> None:
    """Draw medians and means, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for panel, name in zip(panels, Costs._fields, strict=True):
        for policy, costs in curves.items():
            panel.plot(waiting, [getattr(cost, name) for cost in costs], marker="o", markersize=4, label=policy)
        panel.set(xscale="log", yscale="log", xlabel="jobs waiting", title=name)
        panel.grid(visible=True, which="major", alpha=0.3)
    panels[0].set_ylabel("CPU µs a decision")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=len(curves), frameon=False, loc="lower center")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def judged(curves: dict[str, list[Costs]]) -> bool:
    """Print the largest growth of a mean against its bound; return whether it keeps the bound."""
    growth = max(costs[-1].mean / costs[0].mean for costs in curves.values())
    fine, line = ranges.judge("growth of a mean decision, 1,000 to 100,000 waiting", growth)
    print(line)
    return fine


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--waiting", nargs="+", type=int, default=list(WAITING))
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {GPUS} GPUs, {options.decisions} decisions each")
    print(f"{'jobs waiting':<12}{''.join(f'{count:>16,}' for count in options.waiting)}{'growth':>9}")
    curves: dict[str, list[Costs]] = {}
    for policy in options.policies:
        print(f"{policy:<12}", end="", flush=True)
        curves[policy] = []
        for waiting in options.waiting:
            times = decisions(policy, waiting, options.decisions, options.seed)
            cost = Costs(statistics.median(times), statistics.fmean(times))
            curves[policy].append(cost)
            print(f"{f'{cost.median:.0f} ({cost.mean:.0f})':>16}", end="", flush=True)
        print(f"{curves[policy][-1].mean / curves[policy][0].mean:>9.2f}", flush=True)
    if options.picture:
        draw(curves, options.waiting, PICTURE)
    sys.exit(not judged(curves))


if __name__ == "__main__":
    main()
