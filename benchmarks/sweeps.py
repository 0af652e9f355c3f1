"""Sweeps over the parameters of the JSAC'22 setting, in place of its evaluation, which was not available: ours [I].

``python benchmarks/sweeps.py`` simulates drawn jobs of the presets jsac-cloud and jsac-edge at load
0.9, one parameter changed at a time, and prints each sweep as a section of Markdown: a table of the average job
completion time (JCT), mean over the seeds, and what else belongs to it. ``--picture`` draws docs/pictures/sweep-*.png.
Figures of simulations are kept in build/sweeps and not computed again, except with ``--again``. ``--quick`` takes 12
jobs, a tenth of the chunks, one seed and the ends of each sweep: to try the program, not a policy.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, cast

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from job_logs import log_path
from sweep_settings import CLOUD, EDGE, POLICIES, Panel, Setting, Sweep, sweeps
from tranche.cli.output import progress_bar
from tranche.planner import Event, Instruction, JobSubmitted, Planner
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.engine.result import Occupation, SimulationResult
from tranche.simulation.executors import Pool, ProcessPool, SerialPool
from tranche.simulation.recipe import FileLog
from tranche.simulation.scenario import Scenario, prepared, run
from tranche.simulation.study import Cell, Failure, Outcome, run_cells
from tranche.simulation_report.distribution_plot import draw_cdf
from tranche.simulation_report.gantt import chart_height, draw_gantt
from tranche.simulation_report.gantt_layout import lay_out
from tranche.simulation_report.plot_style import LIGHT, Draw, Theme, heading, lines, render
from tranche.simulation_report.report_run import ReportRun

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
KEPT = ROOT / "build/sweeps/figures.json"
BASE = "base"
"""Sweep of one point, the base of the ratios in the table of claims."""
MARKERS = "osD^vPX*h"
"""Markers of policies in pictures, because colours repeat."""
SAVED_EVERY = 20
"""Number of simulations between two writes of the file."""
Figures = dict[str, float]
Rows = list[Sequence[str]]
Found = Mapping[tuple[str, str, str, int], Figures]
"""Figures by panel, point, policy and seed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Format of a figure."""

    heading: str
    factor: float = 1.0
    form: str = ",.1f"


FIGURES = {
    "average": Kind("average JCT, h", 1 / 3600),
    "p99": Kind("p99 of JCT, h", 1 / 3600),
    "cloud chunks": Kind("share of chunks trained in the cloud, %", 100, ".0f"),
    "cloud jobs": Kind("share of jobs trained in the cloud only, %", 100, ".0f"),
    "cloud GPU-hours": Kind("GPU-hours in the cloud", 1.0, ",.0f"),
    "communication": Kind("share of training time in communication, %", 100),
}


def figures_of(outcome: Outcome) -> Figures:
    """Return the stored figures of a simulation that includes its jobs' results.

    Raises:
        ValueError: Some jobs never completed, so that an average over the rest would mislead.
    """
    if outcome.unfinished:
        name, reason = outcome.reasons[0]
        raise ValueError(f"{outcome.policy}: {outcome.unfinished} jobs never completed, such as {name}: {reason}")
    result = outcome.result
    assert result is not None
    chunks = sum(site.chunks for site in result.sites)
    trained = sum(job.attained_gpu_seconds for job in result.jobs)
    computed = sum(job.ideal_seconds * job.gpus for job in result.jobs)
    in_cloud = sum(job.cloud_gpu_seconds > 0.999999 * job.gpu_seconds for job in result.jobs)
    found = {
        "average": outcome.summary.average_jct_seconds,
        "p99": outcome.summary.p99_jct_seconds,
        "cloud chunks": sum(site.chunks for site in result.sites if site.is_cloud) / chunks,
        "cloud jobs": in_cloud / len(result.jobs),
        "cloud GPU-hours": outcome.summary.cloud_gpu_seconds / 3600,
        "communication": 1 - computed / trained,
    }
    if outcome.bound_seconds is not None:
        found["bound"] = outcome.bound_seconds
    return found


def key_of(cell: Cell) -> str:
    """Return the name of a cell in the file of stored figures."""
    return blake2b(repr(cell).encode(), digest_size=16).hexdigest()


def simulate(cells: Iterable[Cell], processes: int | None, *, again: bool) -> dict[Cell, Figures]:
    """Return figures of all cells; stored ones are not simulated again.

    Raises:
        SystemExit: A simulation failed, or some of its jobs never completed.
    """
    wanted = list(dict.fromkeys(cells))
    known: dict[str, Figures] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    missing = [cell for cell in wanted if again or key_of(cell) not in known]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    pool: Pool = SerialPool() if processes == 1 else ProcessPool(processes)
    with progress_bar("simulations", quiet=False) as on_progress:
        for first in range(0, len(missing), SAVED_EVERY):
            some = missing[first : first + SAVED_EVERY]
            for cell, answer in zip(some, run_cells(some, pool, lambda: None), strict=True):
                if isinstance(answer, Failure):
                    sys.exit(f"Error: {answer.name} failed: {answer.reason}")
                try:
                    known[key_of(cell)] = figures_of(answer)
                except ValueError as error:
                    sys.exit(f"Error: {error}")
            KEPT.write_text(json.dumps(known, indent=0))
            if on_progress is not None:
                on_progress(first + len(some), len(missing))
    return {cell: known[key_of(cell)] for cell in wanted}


def mean_of(found: Found, panel: str, point: str, policy: str, figure: str) -> float:
    """Return the mean over the seeds."""
    return fmean(one[figure] for (*place, _), one in found.items() if place == [panel, point, policy])


def table_of(sweep: Sweep, found: Found, figure: str) -> Rows:
    """Return a table with panels and values down, policies across."""
    kind = FIGURES[figure]
    rows: Rows = [("setting", sweep.axis, *sweep.policies)]
    for panel in sweep.panels:
        for point in sweep.points:
            values = (mean_of(found, panel.title, point.label, policy, figure) for policy in sweep.policies)
            cells = (format(kind.factor * value, kind.form) for value in values)
            rows.append((panel.title, point.label, *cells))
    return rows


def markdown(rows: Sequence[Sequence[str]], words: int = 2) -> str:
    """Format a table, figures to the right.

    Args:
        rows: Rows with the heading first.
        words: Number of columns without figures, from the left.
    """
    head, *rest = rows
    dashes = [":--" if i < words else "--:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, dashes, *rest))


def reductions(found: Found, panel: str, point: str, ours: str, other: str) -> tuple[float, float, float]:
    """Return by how many percent one policy's average JCT is below another's: mean of seeds, least, most."""
    seeds = sorted({seed for *_, seed in found})
    by_seed = [
        100 * (1 - found[panel, point, ours, seed]["average"] / found[panel, point, other, seed]["average"])
        for seed in seeds
    ]
    return fmean(by_seed), min(by_seed), max(by_seed)


def base_sweep() -> Sweep:
    """Return a sweep of one point, without a change."""
    return replace(sweeps()[0], name=BASE, points=(replace(sweeps()[0].points[0], label=BASE, changes={}, x=None),))


def claims(base: Found, optimum: Mapping[str, Any], said: str, command: str) -> Rows:
    """Return the claims of JSAC'22 beside the figures measured here.

    Args:
        base: Figures of `base_sweep`.
        optimum: Ratios of `optimum_ratios`.
        said: Jobs and seeds, in words.
        command: Command that measures all of it.
    """
    rows: Rows = [("published claim", "our setting [I]", "measured", "command")]
    for kind, name in (("relaxed", "OPT_LP⁺"), ("exact", "2 · OPT")):
        worst = max((one for one in optimum[kind] if one["epsilon"]), key=lambda one: one["worst"] / one["bound"])
        part = worst["worst"] / worst["bound"]
        above = any(one["worst"] > one["bound"] for one in optimum[kind])
        rows.append(
            (
                "D_max (1 + 1/ε)-competitive with workers of speed 1 + ε (Theorem 2, on fractional flows)",
                f"F ≤ (1 + 1/ε) · {name} on {optimum['instances']} small instances, ε of 0.1 to 2, `chunk-faithful`",
                f"{'does not hold' if above else 'holds'}; at most {100 * part:.0f} % of the bound "
                f"(ε = {worst['epsilon']:g}); checked, not proved",
                f"`{command} --only optimum`",
            )
        )
    for panel in (CLOUD.title, EDGE.title):
        for ours in ("chunk-faithful", "chunk"):
            parts = []
            for other in POLICIES:
                if other not in ("chunk-faithful", "chunk") or (ours == "chunk" and other == "chunk-faithful"):
                    mean, least, most = reductions(base, panel, BASE, ours, other)
                    parts.append(f"{other} {round(mean)} % ({round(least)} to {round(most)})")
            rows.append(
                (
                    "average JCT up to 30 % below baselines, which are not known to us",
                    f"`{panel}`, {said}; reduction by `{ours}` against others",
                    "; ".join(parts),
                    f"`{command} --only claims`",
                )
            )
    return rows


def logarithmic(axis: Any, ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with plain numbers at the ticks, or at round values."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    if not ticks and high > 3 * low:
        ticks = [digit * 10.0**power for power in range(-3, 6) for digit in (1, 1.5, 2, 3, 5, 7)]
    axis.set_major_locator(FixedLocator(ticks) if ticks else MaxNLocator(6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def draw_sweep(sweep: Sweep, found: Found) -> Draw:
    """Return a function that draws one axes a panel, one curve a policy."""
    figure_name = sweep.figures[0]
    kind = FIGURES[figure_name]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, len(sweep.panels), squeeze=False)[0]
        for axis, panel in zip(axes, sweep.panels, strict=True):
            for policy, style, marker in zip(sweep.policies, lines(theme), MARKERS, strict=False):
                heights = [
                    kind.factor * mean_of(found, panel.title, one.label, policy, figure_name) for one in sweep.points
                ]
                places = [place_of(sweep, found, panel, policy, number) for number in range(len(sweep.points))]
                named = not sweep.against and sweep.points[0].x is None
                style = {**style, "linestyle": ""} if named else style
                axis.plot(places, heights, marker=marker, markersize=5, linewidth=1.6, label=policy, **style)
                if sweep.against:
                    for place, height, one in zip(places, heights, sweep.points, strict=True):
                        axis.annotate(one.label, (place, height), (4, 4), textcoords="offset points", fontsize=9)
            if sweep.points[0].x is None:
                names = [one.label for one in sweep.points]
                axis.set_xticks(range(len(names)), names, rotation=20 if len(names) > 3 else 0, ha="center", fontsize=8)
            elif sweep.logarithmic:
                logarithmic(axis.xaxis, [one.x or 0.0 for one in sweep.points])
            axis.set_title(panel.title, color=theme.muted)
            axis.set_xlabel(FIGURES[sweep.against].heading if sweep.against else sweep.axis)
            if not sweep.against:
                logarithmic(axis.yaxis)
            axis.grid(visible=True, axis="y")
        axes[0].set_ylabel(kind.heading)
        heading(figure, f"{sweep.title} [I]")
        handles, labels = axes[0].get_legend_handles_labels()
        if len(labels) > 1:
            figure.legend(handles, labels, loc="outside lower center", ncols=5)

    return draw


def place_of(sweep: Sweep, found: Found, panel: Panel, policy: str, number: int) -> float:
    """Return the position of a point on the axis of the picture."""
    point = sweep.points[number]
    if sweep.against:
        return FIGURES[sweep.against].factor * mean_of(found, panel.title, point.label, policy, sweep.against)
    return float(number) if point.x is None else point.x


@cache
def optimum_ratios(instances: int) -> dict[str, Any]:
    """Return F of `chunk-faithful` over optima of small instances, by kind and ε."""
    sys.path.insert(0, str(ROOT / "tests"))  # of flow_optima
    from competitive_ratio import ratios

    return {"instances": instances, "relaxed": ratios("relaxed", instances, 1), "exact": ratios("exact", instances, 1)}


def optimum_table(found: Mapping[str, Any]) -> Rows:
    """Return the table by ε."""
    rows: Rows = [
        ("ε", "F/OPT_LP⁺: mean", "worst", "bound 1 + 1/ε", "F/OPT: mean", "worst", "bound 2 (1 + 1/ε)"),
    ]
    for relaxed, exact in zip(found["relaxed"], found["exact"], strict=True):
        cells = [f"{relaxed['epsilon']:g}"]
        for one in (relaxed, exact):
            bound = f"{one['bound']:.1f}" if isfinite(one["bound"]) else "none"
            cells += [f"{one['mean']:.3f}", f"{one['worst']:.3f}", bound]
        rows.append(cells)
    return rows


def draw_optimum(found: Mapping[str, Any]) -> Draw:
    """Return a function that draws mean and worst ratio against the bound."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, 2)
        for axis, kind, name in zip(axes, ("relaxed", "exact"), ("F / OPT_LP⁺", "F / OPT"), strict=True):
            for what, style in zip(("worst", "mean", "bound"), lines(theme), strict=False):
                shown = [(one["epsilon"], one[what]) for one in found[kind] if isfinite(one[what])]
                axis.plot(*zip(*shown, strict=True), marker="o", label=what, **style)
            axis.set(xlabel="ε", title=name)
            logarithmic(axis.yaxis, (0.3, 0.5, 1, 2, 5, 10, 20))
            axis.grid(visible=True)
        heading(figure, "chunk-faithful at speed 1 + ε against optima at speed 1 [I]")
        axes[0].legend()

    return draw


