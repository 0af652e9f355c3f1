"""One measured line for each option that takes up an idea of the related work, with and without the option.

``python benchmarks/related_options.py`` prints the average JCT with an option over that without it, and the number of
preempted workers, both from the same jobs and seeds (about two minutes of CPU). The lines are:

* belief: the work left of jobs as a belief, against the last reports alone, where a restart costs 60 s. Workers do not
  report in the simulator, so the last report is the last end of a window.
* split: the rest of a lagging chunk is taken over, where the speeds of nodes vary (log-normal, σ) and are not known;
  drawn jobs.
* grouped: gangs with a parameter server inside well-connected sites, on two pairs of sites with 10 Gbit/s inside a pair
  and 0.1 Gbit/s between them. The jobs are drawn; the setting is made to show the effect.
* selector: the policy selector against the best and the worst of its members. `benchmarks/selector_choice.py` has all
  logs.

``--only TEXT`` takes the lines whose names contain it, ``--seeds`` the seeds of what is drawn.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from job_logs import log_rows
from tranche.model import Job, Link, Node, PodShape, Resources, Site
from tranche.policies.queue.selector import Selector
from tranche.simulation.cluster_spec import pool
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import gang_jobs

SEEDS = (1, 2, 3, 4, 5)
RESTART_SECONDS = 60.0
PAIRS = (("a", "b"), ("c", "d"))
FAST, SLOW = Link(10e9), Link(100e6)
JOBS = 60
"""Number of drawn jobs."""
LOGGED_JOBS = 1500
"""Number of jobs of each log, from its first one on."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one policy, means over the seeds."""

    jct_seconds: float
    preempted: float


def of_log(log: str, gpus: int, policy: str, restart_seconds: float = 0.0) -> Figures:
    """Simulate the first jobs of a log as gangs."""
    cluster = pool(gpus)
    drawn = tuple(gang_jobs(log_rows(log)[:LOGGED_JOBS], cluster.nodes))
    result = run(Scenario(drawn, cluster.nodes, cluster.sites, policy, restart_seconds=restart_seconds))
    return Figures(result.average_jct_seconds, sum(job.preemptions for job in result.jobs))


def of_chunked(policy: str, speed_sigma: float, seeds: Sequence[int]) -> Figures:
    """Simulate drawn chunked jobs on eight nodes of one GPU."""
    nodes = tuple(Node(f"n{number}", "edge", Resources(64_000, 2**38, 1, 110)) for number in range(8))
    results = [
        run(Scenario(tuple(chunked(seed)), nodes, (Site("edge"),), policy, seed=seed, speed_sigma=speed_sigma))
        for seed in seeds
    ]
    return mean_of(results)


def chunked(seed: int) -> Iterator[Job]:
    """Draw jobs of 4 to 24 chunks, which keep eight workers busy for about 70 % of the time."""
    random, now = Random(f"chunks {seed}"), 0.0
    for number in range(JOBS):
        now += random.expovariate(1 / 330.0)
        chunks = random.choice((4, 8, 12, 24))
        yield Job(
            f"default/job-{number}",
            f"job-{number}",
            now,
            PodShape(Resources(1000, 2**30, 1, 1)),
            chunks=chunks,
            batches_per_chunk=100,
            step_seconds=random.uniform(0.5, 2.5),
            max_workers=chunks,
        )


def mean_of(results: Sequence[SimulationResult]) -> Figures:
    """Return the means over runs."""
    return Figures(
        fmean(result.average_jct_seconds for result in results),
        fmean(sum(job.preemptions for job in result.jobs) for result in results),
    )


def of_pairs(policy: str, seeds: Sequence[int]) -> Figures:
    """Simulate gangs with a parameter server on the two pairs of sites."""
    every = [site for pair in PAIRS for site in pair]
    sites = tuple(
        Site(
            site_name,
            links={
                other: FAST if {site_name, other} in map(set, PAIRS) else SLOW for other in every if other != site_name
            },
        )
        for site_name in every
    )
    nodes = tuple(Node(f"{site}{n}", site, Resources(64_000, 2**38, 4, 110)) for site in every for n in range(2))
    results = [run(Scenario(tuple(gangs(seed)), nodes, sites, policy, seed=seed)) for seed in seeds]
    return mean_of(results)


def gangs(seed: int) -> Iterator[Job]:
    """Draw gangs of 2 to 8 workers with gradients of 5 MB."""
    random, now = Random(f"gangs {seed}"), 0.0
    for number in range(JOBS):
        now += random.expovariate(1 / 150.0)
        members = random.choice((2, 3, 4, 6, 8))
        yield Job(
            f"default/gang-{number}",
            f"gang-{number}",
            now,
            PodShape(Resources(1000, 2**30, 1, 1)),
            chunks=members,
            batches_per_chunk=random.randint(200, 2000),
            step_seconds=0.5,
            max_workers=members,
            is_gang=True,
            gradient_bits=4e7,
            servers=1,
            server=PodShape(Resources(1000, 2**30, 0, 1)),
        )


def line(name: str, measure: Callable[[str], Figures], without: str, option: str) -> str:
    """Return a row of the table."""
    before, after = measure(without), measure(option)
    ratio = after.jct_seconds / before.jct_seconds
    return f"{name:<46}{option:<26}{ratio:>9.4f}{before.preempted:>11,.0f}{after.preempted:>11,.0f}"


def selector_line(log: str, gpus: int) -> str:
    """Return a row about the selector against its members."""
    members = [of_log(log, gpus, member).jct_seconds for member in Selector().members.split("+")]
    ours = of_log(log, gpus, "selector")
    text = f"selector / best, / worst: {log} @{gpus}"
    return f"{text:<72}{ours.jct_seconds / min(members):>9.4f}{ours.jct_seconds / max(members):>9.4f}"


def rows(seeds: Sequence[int]) -> dict[str, Callable[[], str]]:
    """Return the lines of the table by name."""

    def belief(policy: str) -> Figures:
        return of_log("elasticflow_cluster06", 128, policy, restart_seconds=RESTART_SECONDS)

    by_name: dict[str, Callable[[], str]] = {
        "belief": lambda: line("belief: elasticflow_cluster06 @128, ρ = 60 s", belief, "chunk:belief=0", "chunk")
    }
    for sigma in (0.3, 0.6):

        def split(policy: str, sigma: float = sigma) -> Figures:
            return of_chunked(policy, sigma, seeds)

        by_name[f"split {sigma}"] = lambda split=split, sigma=sigma: line(  # type: ignore[misc]
            f"split: 8 nodes, drawn chunked jobs, σ = {sigma}", split, "chunk", "chunk:split=1.5"
        )
    by_name["grouped"] = lambda: line(
        "grouped: two pairs of sites", lambda policy: of_pairs(policy, seeds), "chunk", "chunk:grouped=1"
    )
    for log, gpus in (("elasticflow_cluster06", 128), ("helios_venus_vcvGl", 160)):
        by_name[f"selector {log}"] = lambda log=log, gpus=gpus: selector_line(log, gpus)  # type: ignore[misc]
    return by_name


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{'setting':<46}{'with':<26}{'JCT with':>9}{'preempted':>11}{'preempted':>11}")
    print(f"{'':<46}{'':<26}{'/ without':>9}{'without':>11}{'with':>11}")
    for name, row in rows(options.seeds).items():
        if options.only in name:
            print(row(), flush=True)


if __name__ == "__main__":
    main()
