"""Plot of the cluster's load over time: GPUs in use and jobs that wait, one row a run."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tranche.simulation.engine.result import Sample, SimulationResult
from tranche.simulation_report.formatting import time_unit
from tranche.simulation_report.plot_style import Theme, heading
from tranche.simulation_report.report_run import ReportRun

MAX_ROWS = 6
BINS = 300
"""Number of bins along the time axis; each shows the mean of its period."""

Floats = NDArray[np.float64]


def draw_load(runs: Sequence[ReportRun]) -> Callable[[Figure, Theme], None]:
    """Return a function that draws GPUs in use (left) and waiting jobs (right) over time, one row a run."""
    shown = runs[:MAX_ROWS]

    def draw(figure: Figure, theme: Theme) -> None:
        grid = figure.subplots(len(shown), 2, squeeze=False, sharex=True, sharey="col")
        begin = min(run.result.samples[0].at for run in shown)
        end = max(ends_at(run.result) for run in shown)
        unit, name = time_unit(end - begin)
        share = all(run.result.capacity_gpus for run in shown)
        for (left, right), run in zip(grid, shown, strict=True):
            edges, busy, waiting = load_curves(run.result.samples, ends_at(run.result))
            if share:
                busy = 100 * busy / run.result.capacity_gpus
            at = (edges - begin) / unit
            left.stairs(busy, at, fill=True, color=theme.series[0], alpha=0.85)
            right.stairs(waiting, at, fill=True, color=theme.series[1], alpha=0.85)
            left.set_title(run.label)
            for axes in (left, right):
                axes.grid(visible=True)
            right.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        grid[0][0].set_ylim(0, 102 if share else None)
        grid[0][1].set_ylim(0, None)
        grid[0][0].set_xlim(0, (end - begin) / unit)
        figure.supxlabel(f"time in {name} (means of {BINS} equal stretches of a run)", fontsize=11)
        used = "GPUs in use, %" if share else "GPUs in use"
        for row in grid:
            row[0].set_ylabel(used)
            row[1].set_ylabel("jobs waiting")
        lacking = "" if len(shown) == len(runs) else f" (the first {len(shown)} of {len(runs)} runs)"
        heading(figure, "Simulated load of the cluster over time" + lacking)

    return draw


def load_curves(samples: Sequence[Sample], end: float) -> tuple[Floats, Floats, Floats]:
    """Return mean GPUs in use and mean waiting jobs in equal periods of time.

    Args:
        samples: At least one sample, in order of time; each holds until the next, the last one until `end`.
        end: End in seconds; if it is not later than the last sample, a moment after that is used.

    Returns:
        The edges of the periods in seconds (one more than periods), and the two means of each period.
    """
    at = np.array([sample.at for sample in samples], dtype=np.float64)
    at = np.append(at, max(end, float(at[-1]) + 1e-3))
    edges = np.linspace(float(at[0]), float(at[-1]), BINS + 1)

    def means(values: list[int]) -> Floats:
        areas = np.concatenate(([0.0], np.cumsum(np.array(values, dtype=np.float64) * np.diff(at))))
        return np.diff(np.interp(edges, at, areas)) / np.diff(edges)

    return edges, means([s.busy_gpus for s in samples]), means([s.waiting_jobs for s in samples])


def ends_at(result: SimulationResult) -> float:
    """Return when the last job completed or the last sample was taken, in seconds."""
    return max([result.samples[-1].at, *(job.completed for job in result.jobs[-1:])])