class Stopwatch:
    """Planner that records the CPU time of the decisions at which jobs arrive."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.planner, name)

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Handle events as the planner does."""
        arrived = sum(isinstance(event, JobSubmitted) for event in events)
        began = time.thread_time()
        instructions = self.planner.handle_all(events, now)
        if arrived:
            self.seconds += [(time.thread_time() - began) / arrived] * arrived
        return list(instructions)


def arrival_seconds(scenario: Scenario) -> list[float]:
    """Return the CPU time that the planner takes for each arrival of a run."""
    simulation = prepared(scenario)
    watch = Stopwatch(simulation.planner)
    simulation.planner = cast(Planner, watch)
    simulation.run()
    return watch.seconds


def scheduling_times(base: Setting, log: FileLog, counts: Sequence[int], seed: int) -> dict[tuple[str, int, str], Any]:
    """Return median and p99 of the milliseconds of an arrival, by preset, jobs and policy."""
    found = {}
    for panel in (CLOUD, EDGE):
        for count in counts:
            for policy in POLICIES:
                cell = base.changed(panel.changes).changed({"jobs": count}).cell(log, policy, seed)
                taken = arrival_seconds(cell.recipe.build(policy, seed, cell.load))
                p99 = quantiles(taken, n=100, method="inclusive")[98] if len(taken) > 1 else taken[0]
                found[panel.title, count, policy] = (1000 * median(taken), 1000 * p99)
    return found


