"""Default policy against its bars: ratios of job completion times (JCT) with the presets after JSAC'22.

``python benchmarks/policy_bars.py`` draws jobs for the preset that a row names, which arrive as those of three logs do,
simulates every policy on the same jobs, and forms each ratio within one log, load and seed. It prints the mean over
them (the largest, where a row says so), the smallest and the largest, and the ``tranche`` commands that reproduce the
row. A row without a bar is measured only. Where the issue aimed at a ratio, the line below the row says by how much the
lower bound lets any policy come below the other one. Exit status 1 if a bar of ranges.toml is missed. ``--only TEXT``
takes the rows whose names contain it, ``--quick`` a third of the jobs, one log and one seed: to try the program, not
the policy.

``fifo`` and ``drf`` copy data before they hold a GPU; the form with ``uploads=held`` holds it meanwhile, and is shown
beside. The rows of ``jsac-cloud`` take 60 jobs, the others 120, unless ``--jobs`` says otherwise.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Literal

import ranges
from job_logs import log_path, typed_path
from tranche.cli.output import progress_bar
from tranche.policies.queue.chunk import Chunk
from tranche.simulation.executors import ProcessPool
from tranche.simulation.recipe import DrawnJobs, FileLog, PresetCluster, Recipe
from tranche.simulation.study import Answer, Cell, Failure, Outcome, run_cells
from tranche.simulation.workload.jsac_options import Delay, JsacOptions

LOGS = ("elasticflow_cluster06", "helios_venus_vcvGl", "philly")
LOADS = (0.7, 0.9, 1.1)
BOUND = "bound"
"""Name of the fluid lower bound, in the place of a policy."""
SRPT = "chunk:aging=0" if "aging" in {field.name for field in fields(Chunk)} else "chunk"
Figure = Literal["average_jct_seconds", "p99_jct_seconds"]


@dataclass(frozen=True, slots=True)
class Setting:
    """Simulated setting without policies, logs and seeds."""

    preset: str = "jsac-edge"
    delay: Delay | None = None
    """Source of the data; None: the preset's own."""
    chunk_scale: float = 1.0
    speed_sigma: float = 0.0
    loads: tuple[float, ...] = LOADS

    def recipe(self, log: str, jobs: int) -> Recipe:
        """Return the recipe for one log."""
        options = JsacOptions(delay=self.delay)
        drawn = DrawnJobs(FileLog.at(log_path(log)), jobs, self.chunk_scale, options=options)
        return Recipe(drawn, PresetCluster(self.preset, options), speed_sigma=self.speed_sigma)


