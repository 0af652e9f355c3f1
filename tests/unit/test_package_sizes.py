"""Packages stay small enough to be read as a list."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 20
"""Limit of the number of modules in one package, ``__init__`` included."""
FOLDERS = sorted(
    str(file.parent.relative_to(ROOT))
    for top in ("scheduler", "operator", "worker", "testcluster", "observability", "tools")
    for file in (ROOT / top).rglob("__init__.py")
)


def test_the_folders_contain_every_product() -> None:
    assert {"scheduler/tranche", "operator/tranche_operator", "worker/tranche_worker"} < set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_package_has_at_most_20_modules(folder: str) -> None:
    modules = sorted(file.name for file in (ROOT / folder).glob("*.py"))
    assert len(modules) <= MOST_MODULES, modules
