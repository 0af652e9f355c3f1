"""Pictures of dashboards, drawn from Prometheus' data of a run: the same panels, without Grafana."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import isfinite, nan
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tranche_observability.panels import Dashboard, Panel, Query

Labels = tuple[tuple[str, str], ...]
Course = Sequence[tuple[float, float]]
"""Pairs of time and value."""
Ask = Callable[[Query], Mapping[Labels, Course]]
"""Function that evaluates a query over the drawn period."""

COLUMNS = 2
PANEL_INCHES = (6.2, 2.5)
DPI = 100
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#59636e", "#b00020")
"""Colours of Okabe and Ito, which colour-blind readers can distinguish."""
INK, MUTED, GRID = "#1b1f24", "#59636e", "#dfe3e8"
_SCALES = {"bytes": 2**20, "Bps": 2**10}
"""Factor between the unit and the displayed one."""
_SETTINGS: Any = {"font.size": 9, "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}


def draw(dashboard: Dashboard, ask: Ask, period: tuple[float, float], path: Path) -> None:
    """Write the picture of a dashboard.

    Args:
        dashboard: The dashboard to draw.
        ask: Queries Prometheus; a panel with a single number shows the last value.
        period: Start and end in seconds of the clock; the axis starts at zero.
        path: PNG file to write.
    """
    rows = -(-len(dashboard.panels) // COLUMNS)
    with rc_context(_SETTINGS):
        figure = Figure((PANEL_INCHES[0] * COLUMNS, PANEL_INCHES[1] * rows + 0.5), dpi=DPI, layout="constrained")
        figure.suptitle(dashboard.title, x=0.01, ha="left", color=INK, fontsize=13)
        for number, axes in enumerate(figure.subplots(rows, COLUMNS, squeeze=False).flat):
            if number >= len(dashboard.panels):
                axes.set_axis_off()
                continue
            _panel(axes, dashboard.panels[number], ask, period)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
    path.write_bytes(buffer.getvalue())


def _panel(axes: Axes, panel: Panel, ask: Ask, period: tuple[float, float]) -> None:
    axes.set_title(panel.title, loc="left", color=INK, fontsize=10)
    courses: dict[str, Course] = {}
    for query in panel.queries:
        for labels, course in ask(query).items():
            known = [(at - period[0], value) for at, value in course if isfinite(value)]
            if known:
                courses[_name(query, dict(labels))] = known
    if not courses:
        axes.text(0.5, 0.5, "nothing in this time", ha="center", va="center", color=MUTED, transform=axes.transAxes)
        axes.set_axis_off()
        return
    match panel.look:
        case "stat":
            _numbers(axes, panel, courses)
        case "heatmap":
            _distribution(axes, panel, courses)
        case _:
            _lines(axes, panel, courses)
            axes.set_xlim(0, period[1] - period[0])


def _name(query: Query, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), query.legend)


def _numbers(axes: Axes, panel: Panel, courses: Mapping[str, Course]) -> None:
    axes.set_axis_off()
    for number, (name, course) in enumerate(courses.items()):
        x = (number + 0.5) / len(courses)
        text = _format(panel, course[-1][1])
        axes.text(x, 0.55, text, ha="center", color=COLOURS[0], fontsize=18, transform=axes.transAxes)
        axes.text(x, 0.3, name, ha="center", color=MUTED, transform=axes.transAxes)


def _distribution(axes: Axes, panel: Panel, courses: Mapping[str, Course]) -> None:
    """Draw the final values of the buckets as bars."""
    bounds = sorted((name for name in courses if name != "+Inf"), key=float)
    total = [courses[bound][-1][1] for bound in bounds]
    counts = [after - before for before, after in zip([0.0, *total], total, strict=False)]
    shown = [n for n, count in enumerate(counts) if count > 0.05]
    if not shown:
        return
    kept = range(max(shown[0] - 1, 0), min(shown[-1] + 2, len(counts)))
    axes.bar([f"≤ {float(bounds[n]):g} s" for n in kept], [counts[n] for n in kept], color=COLOURS[0])
    axes.set_ylabel("jobs", color=MUTED)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


def _lines(axes: Axes, panel: Panel, courses: Mapping[str, Course]) -> None:
    for number, (name, course) in enumerate(sorted(courses.items(), key=lambda one: _natural(one[0]))):
        moments, values = zip(*_with_gaps(course), strict=True)
        colour = COLOURS[number % len(COLOURS)]
        style = ("-", "--", ":")[number % 3]
        axes.plot(moments, values, style, color=colour, label=name, lw=1.6, drawstyle="steps-post")
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID)
    if scale := _SCALES.get(panel.unit):
        top = axes.get_ylim()[1]
        marks = [scale * mark for mark in MaxNLocator(6).tick_values(0, top / scale)]
        axes.yaxis.set_ticks([mark for mark in marks if mark <= top])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _format(panel, value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    axes.tick_params(colors=MUTED)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8, handlelength=1.6)


def _natural(name: str) -> list[float | str]:
    """Return a sort key that compares numbers in a name by value."""
    parts = re.split(r"(\d+|\+Inf)", name)
    return [float(part) if number % 2 else part for number, part in enumerate(parts)]


def _with_gaps(course: Course) -> list[tuple[float, float]]:
    """Insert NaN into gaps that are longer than the usual step, so that no line crosses them."""
    step = min((after - before for (before, _), (after, _) in pairwise(course)), default=0.0)
    filled = [course[0]]
    for before, after in pairwise(course):
        if after[0] - before[0] > 1.5 * step:
            filled.append((before[0] + step, nan))
        filled.append(after)
    return filled


def _format(panel: Panel, value: float) -> str:
    match panel.unit:
        case "s":
            return f"{value:.3g} s" if value >= 0.1 or not value else f"{1000 * value:.3g} ms"
        case "percentunit":
            return f"{100 * value:.3g} %"
        case "bytes":
            return f"{value / _SCALES['bytes']:.3g} MiB"
        case "Bps":
            return f"{value / _SCALES['Bps']:.3g} KiB/s"
        case "cps" | "reqps" | "wps":
            return f"{value:.3g} /s"
    return f"{value:.3g}"