JOBS, CLOUD_JOBS = 120, 60
"""Default numbers of jobs, for presets without and with the unlimited cloud."""
EDGE, TENTH = Setting(), Setting(chunk_scale=0.1)
CLOUDS = {
    f"{delay}, {chunks}": Setting("jsac-cloud", delay=delay, chunk_scale=scale)
    for delay in ("outside", "home")
    for chunks, scale in (("all chunks", 1.0), ("a tenth of the chunks", 0.1))
}
UNKNOWN = Setting(speed_sigma=0.3, loads=(0.7, 0.9))


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the table, with its bar."""

    name: str
    setting: Setting
    ours: str
    theirs: str
    figure: Figure = "average_jct_seconds"
    worst: bool = False
    """Whether the bar applies to the largest ratio, not to the mean."""
    table: str = ""
    """Table of ranges.toml; empty: the name."""
    barred: bool = True
    """Whether the row has a bar; otherwise it is measured only."""
    aim: float | None = None
    """Required mean, if it differs from the bar."""

    @property
    def bar(self) -> float | None:
        """Upper bound of the figure; None: it is measured only."""
        return ranges.bound(self.table or self.name) if self.barred else None

    def commands(self, jobs: int, logs: Sequence[str], seeds: int) -> Iterator[str]:
        """Yield the commands that print the ratios by load, with the means over seeds, log by log."""
        setting = self.setting
        policies = self.ours if self.theirs == BOUND else f"{self.theirs},{self.ours}"
        options = f"--loads {','.join(f'{load:g}' for load in setting.loads)} --seeds {seeds}"
        options += f" --delay {setting.delay}" if setting.delay is not None else ""
        options += f" --chunk-scale {setting.chunk_scale:g}" if setting.chunk_scale != 1 else ""
        options += f" --speed-sigma {setting.speed_sigma:g}" if setting.speed_sigma else ""
        for log in logs:
            arrivals = f"--arrivals {typed_path(log)} --jobs {jobs}"
            yield f"tranche compare --preset {setting.preset} {arrivals} --policies {policies} {options}"


def rows() -> list[Row]:
    """Return all bars."""
    all_rows = [
        Row("chunk / srpt-pool", EDGE, SRPT, "srpt-pool"),
        Row("chunk / srpt-pool, a tenth of the chunks", TENTH, SRPT, "srpt-pool"),
        Row("chunk / lower bound", EDGE, SRPT, BOUND),
        Row("chunk / chunk-faithful", EDGE, SRPT, "chunk-faithful"),
        Row("chunk / chunk-faithful, the largest ratio", EDGE, SRPT, "chunk-faithful", worst=True),
        Row("chunk / chunk-faithful, a tenth of the chunks", TENTH, SRPT, "chunk-faithful"),
        Row("chunk / chunk-faithful, speeds unknown", UNKNOWN, SRPT, "chunk-faithful"),
        *pool_rows(),
        Row("chunk / chunk-faithful, ten cloud workers", Setting("jsac-cloud10"), SRPT, "chunk-faithful"),
    ]
    for name, setting in CLOUDS.items():
        all_rows += cloud_rows(name, setting)
    if SRPT != "chunk":
        busy = Setting(loads=(1.1,))
        all_rows.append(Row("aging / none, average", busy, "chunk", SRPT))
        all_rows.append(Row("aging / none, p99", busy, "chunk", SRPT, "p99_jct_seconds"))
    return all_rows


def pool_rows() -> list[Row]:
    """Return rows of pools of all workers of ``jsac-edge``, by whether a worker holds its GPU while data are copied."""
    rows_of_pools = []
    for ours, name in (("chunk-faithful", "chunk-faithful"), (SRPT, "chunk")):
        for pool in ("fifo", "drf"):
            rows_of_pools.append(Row(f"{name} / {pool}", EDGE, ours, pool))
            rows_of_pools.append(Row(f"{name} / {pool}, GPUs held", EDGE, ours, f"{pool}:uploads=held"))
            rows_of_pools.append(Row(f"{name} / {pool}, a tenth of the chunks", TENTH, ours, pool, barred=False))
    return rows_of_pools


def cloud_rows(name: str, setting: Setting) -> list[Row]:
    """Return rows of the default policy in one form of ``jsac-cloud``."""
    faithful, bound = "jsac-cloud, chunk / chunk-faithful", "lower bound"
    rows_of_cloud = [
        Row(f"chunk / chunk-faithful, {name}", setting, "chunk", "chunk-faithful", table=faithful),
        Row(
            f"chunk / chunk-faithful, {name}, the largest",
            setting,
            "chunk",
            "chunk-faithful",
            worst=True,
            table=f"{faithful}, the largest ratio",
        ),
        Row(f"chunk / {bound}, {name}", setting, "chunk", BOUND, barred=False),
    ]
    for other, aim in (("fifo", 0.65), ("drf", 0.65), ("least-loaded", 0.97)):
        table = f"jsac-cloud, chunk / {other}"
        rows_of_cloud.append(Row(f"chunk / {other}, {name}", setting, "chunk", other, table=table, aim=aim))
        rows_of_cloud.append(Row(f"{other} / {bound}, {name}", setting, other, BOUND, barred=False))
    return rows_of_cloud


Key = tuple[Setting, str, str, float, int]
"""Setting, log, policy, load, seed."""


def jobs_of(row: Row, jobs: int | None, *, quick: bool = False) -> int:
    """Return the number of jobs that are drawn for a row.

    Args:
        row: Row of the table.
        jobs: Number from the command line; None: the default.
        quick: Whether to take a third.
    """
    count = jobs or (CLOUD_JOBS if row.setting.preset == "jsac-cloud" else JOBS)
    return max(1, count // 3) if quick else count


def simulate(
    chosen: Mapping[Row, int], logs: Sequence[str], seeds: Sequence[int], processes: int | None
) -> dict[Key, Outcome]:
    """Simulate every cell once, even if several rows need it.

    Args:
        chosen: Number of jobs by row; rows of one setting have the same number.
        logs: Names of logs in the folder of traces.
        seeds: Seeds of all draws.
        processes: Number of processes; None: one a core.

    Raises:
        SystemExit: A simulation failed, or some of its jobs never completed.
    """
    jobs = {row.setting: count for row, count in chosen.items()}
    bounded = {(row.setting, row.ours) for row in chosen if row.theirs == BOUND}
    bounded |= {(row.setting, row.theirs) for row in chosen if row.aim is not None}
    needed = {(row.setting, policy) for row in chosen for policy in (row.ours, row.theirs) if policy != BOUND}
    cells: dict[Key, Cell] = {}
    for setting, policy in sorted(needed, key=repr):
        for log in logs:
            recipe = setting.recipe(log, jobs[setting])
            for load in setting.loads:
                for seed in seeds:
                    bound = (setting, policy) in bounded
                    cells[setting, log, policy, load, seed] = Cell(recipe, policy, seed, load, bounded=bound)
    with progress_bar("simulations", quiet=False) as on_progress:
        done = 0

        def show_progress() -> None:
            nonlocal done
            done += 1
            if on_progress is not None:
                on_progress(done, len(cells))

        answers = run_cells(list(cells.values()), ProcessPool(processes), show_progress)
    return {key: _outcome(answer) for key, answer in zip(cells, answers, strict=True)}


def _outcome(answer: Answer) -> Outcome:
    if isinstance(answer, Failure):
        sys.exit(f"Error: {answer.name} failed: {answer.reason}")
    if answer.unfinished:
        sys.exit(f"Error: {answer.policy}: {answer.unfinished} jobs never completed: {answer.reasons[0][1]}")
    return answer


def ratios(row: Row, outcomes: dict[Key, Outcome], logs: Sequence[str], seeds: Sequence[int]) -> list[float]:
    """Return one ratio for each log, load and seed."""
    quotients = []
    for log in logs:
        for load in row.setting.loads:
            for seed in seeds:
                ours = outcomes[row.setting, log, row.ours, load, seed]
                if row.theirs == BOUND:
                    assert ours.bound_seconds is not None
                    base = ours.bound_seconds
                else:
                    base = getattr(outcomes[row.setting, log, row.theirs, load, seed].summary, row.figure)
                quotients.append(getattr(ours.summary, row.figure) / base)
    return quotients


def least_possible(row: Row, outcomes: dict[Key, Outcome], logs: Sequence[str], seeds: Sequence[int]) -> float:
    """Return the mean of the lower bound over the other policy's average: no policy has a smaller mean ratio to it."""
    quotients = []
    for log in logs:
        for load in row.setting.loads:
            for seed in seeds:
                theirs = outcomes[row.setting, log, row.theirs, load, seed]
                assert theirs.bound_seconds is not None
                quotients.append(theirs.bound_seconds / theirs.summary.average_jct_seconds)
    return fmean(quotients)


