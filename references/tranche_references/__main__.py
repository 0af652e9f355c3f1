"""``python -m tranche_references``: write the pages of docs/reference; ``--check``: only compare."""

import argparse
import sys
from pathlib import Path

from tranche.kube.manifest_files import differences, write_files
from tranche_references.commands import commands_page
from tranche_references.definitions import definition_page
from tranche_references.policies import policies_page
from tranche_references.values import values_page

REPOSITORY = Path(__file__).resolve().parents[2]


def generated_files(root: Path) -> dict[Path, str]:
    """What every page should hold, from the code and the chart of this checkout."""
    folder = root / "docs/reference"
    crds = REPOSITORY / "manifests/crds"
    return {
        folder / "trainingjob.md": definition_page(crds / "trainingjobs.yaml"),
        folder / "site.md": definition_page(crds / "sites.yaml"),
        folder / "values.md": values_page(REPOSITORY / "helm/tranche"),
        folder / "commands.md": commands_page(),
        folder / "policies.md": policies_page(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write or compare, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tranche_references", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a committed page differs")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="repository to write to")
    options = parser.parse_args(arguments)
    files = generated_files(options.root)
    if not options.check:
        write_files(files)
        sys.stdout.write(f"{len(files)} pages written\n")
        return 0
    found = differences(files, options.root)
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
