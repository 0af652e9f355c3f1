"""Data that pictures are drawn from; test_writers checks that they are drawn."""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure

from support.simulated_results import full_result, job_result, report_run
from tranche.simulation.engine.result import Sample, SimulationResult
from tranche.simulation_report.distribution_plot import MAX_CURVES, draw_cdf, draw_sizes, size_classes
from tranche.simulation_report.gantt import draw_gantt
from tranche.simulation_report.gantt_layout import lay_out
from tranche.simulation_report.load_plot import draw_load, load_curves
from tranche.simulation_report.plot_style import LIGHT, Draw, lines, logarithmic_durations, render, text_on

PNG = b"\x89PNG\r\n\x1a\n"


def test_load_is_the_mean_over_time_of_each_stretch() -> None:
    edges, busy, waiting = load_curves([Sample(0.0, 4, 0), Sample(150.0, 0, 2)], 300.0)
    assert len(edges) == len(busy) + 1
    assert busy[0] == 4.0
    assert busy[-1] == 0.0
    assert busy.sum() * (edges[1] - edges[0]) == pytest.approx(4 * 150.0)
    assert waiting.sum() * (edges[1] - edges[0]) == pytest.approx(2 * 150.0)


def test_load_of_a_single_instant_is_drawn() -> None:
    edges, busy, _ = load_curves([Sample(5.0, 3, 1)], 5.0)
    assert np.all(np.diff(edges) > 0)
    assert np.allclose(busy, 3.0)


def test_few_sizes_are_single_classes_and_many_are_powers_of_two() -> None:
    assert size_classes([8, 1, 8, 4]) == [(1, 1), (4, 4), (8, 8)]
    assert size_classes([1, 2, 3, 5, 6, 7, 8, 9, 100]) == [(0, 1), (2, 2), (3, 4), (5, 8), (9, 16), (65, 128)]


def test_every_size_is_in_exactly_one_class() -> None:
    sizes = list(range(0, 200, 3))
    classes = size_classes(sizes)
    assert all(sum(first <= size <= last for first, last in classes) == 1 for size in sizes)


def test_cdf_counts_jobs_that_never_completed() -> None:
    figure = Figure(layout="constrained")
    draw_cdf([report_run("fifo"), report_run("srsf")])(figure, LIGHT)
    axes = figure.axes[0]
    curves = axes.get_lines()
    assert [curve.get_label() for curve in curves] == [
        f"{policy}: median 1 min, 1 never completed" for policy in ("fifo", "srsf")
    ]
    x, y = np.array(curves[0].get_xdata()), np.array(curves[0].get_ydata())
    assert y[-1] == 75.0
    assert [float(y[x <= at][-1]) for at in (10.0, 60.0, 79.0)] == pytest.approx([25.0, 50.0, 50.0])
    assert axes.get_xscale() == "log"


def test_legend_rows_have_the_order_of_the_series() -> None:
    figure = Figure(layout="constrained")
    draw_sizes([report_run(name) for name in "12345"])(figure, LIGHT)
    (legend,) = figure.legends
    figure.savefig(BytesIO(), format="png")
    places = {text.get_text(): text.get_window_extent().get_points()[0] for text in legend.get_texts()}
    assert sorted(places, key=lambda name: (-round(places[name][1]), places[name][0])) == list("12345")


def test_short_axes_of_durations_have_round_ticks() -> None:
    axes = Figure().subplots()
    logarithmic_durations(axes.xaxis, 16_000.0, 400_000.0)
    ticks = [axes.xaxis.get_major_formatter()(value, 0) for value in axes.xaxis.get_majorticklocs()]
    assert ticks == ["6 h", "9 h", "12 h", "18 h", "1 d", "1.5 d", "2 d", "3 d"]


@pytest.mark.parametrize("draw", [draw_cdf, draw_sizes, draw_load])
def test_titles_of_pictures_say_simulated(draw: Callable[..., Draw]) -> None:
    figure = Figure(layout="constrained")
    draw([report_run("a")])(figure, LIGHT)
    assert figure.get_suptitle().startswith("Simulated ")


def test_too_many_runs_are_left_out_aloud() -> None:
    figure = Figure(layout="constrained")
    draw_cdf([report_run(f"run {i}") for i in range(MAX_CURVES + 3)])(figure, LIGHT)
    assert len(figure.axes[0].get_lines()) == MAX_CURVES
    assert "the first 12 of 15 runs" in figure.get_suptitle()


def test_the_gantt_chart_says_what_its_marks_mean() -> None:
    figure = Figure(layout="constrained")
    draw_gantt("srsf", lay_out(full_result().occupations))(figure, LIGHT)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "stopped for another job",
        "lost with its node",
    ]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["node-1", "node-2"]


def test_curves_differ_in_colour_or_dashes() -> None:
    styles = [style for style, _ in zip(lines(LIGHT), range(18), strict=False)]
    assert len({(style["color"], str(style["linestyle"])) for style in styles}) == 18


def test_names_on_bars_are_legible() -> None:
    assert text_on("#ffffff") == "#000000"
    assert text_on("#0072b2") == "#ffffff"


@pytest.mark.parametrize("jcts", [[0.0], [5.0, 5.0, 5.0], [0.01, 5e8], [3.0, 3.1]])
def test_any_completion_times_can_be_drawn(jcts: list[float]) -> None:
    jobs = tuple(job_result(f"j{i}", 0.0, jct) for i, jct in enumerate(jcts))
    run = report_run("x", SimulationResult(jobs, capacity_gpus=1, samples=(Sample(0.0, 1, 0),)))
    for draw in (draw_cdf([run]), draw_sizes([run]), draw_load([run])):
        assert render(draw, LIGHT, 4.0, 3.0).startswith(PNG)
