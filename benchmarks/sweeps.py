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
FiguresByPlace = Mapping[tuple[str, str, str, int], Figures]
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
    figures = {
        "average": outcome.summary.average_jct_seconds,
        "p99": outcome.summary.p99_jct_seconds,
        "cloud chunks": sum(site.chunks for site in result.sites if site.is_cloud) / chunks,
        "cloud jobs": in_cloud / len(result.jobs),
        "cloud GPU-hours": outcome.summary.cloud_gpu_seconds / 3600,
        "communication": 1 - computed / trained,
    }
    if outcome.bound_seconds is not None:
        figures["bound"] = outcome.bound_seconds
    return figures


def key_of(cell: Cell) -> str:
    """Return the name of a cell in the file of stored figures."""
    return blake2b(repr(cell).encode(), digest_size=16).hexdigest()


def simulate(cells: Iterable[Cell], processes: int | None, *, again: bool) -> dict[Cell, Figures]:
    """Return figures of all cells; stored ones are not simulated again.

    Raises:
        SystemExit: A simulation failed, or some of its jobs never completed.
    """
    distinct = list(dict.fromkeys(cells))
    stored: dict[str, Figures] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    missing = [cell for cell in distinct if again or key_of(cell) not in stored]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    pool: Pool = SerialPool() if processes == 1 else ProcessPool(processes)
    with progress_bar("simulations", quiet=False) as on_progress:
        for first in range(0, len(missing), SAVED_EVERY):
            part = missing[first : first + SAVED_EVERY]
            for cell, answer in zip(part, run_cells(part, pool, lambda: None), strict=True):
                if isinstance(answer, Failure):
                    sys.exit(f"Error: {answer.name} failed: {answer.reason}")
                try:
                    stored[key_of(cell)] = figures_of(answer)
                except ValueError as error:
                    sys.exit(f"Error: {error}")
            KEPT.write_text(json.dumps(stored, indent=0))
            if on_progress is not None:
                on_progress(first + len(part), len(missing))
    return {cell: stored[key_of(cell)] for cell in distinct}


def mean_of(by_place: FiguresByPlace, panel: str, point: str, policy: str, figure: str) -> float:
    """Return the mean over the seeds."""
    return fmean(values[figure] for (*place, _), values in by_place.items() if place == [panel, point, policy])


def table_of(sweep: Sweep, by_place: FiguresByPlace, figure: str) -> Rows:
    """Return a table with panels and values down, policies across."""
    kind = FIGURES[figure]
    rows: Rows = [("setting", sweep.axis, *sweep.policies)]
    for panel in sweep.panels:
        for point in sweep.points:
            values = (mean_of(by_place, panel.title, point.label, policy, figure) for policy in sweep.policies)
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


def reductions(by_place: FiguresByPlace, panel: str, point: str, ours: str, other: str) -> tuple[float, float, float]:
    """Return by how many percent one policy's average JCT is below another's: mean of seeds, least, most."""
    seeds = sorted({seed for *_, seed in by_place})
    by_seed = [
        100 * (1 - by_place[panel, point, ours, seed]["average"] / by_place[panel, point, other, seed]["average"])
        for seed in seeds
    ]
    return fmean(by_seed), min(by_seed), max(by_seed)


def base_sweep() -> Sweep:
    """Return a sweep of one point, without a change."""
    return replace(sweeps()[0], name=BASE, points=(replace(sweeps()[0].points[0], label=BASE, changes={}, x=None),))


def claims(base: FiguresByPlace, optimum: Mapping[str, Any], scope: str, command: str) -> Rows:
    """Return the claims of JSAC'22 beside the figures measured here.

    Args:
        base: Figures of `base_sweep`.
        optimum: Ratios of `optimum_ratios`.
        scope: Jobs and seeds, in words.
        command: Command that measures all of it.
    """
    rows: Rows = [("published claim", "our setting [I]", "measured", "command")]
    for kind, name in (("relaxed", "OPT_LP⁺"), ("exact", "2 · OPT")):
        worst = max((row for row in optimum[kind] if row["epsilon"]), key=lambda row: row["worst"] / row["bound"])
        part = worst["worst"] / worst["bound"]
        above = any(row["worst"] > row["bound"] for row in optimum[kind])
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
                    f"`{panel}`, {scope}; reduction by `{ours}` against others",
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


