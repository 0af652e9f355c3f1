"""``python -m tranche_observability``: write dashboards and the reference of metrics; ``--check``: only compare."""

import sys
from pathlib import Path

from tranche.kube.manifest_files import write_or_compare
from tranche_observability.catalogues import DASHBOARDS
from tranche_observability.grafana import dashboard_json
from tranche_observability.references import metrics_page

REPOSITORY = Path(__file__).resolve().parents[2]


def generated_files(root: Path) -> dict[Path, str]:
    """What every generated file should hold."""
    folder = root / "helm/tranche/files/dashboards"
    files = {folder / f"{dashboard.name}.json": dashboard_json(dashboard) for dashboard in DASHBOARDS}
    return {**files, root / "docs/reference/metrics.md": metrics_page()}


def main(arguments: list[str] | None = None) -> int:
    """Write or compare, and return the exit code."""
    return write_or_compare(generated_files, REPOSITORY, "python -m tranche_observability", __doc__, "file", arguments)


if __name__ == "__main__":
    sys.exit(main())