def scheduling_table(found: Mapping[tuple[str, int, str], Any]) -> Rows:
    """Return a table with median and p99 in one cell."""
    rows: Rows = [("setting", "jobs", *POLICIES)]
    for panel, count in dict.fromkeys((panel, count) for panel, count, _ in found):
        cells = ("{:.1f} / {:.1f}".format(*found[panel, count, policy]) for policy in POLICIES)
        rows.append((panel, str(count), *cells))
    return rows


def draw_scheduling(found: Mapping[tuple[str, int, str], Any]) -> Draw:
    """Return a function that draws the median by number of jobs."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, panel in zip(axes, (CLOUD.title, EDGE.title), strict=True):
            for policy, style, marker in zip(POLICIES, lines(theme), MARKERS, strict=False):
                shown = [
                    (count, value[0]) for (one, count, name), value in found.items() if (one, name) == (panel, policy)
                ]
                axis.plot(*zip(*shown, strict=True), marker=marker, markersize=5, label=policy, **style)
            axis.set(xlabel="jobs", title=panel)
            logarithmic(axis.yaxis, (0.03, 0.1, 0.3, 1, 3, 10, 30, 100))
            axis.grid(visible=True)
        axes[0].set_ylabel("CPU ms of an arrival, median")
        heading(figure, "Scheduling time of a job [I]")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)

    return draw


def report_runs(base: Setting, log: FileLog, seed: int) -> list[ReportRun]:
    """Return one run of each policy."""
    found = []
    for policy in POLICIES:
        cell = base.cell(log, policy, seed)
        result = run(cell.recipe.build(policy, seed, cell.load))
        found.append(ReportRun(policy, result, summarize(result)))
    return found


def chunk_windows(result: SimulationResult) -> list[Occupation]:
    """Return times and places of each chunk's training, as bars of a Gantt chart."""
    gpus = {job.key: job.gpus // len(job.chunk_completions) for job in result.jobs}
    return [
        Occupation(key, one.site, one.node or one.site, gpus[key], one.start, one.end, one.outcome)
        for key, chunks in result.chunks.items()
        for chunk in chunks
        for one in chunk.executed
    ]


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of the command line."""

    base: Setting
    claimed: Setting
    """Setting of the table of claims: the published number of chunks."""
    log: FileLog
    seeds: range
    processes: int | None
    again: bool
    picture: bool
    instances: int
    command: str

    def draw(self, name: str, caption: str, draw: Draw, height: float = 4.6, width: float = 9.5) -> Iterator[str]:
        """Write the picture, if requested, and yield the lines that show it."""
        if self.picture:
            (PICTURES / f"sweep-{name}.png").write_bytes(render(draw, LIGHT, width, height))
            yield f"\n![{caption}](../pictures/sweep-{name}.png)\n"


def words_of(setting: Setting, seeds: range) -> str:
    """Return jobs, chunks, load and seeds in words."""
    scale = "" if setting.chunk_scale == 1 else f", D × {setting.chunk_scale:g}"
    return f"{setting.jobs} jobs{scale}, load {setting.load:g}, seeds 1 to {len(seeds)}"


def sweep_section(sweep: Sweep, found: Found, asked: Asked) -> Iterator[str]:
    """Yield heading, tables and picture."""
    yield f"### {sweep.title}\n"
    for figure in sweep.figures:
        yield f"{FIGURES[figure].heading[0].upper()}{FIGURES[figure].heading[1:]}:\n"
        yield f"{markdown(table_of(sweep, found, figure))}\n"
    yield from asked.draw(sweep.name, f"{sweep.title}, ours [I]", draw_sweep(sweep, found))


def optimum_section(asked: Asked) -> Iterator[str]:
    """Yield the ratios to optima."""
    found = optimum_ratios(asked.instances)
    yield "### Ratio to the offline optimum\n"
    yield (
        f"`chunk-faithful` at speed 1 + ε against optima at speed 1, {asked.instances} drawn instances of each kind: "
        "at most three jobs on 1 to 10 workers for OPT_LP⁺, two to five chunks on one or two workers for OPT.\n"
    )
    yield f"{markdown(optimum_table(found))}\n"
    yield from asked.draw("optimum", "Ratio to the offline optimum, ours [I]", draw_optimum(found))


def scheduling_section(asked: Asked, counts: Sequence[int]) -> Iterator[str]:
    """Yield the cost of an arrival."""
    found = scheduling_times(asked.base, asked.log, counts, asked.seeds[0])
    yield "### Scheduling time of a job\n"
    yield "CPU milliseconds of the decision at an arrival, median / p99 over the jobs of one run:\n"
    yield f"{markdown(scheduling_table(found))}\n"
    yield from asked.draw("scheduling", "Scheduling time of a job, ours [I]", draw_scheduling(found))


def runs_section(asked: Asked) -> Iterator[str]:
    """Yield the distribution of JCT, and chunk windows of a small run."""
    yield "### One run\n"
    for panel in (CLOUD, EDGE):
        found = report_runs(asked.base.changed(panel.changes), asked.log, asked.seeds[0])
        caption = f"Distribution of JCT in {panel.title}, seed {asked.seeds[0]}, ours [I]"
        yield from asked.draw(f"cdf-{panel.title}", caption, draw_cdf(found), 5.0, 8.0)
    small = asked.base.changed({"jobs": 8, "chunk_scale": 0.1})
    for policy in ("chunk", "chunk-faithful"):
        cell = small.cell(asked.log, policy, asked.seeds[0])
        result = run(cell.recipe.build(policy, asked.seeds[0], cell.load, record=True))
        chart = lay_out(chunk_windows(result), result.samples)
        caption = f"Windows of chunks of eight small jobs in jsac-cloud under {policy}, ours [I]"
        drawn = draw_gantt(f"windows of chunks, {policy} [I]", chart)
        yield from asked.draw(f"gantt-{policy}", caption, drawn, chart_height(chart), 8.0)


def claims_section(asked: Asked) -> Iterator[str]:
    """Yield the table of claims."""
    cells = base_sweep().cells(asked.claimed, asked.log, asked.seeds)
    figures = simulate(cells.values(), asked.processes, again=asked.again)
    base = {place: figures[cell] for place, cell in cells.items()}
    yield "### Published claims\n"
    yield (
        "The baselines of the published evaluation are not known to us, so 30 % cannot be confirmed or refuted: what a "
        "policy is compared with decides the figure. Reductions are means of ratios within a seed, with the range over "
        "the seeds. They are for all chunks (D), also where the other tables have a part of them.\n"
    )
    said = words_of(asked.claimed, asked.seeds)
    rows = claims(base, optimum_ratios(asked.instances), said, asked.command)
    yield f"{markdown(rows, words=4)}\n"


def sections(asked: Asked, chosen: Sequence[Sweep], counts: Sequence[int]) -> dict[str, Callable[[], Iterator[str]]]:
    """Return the sections that can be printed, by name."""

    def swept(sweep: Sweep) -> Iterator[str]:
        cells = sweep.cells(asked.base, asked.log, asked.seeds)
        figures = simulate(cells.values(), asked.processes, again=asked.again)
        yield from sweep_section(sweep, {place: figures[cell] for place, cell in cells.items()}, asked)

    found: dict[str, Callable[[], Iterator[str]]] = {"claims": lambda: claims_section(asked)}
    for one in chosen:
        found[one.name] = lambda one=one: swept(one)  # type: ignore[misc]
    found["optimum"] = lambda: optimum_section(asked)
    found["scheduling"] = lambda: scheduling_section(asked, counts)
    found["runs"] = lambda: runs_section(asked)
    return found


def main() -> None:
    """Simulate, print and draw."""
    names = ["claims", *(sweep.name for sweep in sweeps()), "optimum", "scheduling", "runs"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=names, help=f"sections to print: {', '.join(names)}"
    )
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, counted from 1")
    parser.add_argument("--chunk-scale", type=float, default=1.0, help="factor of D, the number of chunks, of all jobs")
    parser.add_argument("--most-jobs", type=int, default=500, help="leave out points with more jobs")
    parser.add_argument("--instances", type=int, default=300, help="instances of each kind, compared with the optimum")
    parser.add_argument("--arrivals", type=Path, default=log_path("elasticflow_cluster06"), help="a job log")
    parser.add_argument("--processes", type=int, help="number of processes (default: one a core)")
    parser.add_argument("--picture", action="store_true", help="write docs/pictures/sweep-*.png")
    parser.add_argument("--again", action="store_true", help="do not use the figures in build/sweeps")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if min(options.jobs, options.seeds, options.instances) < 1:
        parser.error("--jobs, --seeds and --instances must be at least 1")
    chosen = [sweep.within(options.most_jobs) for sweep in sweeps()]
    if options.quick:
        options.jobs, options.seeds, options.chunk_scale, options.instances = 12, 1, 0.1, 10
        chosen = [sweep.fewer_points() for sweep in chosen if sweep.name != "jobs"]
    try:
        log = FileLog.at(options.arrivals)
    except OSError as error:
        sys.exit(f"Error: {options.arrivals}: {error.strerror}")
    command = f"python benchmarks/sweeps.py --jobs {options.jobs} --seeds {options.seeds}"
    command += f" --chunk-scale {options.chunk_scale:g}" if options.chunk_scale != 1 else ""
    asked = Asked(
        Setting(jobs=options.jobs, chunk_scale=options.chunk_scale),
        Setting(jobs=options.jobs, chunk_scale=options.chunk_scale if options.quick else 1.0),
        log,
        range(1, options.seeds + 1),
        options.processes,
        options.again,
        options.picture,
        options.instances,
        command,
    )
    counts = [count for count in (20, 60, 100, 500) if count <= options.most_jobs] if not options.quick else [12]
    said = words_of(asked.base, asked.seeds)
    print(f"Arrivals of {options.arrivals.name.partition('.')[0]}; {said}, unless a table says otherwise.\n")
    for name, section in sections(asked, chosen, counts).items():
        if options.only is None or name in options.only:
            for text in section():
                print(text, flush=True)


if __name__ == "__main__":
    main()