def draw_sweep(sweep: Sweep, by_place: FiguresByPlace) -> Draw:
    """Return a function that draws one axes a panel, one curve a policy."""
    figure_name = sweep.figures[0]
    kind = FIGURES[figure_name]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, len(sweep.panels), squeeze=False)[0]
        for axis, panel in zip(axes, sweep.panels, strict=True):
            for policy, style, marker in zip(sweep.policies, lines(theme), MARKERS, strict=False):
                heights = [
                    kind.factor * mean_of(by_place, panel.title, point.label, policy, figure_name)
                    for point in sweep.points
                ]
                places = [place_of(sweep, by_place, panel, policy, number) for number in range(len(sweep.points))]
                named = not sweep.against and sweep.points[0].x is None
                style = {**style, "linestyle": ""} if named else style
                axis.plot(places, heights, marker=marker, markersize=5, linewidth=1.6, label=policy, **style)
                if sweep.against:
                    for place, height, point in zip(places, heights, sweep.points, strict=True):
                        axis.annotate(point.label, (place, height), (4, 4), textcoords="offset points", fontsize=9)
            if sweep.points[0].x is None:
                names = [point.label for point in sweep.points]
                axis.set_xticks(range(len(names)), names, rotation=20 if len(names) > 3 else 0, ha="center", fontsize=8)
            elif sweep.logarithmic:
                logarithmic(axis.xaxis, [point.x or 0.0 for point in sweep.points])
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


def place_of(sweep: Sweep, by_place: FiguresByPlace, panel: Panel, policy: str, number: int) -> float:
    """Return the position of a point on the axis of the picture."""
    point = sweep.points[number]
    if sweep.against:
        return FIGURES[sweep.against].factor * mean_of(by_place, panel.title, point.label, policy, sweep.against)
    return float(number) if point.x is None else point.x


@cache
def optimum_ratios(instances: int) -> dict[str, Any]:
    """Return F of `chunk-faithful` over optima of small instances, by kind and ε."""
    sys.path.insert(0, str(ROOT / "tests"))  # of flow_optima
    from competitive_ratio import ratios

    return {"instances": instances, "relaxed": ratios("relaxed", instances, 1), "exact": ratios("exact", instances, 1)}


def optimum_table(optimum: Mapping[str, Any]) -> Rows:
    """Return the table by ε."""
    rows: Rows = [
        ("ε", "F/OPT_LP⁺: mean", "worst", "bound 1 + 1/ε", "F/OPT: mean", "worst", "bound 2 (1 + 1/ε)"),
    ]
    for relaxed, exact in zip(optimum["relaxed"], optimum["exact"], strict=True):
        cells = [f"{relaxed['epsilon']:g}"]
        for row in (relaxed, exact):
            bound = f"{row['bound']:.1f}" if isfinite(row["bound"]) else "none"
            cells += [f"{row['mean']:.3f}", f"{row['worst']:.3f}", bound]
        rows.append(cells)
    return rows


