"""Optimum in hindsight over the total utility of OASiS, on small slot tables.

``python benchmarks/utility_optimum.py`` offers 10 drawn jobs, in order of arrival, to a table of 10 slots with 3 to 12
servers for workers and as many for parameter servers, and divides the optimum by the total utility of the admitted
jobs. The optimum is that of an integer programme (HiGHS), with the completion slot of each job and its workers and
parameter servers in each slot. The numbers of jobs, slots and servers and the utilities are those of OASiS; work,
arrivals and servers of 4 GPUs or 4 cores are ours. Each pod requests one GPU or one core, so that pods which fit a pool
fit its servers, and the work is divided into single slots of a worker, so that the dynamic programme is exact.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import fmean
from typing import Any

import highspy

from tranche.policies.seeded_choice import uniform
from tranche.policies.slot_table.offer import admit
from tranche.policies.slot_table.pool import Pool
from tranche.policies.slot_table.pooled_table import PooledTable
from tranche.policies.slot_table.price import Claim, PriceRange, price_range
from tranche.policies.slot_table.slot_job import Amounts, SlotJob, up
from tranche.simulation.workload.utility_draw import drawn_utility

JOBS, SLOTS = 10, 10
SERVERS = (3, 6, 9, 12)
PODS = 4
"""GPUs of a server for workers, cores of a server for parameter servers."""
WORKER, SERVER = Amounts(gpus=1.0), Amounts(cores=1.0)
RATIOS = (inf, 1000.0)
"""Bounds of U/L: none, as published, and that of `price_ratio=1000`."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """A drawn job."""

    job: SlotJob
    arrival: int
    utilities: tuple[float, ...]
    """Utility of a completion in each slot from the arrival on."""
    last: float
    """Utility of a completion at the horizon."""

    @property
    def work(self) -> int:
        """Worker-slots of the whole job."""
        return round(self.job.samples)


def drawn(seed: int) -> list[Arriving]:
    """Draw jobs in order of arrival; each draw depends on seed and number alone."""
    arriving = []
    for number in range(JOBS):

        def between(low: float, high: float, draw_name: str, number: int = number) -> float:
            return low + (high - low) * uniform(seed, number, draw_name)

        utility = drawn_utility(1.0, partial(uniform, seed, number))
        arrival = int(between(0.0, SLOTS / 2, "arrival"))
        job = SlotJob(
            key=f"j{number}",
            samples=round(between(5, 40, "work")),
            internal_slots=1.0,
            external_slots=1.0,
            most_workers=round(between(8, 16, "most")),
            worker=WORKER,
            server=SERVER,
            workers_per_server=between(1.0, 10.0, "served"),
        )
        worth = tuple(utility.at(duration) for duration in range(SLOTS - arrival))
        arriving.append(Arriving(job, arrival, worth, utility.at(SLOTS - arrival)))
    return sorted(arriving, key=lambda job: job.arrival)


def prices(jobs: Sequence[Arriving], demand: Amounts, capacity: float, most_ratio: float) -> PriceRange:
    """Return the bounds of prices in a pool, from all jobs."""
    claims = [
        Claim(
            best=arriving.utilities[min(len(arriving.utilities) - 1, up(arriving.work / arriving.job.most_workers))],
            last=arriving.last,
            least_slots=arriving.work,
            most_slots=arriving.work,
            demand=demand,
        )
        for arriving in jobs
    ]
    return price_range(claims, capacity, SLOTS, factor=4.0, most_ratio=most_ratio)


def admitted_utility(jobs: Sequence[Arriving], servers: int, most_ratio: float) -> float:
    """Return the total utility of the jobs that OASiS admits."""
    pools = [
        Pool({f"{name}{n:02}": demand.times(PODS) for n in range(servers)}, prices(jobs, demand, room, most_ratio))
        for name, demand, room in (("h", WORKER, PODS * servers), ("k", SERVER, PODS * servers))
    ]
    table, total = PooledTable(*pools), 0.0
    for arriving in jobs:
        admission = admit(table, arriving.job, arriving.arrival, arriving.utilities, arriving.work)
        total += arriving.utilities[admission.cells[-1][0] - arriving.arrival] if admission.admits else 0.0
    return total


def optimum(jobs: Sequence[Arriving], servers: int) -> float:
    """Return the greatest total utility in hindsight."""
    lp = highspy.Highs()  # type: ignore[no-untyped-call]
    lp.setOptionValue("output_flag", False)
    lp.setOptionValue("mip_rel_gap", 1e-6)
    used: list[tuple[list[Any], list[Any]]] = [([], []) for _ in range(SLOTS)]
    terms = []
    for arriving in jobs:
        slots = range(arriving.arrival, SLOTS)
        ends = {slot: lp.addBinary() for slot in slots}
        workers = {slot: lp.addIntegral(0, arriving.job.most_workers) for slot in slots}
        lp.addConstr(sum(ends.values()) <= 1)
        lp.addConstr(sum(workers.values()) >= arriving.work * sum(ends.values()))
        for slot in slots:
            lp.addConstr(workers[slot] <= arriving.job.most_workers * sum(ends[end] for end in slots if end >= slot))
            pod_servers = lp.addIntegral(0, arriving.job.most_workers)
            lp.addConstr(arriving.job.workers_per_server * pod_servers >= workers[slot])
            used[slot][0].append(workers[slot])
            used[slot][1].append(pod_servers)
            terms.append(arriving.utilities[slot - arriving.arrival] * ends[slot])
    for pods in (kind for slot in used for kind in slot if kind):
        lp.addConstr(sum(pods) <= PODS * servers)
    lp.maximize(sum(terms))
    assert lp.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(lp.getInfo().objective_function_value)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of drawn sets of jobs")
    options = parser.parse_args()
    print("| servers of each kind | as published: mean | least | greatest | U/L ≤ 1000: mean | least | greatest |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for servers in SERVERS:
        best = {seed: optimum(drawn(seed), servers) for seed in range(1, options.seeds + 1)}
        cells = []
        for most_ratio in RATIOS:
            quotients = [
                greatest / admitted_utility(drawn(seed), servers, most_ratio) for seed, greatest in best.items()
            ]
            assert min(quotients) >= 1.0 - 1e-5
            cells += [f"{fmean(quotients):.2f}", f"{min(quotients):.2f}", f"{max(quotients):.2f}"]
        print(f"| {servers} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
