"""Learns the weights of the policy `selector` by simulation, and compares it with its members on other logs.

``python benchmarks/selector_weights.py`` simulates three logs, each with declared sizes and with sizes that no policy
knows, under each member of the selector. Then it searches: it begins with the best rule of one member for declared and
one for unknown sizes, and adds normal noise to the weights of the best candidate so far (seeded; the noise shrinks as
candidates fail). The figure to minimise is the mean plus the largest ratio of a candidate's average JCT to that of the
best member. Last, it simulates the best weights, or with ``--weights`` the given ones and without a search, on three
logs that the search did not see, and prints ratios to the best and to the worst member there. Exit status 1 if a ratio
to the best exceeds 1.03, whether sizes are declared or unknown. About five minutes of CPU.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from statistics import fmean

from job_logs import log_rows
from tranche.policies.queue.selector import FEATURES, Selector
from tranche.simulation.cluster_spec import pool
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import gang_jobs

LEARNT_ON = {"elasticflow_cluster01": 64, "elasticflow_cluster02": 128, "tiresias_60": 16}
"""GPUs by log; tiresias_60 has less than its own 64, on which no job waits."""
TESTED_ON = {"elasticflow_cluster04": 512, "elasticflow_cluster06": 128, "helios_venus_vcvGl": 160}
MEMBERS = Selector().members.split("+")
SHRINK = 0.9
BAR = 1.03


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs of a log on its GPUs."""

    log: str
    gpus: int
    jobs: int
    unsized: float
    """Share of jobs of unknown size."""

    @property
    def name(self) -> str:
        """Name for the table."""
        return f"{self.log} @{self.gpus}, sizes {'unknown' if self.unsized else 'declared'}"


@cache
def average(case: Case, policy: str) -> float:
    """Return the average JCT in seconds."""
    cluster = pool(case.gpus)
    jobs = tuple(gang_jobs(log_rows(case.log)[: case.jobs], cluster.nodes))
    return run(Scenario(jobs, cluster.nodes, cluster.sites, policy, seed=1, unsized=case.unsized)).average_jct_seconds


def cases(logs: dict[str, int], jobs: int) -> list[Case]:
    """Return each log with declared and with unknown sizes."""
    return [Case(log, gpus, jobs, unsized) for log, gpus in logs.items() for unsized in (0.0, 1.0)]


def policy_of(weights: Sequence[float]) -> str:
    """Return the selector with these weights, as text for command lines."""
    return f"selector:weights={'/'.join(f'{weight:.2f}' for weight in weights)}"


def worth(weights: Sequence[float], learnt: Sequence[Case]) -> float:
    """Return the mean plus the largest ratio to the best member."""
    policy = policy_of(weights)
    ratios = [average(case, policy) / min(average(case, one) for one in MEMBERS) for case in learnt]
    return fmean(ratios) + max(ratios)


def start(learnt: Sequence[Case]) -> list[float]:
    """Return the weights of the best rule of the form: one member if sizes are declared, another one if they are not.

    On logs where all sizes are declared or none, such a rule is one member, so it needs no simulation of its own.
    """

    def ratios(declared: str, unknown: str) -> list[float]:
        chosen = {case: unknown if case.unsized else declared for case in learnt}
        return [average(case, one) / min(average(case, each) for each in MEMBERS) for case, one in chosen.items()]

    pairs = [(fmean(ratios(*pair)) + max(ratios(*pair)), pair) for pair in product(MEMBERS, MEMBERS)]
    declared, unknown = min(pairs)[1]
    weights = dict.fromkeys(product(MEMBERS, range(FEATURES)), 0.0)
    weights[declared, 0] += 1.0
    weights[unknown, FEATURES - 1] += 2.0
    return list(weights.values())


def search(learnt: Sequence[Case], candidates: int, seed: int) -> Iterator[tuple[int, float, list[float]]]:
    """Yield number, worth and weights of the best candidate so far, whenever a better one was found."""
    random, width, best = Random(seed), 1.0, start(learnt)
    value = worth(best, learnt)
    yield 0, value, best
    for number in range(1, candidates + 1):
        weights = [round(weight + random.gauss(0.0, width), 2) for weight in best]
        found = worth(weights, learnt)
        if found < value - 1e-6:
            value, best = found, weights
            yield number, value, best
        else:
            width *= SHRINK


def row(case: Case, policy: str) -> tuple[str, float]:
    """Return a line of the table, and the ratio to the best member."""
    members = [average(case, one) for one in MEMBERS]
    ours = average(case, policy)
    figures = "".join(f"{value:>11,.0f}" for value in (*members, ours))
    return f"{case.name:<48}{figures}{ours / min(members):>9.3f}{ours / max(members):>9.3f}", ours / min(members)


def main() -> None:
    """Search, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=6000, help="first jobs of a log to learn on")
    parser.add_argument("--test-jobs", type=int, default=2000, help="first jobs of a log to compare on")
    parser.add_argument("--weights", help="weights to compare, separated by slashes, in place of a search")
    options = parser.parse_args()
    policy = f"selector:weights={options.weights}" if options.weights else Selector.name
    if not options.weights:
        for number, value, weights in search(cases(LEARNT_ON, options.jobs), options.candidates, options.seed):
            policy = policy_of(weights)
            print(f"candidate {number}: {value:.4f}  {policy}", flush=True)
    names = "".join(f"{name:>11}" for name in (*MEMBERS, "selector"))
    print(f"{'average JCT, s':<48}{names}{'/ best':>9}{'/ worst':>9}")
    largest = {"declared": 0.0, "unknown": 0.0}
    for case in cases(TESTED_ON, options.test_jobs):
        line, ratio = row(case, policy)
        sizes = "unknown" if case.unsized else "declared"
        largest[sizes] = max(largest[sizes], ratio)
        print(line, flush=True)
    for sizes, ratio in largest.items():
        print(f"largest ratio to the best member, sizes {sizes}: {ratio:.3f}, bar {BAR}")
    sys.exit(max(largest.values()) > BAR)


if __name__ == "__main__":
    main()
