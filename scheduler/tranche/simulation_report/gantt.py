"""Gantt chart of one run's worker pods on the GPUs."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tranche.simulation_report.formatting import time_unit
from tranche.simulation_report.gantt_layout import Bar, Chart
from tranche.simulation_report.plot_style import Theme, heading, text_on


def draw_gantt(label: str, chart: Chart) -> Callable[[Figure, Theme], None]:
    """Return a function that draws worker pods as bars, one lane a GPU, one colour a job (colours repeat)."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        colours = _colours(chart, theme)
        unit, name = time_unit(chart.end - chart.begin)
        origin = 0.0 if chart.begin < 3 * (chart.end - chart.begin) else chart.begin
        _bars(axes, chart, theme, colours, unit, origin)
        _marks(axes, chart, theme, unit, origin)
        _names(axes, chart, colours, unit, origin)
        lanes = sum(width for _, _, width in chart.nodes)
        axes.set_xlim((chart.begin - origin) / unit, (chart.end - origin) / unit)
        axes.set_ylim(lanes, 0)
        axes.set_yticks([first + width / 2 for _, first, width in chart.nodes], [n for n, _, _ in chart.nodes])
        axes.tick_params(axis="y", length=0)
        for _, first, _ in chart.nodes[1:]:
            axes.axhline(first, color=theme.muted, linewidth=0.8)
        since = "" if not origin else f" from second {origin:,.0f} of the run"
        axes.set_xlabel(f"time in {name}{since}")
        axes.set_ylabel(f"GPUs ({lanes} lanes)")
        heading(figure, f"Simulated workers on GPUs: {label}")
        axes.set_title(
            f"{chart.scope + '; ' if chart.scope else ''}a colour is a job (colours repeat)", color=theme.muted
        )
        _legend(figure, chart, theme)

    return draw


def chart_height(chart: Chart) -> float:
    """Return the height of the picture in inches."""
    return 1.9 + 0.13 * sum(width for _, _, width in chart.nodes)


def _colours(chart: Chart, theme: Theme) -> dict[str, str]:
    """Return one colour a job, in the order in which they first start, so that neighbors in time differ."""
    jobs = dict.fromkeys(o.job for o in sorted((b.occupation for b in chart.bars), key=lambda o: (o.opened, o.job)))
    return {job: theme.series[number % len(theme.series)] for number, job in enumerate(jobs)}


def _bars(axes: Axes, chart: Chart, theme: Theme, colours: dict[str, str], unit: float, origin: float) -> None:
    corners = []
    for bar in chart.bars:
        left, right = ((time - origin) / unit for time in (bar.occupation.opened, bar.occupation.ended))
        top, bottom = bar.lane + 0.06, bar.lane + bar.lanes - 0.06
        corners.append([(left, top), (right, top), (right, bottom), (left, bottom)])
    edge = 0.6 if len(chart.bars) < 400 else 0.2
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=[colours[bar.occupation.job] for bar in chart.bars],
            edgecolors=theme.paper,
            linewidths=edge,
        )
    )


def _marks(axes: Axes, chart: Chart, theme: Theme, unit: float, origin: float) -> None:
    stopped = _ends(chart, "Preempted")
    axes.vlines(
        [(bar.occupation.ended - origin) / unit for bar in stopped],
        [bar.lane + 0.06 for bar in stopped],
        [bar.lane + bar.lanes - 0.06 for bar in stopped],
        color=theme.ink,
        linewidth=1.4 if len(stopped) < 200 else 0.7,
    )
    lost = _ends(chart, "Lost")
    axes.plot(
        [(bar.occupation.ended - origin) / unit for bar in lost],
        [bar.lane + bar.lanes / 2 for bar in lost],
        "X",
        color=theme.alarm,
        markeredgecolor=theme.paper,
        markersize=8,
        clip_on=True,
    )


def _names(axes: Axes, chart: Chart, colours: dict[str, str], unit: float, origin: float) -> None:
    """Write jobs' names on the bars that have room for them."""
    for bar in chart.bars:
        name = bar.occupation.job.rpartition("/")[2]
        begin, end = max(bar.occupation.opened, chart.begin), min(bar.occupation.ended, chart.end)
        if (end - begin) / (chart.end - chart.begin) > 0.013 * (len(name) + 1):
            middle = ((begin + end) / 2 - origin) / unit
            place = bar.lane + bar.lanes / 2
            axes.text(
                middle,
                place,
                name,
                ha="center",
                va="center",
                fontsize=7.5,
                color=text_on(colours[bar.occupation.job]),
                clip_on=True,
            )


def _legend(figure: Figure, chart: Chart, theme: Theme) -> None:
    handles = []
    if _ends(chart, "Preempted"):
        handles.append(Line2D([], [], marker="|", linestyle="", color=theme.ink, markersize=11, markeredgewidth=1.6))
    if _ends(chart, "Lost"):
        handles.append(Line2D([], [], marker="X", linestyle="", color=theme.alarm, markersize=8))
    texts = [
        t for o, t in (("Preempted", "stopped for another job"), ("Lost", "lost with its node")) if _ends(chart, o)
    ]
    if handles:
        figure.legend(handles, texts, loc="outside lower center", ncols=2)


def _ends(chart: Chart, outcome: str) -> list[Bar]:
    return [bar for bar in chart.bars if bar.occupation.outcome == outcome and bar.occupation.ended <= chart.end]
