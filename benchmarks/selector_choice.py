"""Compares the policy `selector` with each of its members on job logs.

``python benchmarks/selector_choice.py`` simulates logs, each with declared sizes and with sizes that no policy knows,
under each member and under the selector, and prints ratios to the best and to the worst member. The selector was
developed on the first logs of the table; the others test it. Exit status 1 if a ratio to the best member exceeds 1.03
on a log of the test, whether sizes are declared or unknown. About ten minutes of CPU. ``--only TEXT`` takes the logs
whose names contain it, and ``--policy`` a selector with other options.
"""

import argparse
import sys
from dataclasses import dataclass
from functools import cache

from job_logs import log_rows
from tranche.policies import get_policy
from tranche.policies.queue.selector import Selector
from tranche.simulation.cluster_spec import pool
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import gang_jobs

BAR = 1.03


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive jobs of a log, and the GPUs for them."""

    log: str
    gpus: int
    first: int = 0
    jobs: int = 2000

    @property
    def name(self) -> str:
        """Name for the table."""
        return f"{self.log}{f' from {self.first:,}' if self.first else ''} @{self.gpus}"


DEVELOPED_ON = (
    Part("elasticflow_cluster01", 64),
    Part("elasticflow_cluster02", 128),
    Part("elasticflow_cluster02", 128, 2000),
    Part("tiresias_60", 16),
)
"""tiresias_60 has less than its own 64 GPUs, on which no job waits."""
TESTED_ON = (
    Part("elasticflow_cluster04", 512),
    Part("elasticflow_cluster06", 128),
    Part("helios_venus_vcvGl", 160),
    Part("philly", 256),
    Part("philly", 512, 20_000),
    Part("elasticflow_cluster04", 512, 6000),
    Part("philly", 256, 40_000),
)
"""The GPUs for philly give these jobs a load of 0.96 and 0.87; its first ones would leave half of its 512 GPUs idle."""


@cache
def average(part: Part, unsized: float, policy: str) -> float:
    """Return the average JCT in seconds.

    Args:
        part: The jobs and the GPUs.
        unsized: Share of jobs of unknown size.
        policy: Policy with its options.
    """
    cluster = pool(part.gpus)
    jobs = tuple(gang_jobs(log_rows(part.log)[part.first : part.first + part.jobs], cluster.nodes))
    return run(Scenario(jobs, cluster.nodes, cluster.sites, policy, seed=1, unsized=unsized)).average_jct_seconds


def row(part: Part, unsized: float, policy: str, members: tuple[str, ...]) -> tuple[str, float]:
    """Return a line of the table, and the ratio to the best member."""
    averages = [average(part, unsized, member) for member in members]
    ours = average(part, unsized, policy)
    figures = "".join(f"{value:>11,.0f}" for value in (*averages, ours))
    name = f"{part.name}, sizes {'unknown' if unsized else 'declared'}"
    return f"{name:<52}{figures}{ours / min(averages):>9.3f}{ours / max(averages):>9.3f}", ours / min(averages)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="text in the names of the logs to simulate")
    parser.add_argument("--policy", default=Selector.name, help="the selector with its options")
    options = parser.parse_args()
    policy = get_policy(options.policy)
    if not isinstance(policy, Selector):
        parser.error("--policy: not a selector")
    members = tuple(policy.members.split("+"))
    largest: dict[str, float] = {}
    for title, parts in (("developed on", DEVELOPED_ON), ("tested on", TESTED_ON)):
        names = "".join(f"{name:>11}" for name in (*members, "selector"))
        print(f"{f'average JCT in s, {title}':<52}{names}{'/ best':>9}{'/ worst':>9}")
        for part in parts:
            for sizes, unsized in (("declared", 0.0), ("unknown", 1.0)) if options.only in part.name else ():
                line, ratio = row(part, unsized, options.policy, members)
                if parts is TESTED_ON:
                    largest[sizes] = max(largest.get(sizes, 0.0), ratio)
                print(line, flush=True)
    for sizes, ratio in largest.items():
        print(f"largest ratio to the best member in the test, sizes {sizes}: {ratio:.3f}, bar {BAR}")
    sys.exit(max(largest.values(), default=0.0) > BAR)


if __name__ == "__main__":
    main()
