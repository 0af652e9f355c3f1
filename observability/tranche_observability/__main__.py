"""``python -m tranche_observability``: write dashboards and the reference of metrics; ``--check``: only compare."""

import argparse
import sys
from pathlib import Path

from tranche.kube.manifest_files import differences, write_files
from tranche_observability.catalogues import DASHBOARDS
from tranche_observability.grafana import dashboard_json
from tranche_observability.references import metrics_page

REPOSITORY = Path(__file__).resolve().parents[2]


def generated_files(root: Path) -> dict[Path, str]:
    """What every generated file should hold."""
    folder = root / "helm/tranche/files/dashboards"
    files = {folder / f"{dashboard.name}.json": dashboard_json(dashboard) for dashboard in DASHBOARDS}
    return {**files, root / "docs/metrics.md": metrics_page()}


def main(arguments: list[str] | None = None) -> int:
    """Write or compare, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tranche_observability", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a committed file differs")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="repository to write to")
    options = parser.parse_args(arguments)
    files = generated_files(options.root)
    if not options.check:
        write_files(files)
        sys.stdout.write(f"{len(files)} files written\n")
        return 0
    found = differences(files, options.root)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
