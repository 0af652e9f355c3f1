"""``python -m tranche_codegen.reference``: write docs/reference and the chart's schema; ``--check``: only compare."""

import sys
from pathlib import Path

from tranche.policies import POLICIES, live_policies
from tranche_codegen.files import write_or_compare
from tranche_codegen.reference.commands import commands_page
from tranche_codegen.reference.crds import definition_page
from tranche_codegen.reference.phases import phases_page
from tranche_codegen.reference.policies import policies_page
from tranche_codegen.reference.presets import presets_page
from tranche_codegen.reference.values import schema_text, values_page

REPOSITORY = Path(__file__).resolve().parents[3]


def generated_files(root: Path) -> dict[Path, str]:
    """Return the expected content of every file, from the code and the chart of this checkout."""
    folder, chart = root / "docs/reference", REPOSITORY / "helm/tranche"
    crds = REPOSITORY / "manifests/crds"
    return {
        folder / "trainingjob.md": definition_page(crds / "trainingjobs.yaml"),
        folder / "site.md": definition_page(crds / "sites.yaml"),
        folder / "values.md": values_page(chart),
        folder / "commands.md": commands_page(),
        folder / "policies.md": policies_page(),
        folder / "presets.md": presets_page(),
        folder / "phases.md": phases_page(),
        root / "helm/tranche/values.schema.json": schema_text(
            chart, {name: POLICIES[name] for name in live_policies()}
        ),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write or compare, and return the exit code."""
    return write_or_compare(
        generated_files, REPOSITORY, "python -m tranche_codegen.reference", __doc__, "file", arguments
    )


if __name__ == "__main__":
    sys.exit(main())
