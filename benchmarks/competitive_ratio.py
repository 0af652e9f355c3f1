"""Ratio of `chunk-faithful` to optima of small instances, and the effect of faster workers, by ε.

Run with ``python benchmarks/competitive_ratio.py``. Each ratio divides the weighted flow
F = Σ (1/D_j)(C_jd − r_j) at speed 1 + ε by an optimum at speed 1: OPT_LP⁺ of a linear program (at most three jobs, 1 to
10 workers; solved from below, so the ratio is at most too large) and OPT of an exhaustive search (two to five chunks,
one or two workers). The last table simulates drawn jobs of the preset jsac-cloud at speed 1 + ε; arrivals are Poisson.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.flow_optimum import (
    augmented,
    drawn_exact,
    drawn_relaxed,
    least_flow_seconds,
    relaxed_flow_seconds,
    weighted_flow_seconds,
)
from tranche.model import Job, Node
from tranche.simulation.job_log import TraceRow
from tranche.simulation.recipe import DrawnJobs, PresetCluster, Recipe, RowsLog
from tranche.simulation.scenario import run

EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
POLICIES = ("chunk-faithful", "chunk-faithful:refresh=printed")
LOAD, CHUNK_SCALE = 0.9, 0.1


@dataclass(frozen=True, slots=True)
class Instance:
    """Jobs and workers, with an optimum of F at speed 1."""

    jobs: list[Job]
    nodes: list[Node]
    optimum: float


def instances(kind: str, count: int, seed: int) -> list[Instance]:
    """Draw `count` instances, "relaxed" or "exact"."""
    drawn = []
    for number in range(count):
        draw = random.Random(f"{seed}/{kind}/{number}")
        if kind == "relaxed":
            jobs, nodes = drawn_relaxed(draw)
            drawn.append(Instance(jobs, nodes, relaxed_flow_seconds(jobs, nodes)[0]))
        else:
            jobs, nodes = drawn_exact(draw)
            drawn.append(Instance(jobs, nodes, least_flow_seconds(jobs, nodes)))
    return drawn


def ratios(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return mean and worst F over the optimum, and the bound, by ε."""
    drawn = instances(kind, count, seed)
    rows = []
    for epsilon in EPSILONS:
        quotients = [weighted_flow_seconds(augmented(case.jobs, case.nodes, epsilon)) / case.optimum for case in drawn]
        bound = (1 + 1 / epsilon) * (2 if kind == "exact" else 1) if epsilon else inf
        rows.append({"epsilon": epsilon, "mean": fmean(quotients), "worst": max(quotients), "bound": bound})
    return rows


def speeds(jobs: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return average JCT and F of drawn jobs of jsac-cloud, by policy and ε, mean over the seeds."""
    rows = []
    for policy in POLICIES:
        for epsilon in EPSILONS:
            jcts, flows = [], []
            for seed in seeds:
                draw = random.Random(f"{seed}/arrivals")
                arrivals = accumulate(draw.expovariate(1.0) for _ in range(jobs))
                log = RowsLog(tuple(TraceRow(str(i), at, 1, 1.0) for i, at in enumerate(arrivals)))
                drawn = DrawnJobs(log, jobs, CHUNK_SCALE)
                recipe = Recipe(drawn, PresetCluster("jsac-cloud"), speed_factor=1 + epsilon)
                result = run(recipe.build(policy, seed, LOAD))
                jcts.append(result.average_jct_seconds)
                flows.append(weighted_flow_seconds(result))
            rows.append(
                {"policy": policy, "epsilon": epsilon, "jct_seconds": fmean(jcts), "flow_seconds": fmean(flows)}
            )
    return rows


def table(title: str, columns: dict[str, str], rows: list[dict[str, Any]]) -> str:
    """Format a table in Markdown.

    Args:
        title: Text above the table.
        columns: Key of a row and format, by heading.
        rows: Rows from the functions above.
    """
    lines = [title, "", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for row in rows:
        cells = []
        for heading in columns:
            key, form = columns[heading].split("|")
            value = row[key]
            cells.append("none" if value == inf else format(value, form))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=300, help="instances of each kind")
    parser.add_argument("--jobs", type=int, default=30, help="jobs of the drawn instance of jsac-cloud")
    parser.add_argument("--seed", type=int, default=1, help="first seed; the simulation takes three")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to write the figures to, besides the output")
    options = parser.parse_args()
    if min(options.instances, options.jobs) < 1:
        parser.error("--instances and --jobs must be at least 1")
    seeds = [options.seed + i for i in range(3)]
    figures = {
        "relaxed": ratios("relaxed", options.instances, options.seed),
        "exact": ratios("exact", options.instances, options.seed),
        "speeds": speeds(options.jobs, seeds),
    }
    ratio = {"ε": "epsilon|g", "mean": "mean|.3f", "worst": "worst|.3f"}
    scope = f"{options.instances} instances, seed {options.seed}"
    print(table(f"F at speed 1 + ε over OPT_LP⁺, {scope}", {**ratio, "1 + 1/ε": "bound|.1f"}, figures["relaxed"]))
    print(table(f"F at speed 1 + ε over OPT, {scope}", {**ratio, "2 (1 + 1/ε)": "bound|.1f"}, figures["exact"]))
    columns = {"policy": "policy|", "ε": "epsilon|g", "average JCT, s": "jct_seconds|,.0f", "F, s": "flow_seconds|,.0f"}
    where = f"jsac-cloud, {options.jobs} jobs, chunks × {CHUNK_SCALE:g}, load {LOAD:g}, seeds {seeds[0]} to {seeds[-1]}"
    print(table(f"Speed 1 + ε: {where}", columns, figures["speeds"]))
    if options.json is not None:
        facts = {"instances": options.instances, "jobs": options.jobs, "seeds": seeds, **figures}
        options.json.write_text(json.dumps(facts, indent=2).replace("Infinity", "null") + "\n")


if __name__ == "__main__":
    main()