def draw_optimum(optimum: Mapping[str, Any]) -> Draw:
    """Return a function that draws mean and worst ratio against the bound."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, 2)
        for axis, kind, name in zip(axes, ("relaxed", "exact"), ("F / OPT_LP⁺", "F / OPT"), strict=True):
            for column, style in zip(("worst", "mean", "bound"), lines(theme), strict=False):
                points = [(row["epsilon"], row[column]) for row in optimum[kind] if isfinite(row[column])]
                axis.plot(*zip(*points, strict=True), marker="o", label=column, **style)
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
    by_place = {}
    for panel in (CLOUD, EDGE):
        for count in counts:
            for policy in POLICIES:
                cell = base.changed(panel.changes).changed({"jobs": count}).cell(log, policy, seed)
                seconds = arrival_seconds(cell.recipe.build(policy, seed, cell.load))
                p99 = quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]
                by_place[panel.title, count, policy] = (1000 * median(seconds), 1000 * p99)
    return by_place


def scheduling_table(times: Mapping[tuple[str, int, str], Any]) -> Rows:
    """Return a table with median and p99 in one cell."""
    rows: Rows = [("setting", "jobs", *POLICIES)]
    for panel, count in dict.fromkeys((panel, count) for panel, count, _ in times):
        cells = ("{:.1f} / {:.1f}".format(*times[panel, count, policy]) for policy in POLICIES)
        rows.append((panel, str(count), *cells))
    return rows


def draw_scheduling(times: Mapping[tuple[str, int, str], Any]) -> Draw:
    """Return a function that draws the median by number of jobs."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for axis, panel in zip(axes, (CLOUD.title, EDGE.title), strict=True):
            for policy, style, marker in zip(POLICIES, lines(theme), MARKERS, strict=False):
                points = [
                    (count, value[0])
                    for (preset, count, name), value in times.items()
                    if (preset, name) == (panel, policy)
                ]
                axis.plot(*zip(*points, strict=True), marker=marker, markersize=5, label=policy, **style)
            axis.set(xlabel="jobs", title=panel)
            logarithmic(axis.yaxis, (0.03, 0.1, 0.3, 1, 3, 10, 30, 100))
            axis.grid(visible=True)
        axes[0].set_ylabel("CPU ms of an arrival, median")
        heading(figure, "Scheduling time of a job [I]")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)

    return draw


def report_runs(base: Setting, log: FileLog, seed: int) -> list[ReportRun]:
    """Return one run of each policy."""
    runs = []
    for policy in POLICIES:
        cell = base.cell(log, policy, seed)
        result = run(cell.recipe.build(policy, seed, cell.load))
        runs.append(ReportRun(policy, result, summarize(result)))
    return runs


