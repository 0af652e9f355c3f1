"""Cost of fair shares between tenants in average JCT, and the gain of a tenant that splits its jobs.

``python benchmarks/fair_shares.py`` prints two Markdown tables; about two minutes of one core. Tenants are those
of the log if it names them (philly); otherwise jobs go round robin to `TENANTS` of them. Ratios use runs with equal
jobs: mean over the seeds, with the range.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from job_logs import log_path
from tranche.model import Job
from tranche.simulation.cluster_spec import pool
from tranche.simulation.engine.result import JobResult
from tranche.simulation.recipe import DrawnJobs, FileLog, FixedCluster, LoggedJobs, PresetCluster, Recipe
from tranche.simulation.scenario import Scenario, run

TENANTS, PIECES = 4, 4
SEEDS, LOAD = (1, 2, 3), 0.9
HALFLIVES = (3600, 86_400, 604_800)


def gangs(log: str, gpus: int, jobs: int) -> Recipe:
    """Return jobs of a log drawn in blocks of neighbors, as gangs on a pool."""
    workload = LoggedJobs(FileLog.at(log_path(log)), limit=jobs, resampled=True)
    return Recipe(workload, FixedCluster(pool(gpus)))


def edge(jobs: int, chunk_scale: float) -> Recipe:
    """Return elastic jobs of JSAC'22 at nine edge sites, without the cloud."""
    log = FileLog.at(log_path("elasticflow_cluster06"))
    return Recipe(DrawnJobs(log, jobs, chunk_scale), PresetCluster("jsac-edge"))


SETTINGS = {
    "elasticflow_cluster06, 800 gangs @128": gangs("elasticflow_cluster06", 128, 800),
    "helios_venus_vcvGl, 800 gangs @160": gangs("helios_venus_vcvGl", 160, 800),
    "philly, 800 gangs @128, its own tenants": gangs("philly", 128, 800),
    "jsac-edge, 60 elastic jobs, D/10": edge(60, 0.1),
}


def with_tenants(scenario: Scenario) -> Scenario:
    """Return the jobs with tenants; a log in which all jobs have one tenant, or each its own, names no tenants."""
    if 1 < len({job.owner for job in scenario.jobs}) < len(scenario.jobs):
        return scenario
    jobs = [replace(job, owner=f"t{i % TENANTS}") for i, job in enumerate(scenario.jobs)]
    return replace(scenario, jobs=tuple(jobs))


def average(jobs: Sequence[JobResult], counts: Callable[[str], bool] = lambda _: True) -> float:
    """Return the average JCT of the wanted tenants' jobs, in seconds."""
    return fmean(job.jct_seconds for job in jobs if counts(job.tenant))


def results(scenario: Scenario, policy: str) -> tuple[JobResult, ...]:
    """Run the scenario to its end."""
    result = run(replace(scenario, policy=policy))
    assert not result.unfinished, result.unfinished
    return result.jobs


def split(scenario: Scenario) -> Scenario:
    """Return the scenario in which the first tenant cuts each of its jobs into pieces, as far as they have chunks."""
    jobs: list[Job] = []
    for job in scenario.jobs:
        sizes = [job.chunks // PIECES + (i < job.chunks % PIECES) for i in range(PIECES)]
        if job.owner != "t0":
            jobs.append(job)
            continue
        for i, size in enumerate(size for size in sizes if size):
            piece = replace(job, key=f"{job.key}-{i}", uid=f"{job.uid}-{i}", chunks=size)
            jobs.append(replace(piece, max_workers=min(job.max_workers, size)))
    return replace(scenario, jobs=tuple(jobs))


def ratios(values: Sequence[float]) -> str:
    """Format mean and range."""
    return f"{fmean(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def costs() -> None:
    """Print the average JCT with fair shares over that without."""
    columns = [f"half-life {halflife / 3600:g} h" for halflife in HALFLIVES]
    print(f"| average JCT, fair / not | {' | '.join(columns)} | worst tenant, 24 h |")
    print(f"|:--|{'--:|' * (len(HALFLIVES) + 1)}")
    for name, recipe in SETTINGS.items():
        on: dict[int, list[float]] = {halflife: [] for halflife in HALFLIVES}
        worst = []
        for seed in SEEDS:
            scenario = with_tenants(recipe.build("chunk", seed, LOAD))
            plain = results(scenario, "chunk")
            for halflife in HALFLIVES:
                fair = results(scenario, f"chunk:fair=1:halflife={halflife}")
                on[halflife].append(average(fair) / average(plain))
                if halflife == 86_400:
                    tenants = {job.tenant for job in plain}
                    worst.append(slowest(fair, tenants) / slowest(plain, tenants))
        print(f"| {name} | {' | '.join(ratios(on[h]) for h in HALFLIVES)} | {ratios(worst)} |", flush=True)


def slowest(jobs: Sequence[JobResult], tenants: set[str]) -> float:
    """Return the largest of the tenants' average JCTs."""
    return max(average(jobs, tenant.__eq__) for tenant in tenants)


def gains() -> None:
    """Print the change of the other tenants' average JCT when one tenant splits its jobs."""
    print(
        f"\n| others' average JCT when one of {TENANTS} tenants splits its jobs in {PIECES} | not fair | fair, 24 h |"
    )
    print("|:--|--:|--:|")
    for name in [name for name in SETTINGS if "elastic jobs" in name]:
        cells = []
        for policy in ("chunk", "chunk:fair=1"):
            changes = []
            for seed in SEEDS:
                scenario = with_tenants(SETTINGS[name].build("chunk", seed, LOAD))
                before = average(results(scenario, policy), "t0".__ne__)
                changes.append(average(results(split(scenario), policy), "t0".__ne__) / before)
            cells.append(ratios(changes))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    costs()
    gains()