def aim_text(aim: float, measured: float, possible: float) -> str:
    """Return the line below a row."""
    if measured <= aim:
        return f"aimed at {aim:g}: kept"
    if possible > aim:
        return f"aimed at {aim:g}, not reachable: the lower bound lets no policy come below {possible:.3f}"
    return f"aimed at {aim:g}: missed; the lower bound alone does not rule it out ({possible:.3f})"


def main() -> None:
    """Simulate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--jobs", type=int, help=f"number of jobs (default: {CLOUD_JOBS} in rows of jsac-cloud, {JOBS} in others)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, counted from 1")
    parser.add_argument("--only", metavar="TEXT", default="", help="only rows whose names contain the text")
    parser.add_argument("--preset", nargs="+", metavar="NAME", help="only the rows of these presets")
    parser.add_argument("--processes", type=int, help="number of processes (default: one a core)")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if min(options.seeds, options.jobs or 1) < 1:
        parser.error("--jobs and --seeds must be at least 1")
    seeds = range(1, 2 if options.quick else options.seeds + 1)
    logs: Sequence[str] = LOGS[:1] if options.quick else LOGS
    candidates = [row for row in rows() if not options.preset or row.setting.preset in options.preset]
    chosen = {row: jobs_of(row, options.jobs, quick=options.quick) for row in candidates if options.only in row.name}
    if not chosen:
        sys.exit(
            f"Error: no row's name contains {options.only!r}; the rows: {'; '.join(row.name for row in candidates)}"
        )
    began, kept = time.monotonic(), True
    outcomes = simulate(chosen, logs, seeds, options.processes)
    print(f"seeds {seeds[0]} to {seeds[-1]}, arrivals of {', '.join(logs)}")
    print(f"{'ratio of JCT':<68}{'preset':<14}{'jobs':>5}{'bar':>8}{'measured':>10}{'least':>9}{'most':>9}")
    for row, jobs in chosen.items():
        quotients = ratios(row, outcomes, logs, seeds)
        value = max(quotients) if row.worst else fmean(quotients)
        verdict, bar = "measured only", row.bar
        if bar is not None:
            verdict = "OK" if value <= bar else "OVER"
            kept &= value <= bar
        text = f"{row.name:<68}{row.setting.preset:<14}{jobs:>5}{'–' if bar is None else f'{bar:.3f}':>8}"
        print(f"{text}{value:>10.4f}{min(quotients):>9.4f}{max(quotients):>9.4f}  {verdict}")
        if row.aim is not None:
            print(f"    {aim_text(row.aim, value, least_possible(row, outcomes, logs, seeds))}")
        for command in row.commands(jobs, logs, len(seeds)):
            print(f"    {command}")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
