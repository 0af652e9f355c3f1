"""docs/explanation/architecture.md agrees with the code; folder names that would break Python stay away."""

import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "tranche",
    "tranche_operator",
    "tranche_worker",
    "tranche_testcluster",
    "tranche_observability",
    "tranche_codegen",
)
PRODUCTS = ("tranche", "tranche_operator", "tranche_worker")


def package_of(module: str) -> str | None:
    top, *rest = module.split(".")
    if top != "tranche":
        return top.removeprefix("tranche_")
    return rest[0] if rest and not rest[0].startswith("__") else None


def test_picture_shows_exactly_the_imports_between_packages() -> None:
    graph = grimp.build_graph(*PACKAGES)
    actual = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = (package_of(module), package_of(imported))
            if None not in pair and pair[0] != pair[1]:
                actual.add(pair)
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    picture = re.search(r"flowchart TD\n(.*?)```", text, re.S)
    assert picture
    drawn = set(re.findall(r"(\w+) --> (\w+)", picture[1]))
    assert drawn == actual


def test_every_package_of_the_scheduler_is_described() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    for folder in (ROOT / "scheduler/tranche").iterdir():
        if (folder / "__init__.py").exists():
            assert f"    {folder.name}/ " in text


def test_folders_that_shadow_standard_library_are_no_packages() -> None:
    assert not (ROOT / "operator/__init__.py").exists()
    assert not (ROOT / "scheduler/__init__.py").exists()


def cyclic(imports: dict[str, set[str]]) -> set[str]:
    """Return the modules left when those that import none or that none imports are removed repeatedly: the cycles."""
    left = {module: set(imported) for module, imported in imports.items()}
    while True:
        used = {name for imported in left.values() for name in imported}
        kept = {module: here & left.keys() for module, here in left.items() if module in used and here & left.keys()}
        if kept == left:
            return set(left)
        left = kept


def test_a_cycle_of_imports_is_found() -> None:
    chain = {"a": {"b"}, "b": {"c"}, "c": set[str](), "d": {"a"}}
    assert cyclic(chain) == set()
    assert cyclic(chain | {"c": {"b"}}) == {"b", "c"}


@pytest.mark.parametrize("package", PRODUCTS)
def test_a_product_package_has_no_import_cycle(package: str) -> None:
    graph = grimp.build_graph(package)  # typing-only imports are part of it
    assert cyclic({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}) == set()


@pytest.mark.parametrize(
    "pattern",
    [
        r"\._reserved(: \w+)? = ",  # reservations of a node
        r"\b(node|known|host)\.(reserve|release)\(",
        r"\brun\.phase = ",  # phases of a window
    ],
)
def test_one_module_alone_keeps_the_books(pattern: str) -> None:
    files = [path for path in (ROOT / "scheduler/tranche").rglob("*.py") if re.search(pattern, path.read_text())]
    assert len(files) == 1, files