def chunk_windows(result: SimulationResult) -> list[Occupation]:
    """Return times and places of each chunk's training, as bars of a Gantt chart."""
    gpus = {job.key: job.gpus // len(job.chunk_completions) for job in result.jobs}
    return [
        Occupation(key, window.site, window.node or window.site, gpus[key], window.start, window.end, window.outcome)
        for key, chunks in result.chunks.items()
        for chunk in chunks
        for window in chunk.executed
    ]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Settings, seeds and output of a run, from the command line."""

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


def sweep_section(sweep: Sweep, by_place: FiguresByPlace, options: SweepOptions) -> Iterator[str]:
    """Yield heading, tables and picture."""
    yield f"### {sweep.title}\n"
    for figure in sweep.figures:
        yield f"{FIGURES[figure].heading[0].upper()}{FIGURES[figure].heading[1:]}:\n"
        yield f"{markdown(table_of(sweep, by_place, figure))}\n"
    yield from options.draw(sweep.name, f"{sweep.title}, ours [I]", draw_sweep(sweep, by_place))


def optimum_section(options: SweepOptions) -> Iterator[str]:
    """Yield the ratios to optima."""
    optimum = optimum_ratios(options.instances)
    yield "### Ratio to the offline optimum\n"
    yield (
        f"`chunk-faithful` at speed 1 + ε against optima at speed 1, {options.instances} drawn instances of each kind: "
        "at most three jobs on 1 to 10 workers for OPT_LP⁺, two to five chunks on one or two workers for OPT.\n"
    )
    yield f"{markdown(optimum_table(optimum))}\n"
    yield from options.draw("optimum", "Ratio to the offline optimum, ours [I]", draw_optimum(optimum))


def scheduling_section(options: SweepOptions, counts: Sequence[int]) -> Iterator[str]:
    """Yield the cost of an arrival."""
    times = scheduling_times(options.base, options.log, counts, options.seeds[0])
    yield "### Scheduling time of a job\n"
    yield "CPU milliseconds of the decision at an arrival, median / p99 over the jobs of one run:\n"
    yield f"{markdown(scheduling_table(times))}\n"
    yield from options.draw("scheduling", "Scheduling time of a job, ours [I]", draw_scheduling(times))


def runs_section(options: SweepOptions) -> Iterator[str]:
    """Yield the distribution of JCT, and chunk windows of a small run."""
    yield "### One run\n"
    for panel in (CLOUD, EDGE):
        runs = report_runs(options.base.changed(panel.changes), options.log, options.seeds[0])
        caption = f"Distribution of JCT in {panel.title}, seed {options.seeds[0]}, ours [I]"
        yield from options.draw(f"cdf-{panel.title}", caption, draw_cdf(runs), 5.0, 8.0)
    small = options.base.changed({"jobs": 8, "chunk_scale": 0.1})
    for policy in ("chunk", "chunk-faithful"):
        cell = small.cell(options.log, policy, options.seeds[0])
        result = run(cell.recipe.build(policy, options.seeds[0], cell.load, record=True))
        chart = lay_out(chunk_windows(result), result.samples)
        caption = f"Windows of chunks of eight small jobs in jsac-cloud under {policy}, ours [I]"
        drawn = draw_gantt(f"windows of chunks, {policy} [I]", chart)
        yield from options.draw(f"gantt-{policy}", caption, drawn, chart_height(chart), 8.0)


def claims_section(options: SweepOptions) -> Iterator[str]:
    """Yield the table of claims."""
    cells = base_sweep().cells(options.claimed, options.log, options.seeds)
    figures = simulate(cells.values(), options.processes, again=options.again)
    base = {place: figures[cell] for place, cell in cells.items()}
    yield "### Published claims\n"
    yield (
        "The baselines of the published evaluation are not known to us, so 30 % cannot be confirmed or refuted: what a "
        "policy is compared with decides the figure. Reductions are means of ratios within a seed, with the range over "
        "the seeds. They are for all chunks (D), also where the other tables have a part of them.\n"
    )
    scope = words_of(options.claimed, options.seeds)
    rows = claims(base, optimum_ratios(options.instances), scope, options.command)
    yield f"{markdown(rows, words=4)}\n"


def sections(
    options: SweepOptions, chosen: Sequence[Sweep], counts: Sequence[int]
) -> dict[str, Callable[[], Iterator[str]]]:
    """Return the sections that can be printed, by name."""

    def swept(sweep: Sweep) -> Iterator[str]:
        cells = sweep.cells(options.base, options.log, options.seeds)
        figures = simulate(cells.values(), options.processes, again=options.again)
        yield from sweep_section(sweep, {place: figures[cell] for place, cell in cells.items()}, options)

    by_name: dict[str, Callable[[], Iterator[str]]] = {"claims": lambda: claims_section(options)}
    for sweep in chosen:
        by_name[sweep.name] = lambda sweep=sweep: swept(sweep)  # type: ignore[misc]
    by_name["optimum"] = lambda: optimum_section(options)
    by_name["scheduling"] = lambda: scheduling_section(options, counts)
    by_name["runs"] = lambda: runs_section(options)
    return by_name


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
    sweep_options = SweepOptions(
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
    scope = words_of(sweep_options.base, sweep_options.seeds)
    print(f"Arrivals of {options.arrivals.name.partition('.')[0]}; {scope}, unless a table says otherwise.\n")
    for name, section in sections(sweep_options, chosen, counts).items():
        if options.only is None or name in options.only:
            for text in section():
                print(text, flush=True)


if __name__ == "__main__":
    main()
