"""Plots over all runs: distribution of completion times, completion time by job size."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tranche.simulation_report.formatting import format_duration
from tranche.simulation_report.plot_style import Theme, heading, legend_below, lines, logarithmic_durations
from tranche.simulation_report.report_run import ReportRun

MAX_CURVES = 12
MAX_SERIES = 6
POINTS = 2000
"""Maximum number of points of one curve; more cannot be distinguished."""
MAX_SIZES = 8
"""Maximum number of job sizes to show separately; more are grouped into classes of powers of two."""

Floats = NDArray[np.float64]


def draw_cdf(runs: Sequence[ReportRun]) -> Callable[[Figure, Theme], None]:
    """Return a function that draws the share of jobs completed within a time, one curve a run; log time axis.

    Jobs that never completed count: a run that leaves out long jobs does not look better for it.
    """
    shown = runs[:MAX_CURVES]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        values = [jct_of(run) for run in shown]
        low = min(float(v[0]) for v in values)
        high = max(float(v[-1]) for v in values)
        for run, jct, style in zip(shown, values, lines(theme), strict=False):
            picked = np.unique(np.linspace(0, len(jct) - 1, min(len(jct), POINTS)).round().astype(int))
            lacking = len(run.result.unfinished)
            x = np.concatenate(([jct[0]], jct[picked], [high * 1.25]))
            y = 100 * np.concatenate(([0], picked + 1, [len(jct)])) / (len(jct) + lacking)
            axes.step(
                x,
                y,
                where="post",
                linewidth=1.8,
                label=f"{run.label}: median {format_duration(run.summary.median_jct_seconds)}"
                + (f", {lacking:,} never completed" if lacking else ""),
                **style,
            )
        logarithmic_durations(axes.xaxis, low / 1.25, high * 1.25)
        axes.set(ylim=(0, 102), xlabel="job completion time (logarithmic)", ylabel="jobs completed within it, %")
        axes.grid(visible=True)
        heading(figure, "Simulated job completion times" + _first(len(shown), len(runs)))
        if len(shown) == 1:
            axes.set_title(axes.get_legend_handles_labels()[1][0], color=theme.muted)
        legend_below(figure, axes, len(shown))

    return draw


def draw_sizes(runs: Sequence[ReportRun]) -> Callable[[Figure, Theme], None]:
    """Return a function that draws the median completion time (dot) and the middle 80 % of jobs (line) by job size."""
    shown = runs[:MAX_SERIES]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        classes = size_classes([job.gpus for run in shown for job in run.result.jobs])
        low, high = float("inf"), 0.0
        step = min(0.16, 0.8 / len(shown))
        for place, (run, style) in enumerate(zip(shown, lines(theme), strict=False)):
            groups = [_lifted([j.jct_seconds for j in run.result.jobs if a <= j.gpus <= b]) for a, b in classes]
            filled = [(index, group) for index, group in enumerate(groups) if group.size]
            at = np.array([index for index, _ in filled]) + (place - (len(shown) - 1) / 2) * step
            p10, median, p90 = np.array([np.percentile(group, (10, 50, 90)) for _, group in filled]).T
            axes.vlines(at, p10, p90, color=style["color"], linewidth=2.4, alpha=0.75)
            axes.plot(
                at, median, "o", markersize=6.5, markeredgecolor=theme.paper, color=style["color"], label=run.label
            )
            low, high = min(low, float(p10.min())), max(high, float(p90.max()))
        logarithmic_durations(axes.yaxis, low / 1.4, high * 1.4)
        axes.set_xticks(range(len(classes)), _class_names(classes, shown[0]))
        axes.set(xlim=(-0.6, len(classes) - 0.4), xlabel="GPUs of the job (and how many such jobs completed)")
        axes.set_ylabel("job completion time (logarithmic)")
        axes.grid(visible=True, axis="y")
        heading(figure, "Simulated completion time by job size" + _first(len(shown), len(runs)))
        axes.set_title("dot: median; line: from the 10th to the 90th percentile", color=theme.muted)
        legend_below(figure, axes, len(shown))

    return draw


def size_classes(gpus: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of GPU counts, both ends included: single counts if few, else classes that end at powers of two."""
    counts = sorted(set(gpus))
    if len(counts) <= MAX_SIZES:
        return [(count, count) for count in counts]
    tops = sorted({1 << max(0, count - 1).bit_length() for count in counts})
    return [(top // 2 + 1 if top > 1 else 0, top) for top in tops]


def jct_of(run: ReportRun) -> Floats:
    """Return completion times of a run in seconds, ascending, at least a millisecond for logarithmic axes."""
    return _lifted([job.jct_seconds for job in run.result.jobs])


def _lifted(values: list[float]) -> Floats:
    return np.sort(np.maximum(np.array(values, dtype=np.float64), 1e-3))


def _class_names(classes: Sequence[tuple[int, int]], run: ReportRun) -> list[str]:
    names = []
    for first, last in classes:
        count = sum(first <= job.gpus <= last for job in run.result.jobs)
        names.append(f"{last if first in (0, last) else f'{first}–{last}'}\n({count:,})")
    return names


def _first(shown: int, of: int) -> str:
    return "" if shown == of else f" (the first {shown} of {of} runs)"
