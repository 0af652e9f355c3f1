"""Selection of a report's pictures; the only module through which a writer imports matplotlib."""

from collections.abc import Iterator, Sequence

from tranche.simulation_report.distribution_plot import draw_cdf, draw_sizes
from tranche.simulation_report.gantt import chart_height, draw_gantt
from tranche.simulation_report.gantt_layout import lay_out
from tranche.simulation_report.html_page import Picture
from tranche.simulation_report.load_plot import MAX_ROWS, draw_load
from tranche.simulation_report.plot_style import DARK, LIGHT, Draw, render
from tranche.simulation_report.report_run import ReportRun

MAX_GANTTS = 6
WIDTH = 8.0
"""Width of a picture, in inches."""


def pictures(runs: Sequence[ReportRun], slugs: Sequence[str], formats: Sequence[str] = ()) -> Iterator[Picture]:
    """Draw the pictures that the runs have data for: none without completed jobs, no Gantt chart without occupations.

    Args:
        runs: Runs in the order of legends.
        slugs: Names for the files, one a run.
        formats: Formats of further files: svg, pdf.
    """

    def picture(name: str, caption: str, draw: Draw, height: float) -> Picture:
        further = {f"{name}.{form}": render(draw, LIGHT, WIDTH, height, form) for form in formats}
        light, dark = (render(draw, theme, WIDTH, height) for theme in (LIGHT, DARK))
        return Picture(f"{name}.png", caption, light, dark, further)

    completed = [run for run in runs if run.result.jobs]
    if completed:
        caption = "How many of all jobs completed within a time; the further left, the better."
        yield picture("jct-cdf", caption, draw_cdf(completed), 5.0)
        caption = "Completion time of small and large jobs; the numbers of jobs are those of the first run."
        yield picture("jct-by-size", caption, draw_sizes(completed), 5.0)
    sampled = [run for run in runs if run.result.samples]
    if sampled:
        caption = "GPUs in use, and jobs that were submitted and hold no GPU."
        yield picture("load", caption, draw_load(sampled), 1.7 + 1.6 * min(MAX_ROWS, len(sampled)))
    recorded = [(run, slug) for run, slug in zip(runs, slugs, strict=True) if run.result.occupations]
    for run, slug in recorded[:MAX_GANTTS]:
        chart = lay_out(run.result.occupations, run.result.samples)
        caption = f"Worker pods of {run.label} on GPUs; every bar begins when its GPUs are taken."
        yield picture(f"gantt-{slug}", caption, draw_gantt(run.label, chart), chart_height(chart))
