"""The pictures of docs/how-to/dashboards.md: each dashboard as a real Prometheus has it after a minute of real work.

``python benchmarks/dashboard_pictures.py`` (``make pictures``) makes the run of tests/support/dashboard_run.py, with
which the tests compare every panel, and writes docs/pictures/dashboard-*.png. It takes about a minute and a half.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "observability"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.dashboard_run import Run, run
from tranche_observability.dashboard_picture import Course, Labels, draw
from tranche_observability.dashboards import DASHBOARDS
from tranche_observability.panels import Panel, Query
from tranche_testcluster import BuildError
from tranche_testcluster.binaries.debian_package import PROMETHEUS, ensure

ROOT = Path(__file__).resolve().parents[1]
RATE_SECONDS = 10
"""Interval of rates; Grafana takes four times the interval of scrapes, at least."""


def ask(work: Run, panels: Mapping[Query, Panel], query: Query) -> Mapping[Labels, Course]:
    """Return the course of a query, or its value at the end if its panel shows the whole time."""
    if panels[query].look == "timeseries":
        return work.prometheus.over(query.over(f"{RATE_SECONDS}s"), work.began, work.ended, 0.5)
    values = work.prometheus.instant(query.over(f"{work.span}s"), work.ended)
    return {labels: [(work.ended, value)] for labels, value in values.items()}


def main() -> int:
    """Run and draw."""
    try:
        program = ensure(PROMETHEUS)["prometheus"]
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with run(program) as work:
        for dashboard in DASHBOARDS:
            panels = {query: panel for panel in dashboard.panels for query in panel.queries}
            path = ROOT / f"docs/pictures/dashboard-{dashboard.name}.png"
            draw(dashboard, lambda query, panels=panels: ask(work, panels, query), (work.began, work.ended), path)  # type: ignore[misc]
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
