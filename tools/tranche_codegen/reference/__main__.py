"""``python -m tranche_codegen.reference``: write the pages of docs/reference; ``--check``: only compare."""

import sys
from pathlib import Path

from tranche_codegen.files import write_or_compare
from tranche_codegen.reference.commands import commands_page
from tranche_codegen.reference.crds import definition_page
from tranche_codegen.reference.phases import phases_page
from tranche_codegen.reference.policies import policies_page
from tranche_codegen.reference.presets import presets_page
from tranche_codegen.reference.values import values_page

REPOSITORY = Path(__file__).resolve().parents[3]


def generated_files(root: Path) -> dict[Path, str]:
    """Return the contents that every page should have, from the code and the chart of this checkout."""
    folder = root / "docs/reference"
    crds = REPOSITORY / "manifests/crds"
    return {
        folder / "trainingjob.md": definition_page(crds / "trainingjobs.yaml"),
        folder / "site.md": definition_page(crds / "sites.yaml"),
        folder / "values.md": values_page(REPOSITORY / "helm/tranche"),
        folder / "commands.md": commands_page(),
        folder / "policies.md": policies_page(),
        folder / "presets.md": presets_page(),
        folder / "phases.md": phases_page(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write or compare, and return the exit code."""
    return write_or_compare(
        generated_files, REPOSITORY, "python -m tranche_codegen.reference", __doc__, "page", arguments
    )


if __name__ == "__main__":
    sys.exit(main())
