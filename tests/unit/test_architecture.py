"""docs/architecture.md agrees with the code; folder names that would break Python stay away."""

import re
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "tranche",
    "tranche_operator",
    "tranche_worker",
    "tranche_testcluster",
    "tranche_observability",
    "tranche_codegen",
)


def room(module: str) -> str | None:
    top, *rest = module.split(".")
    if top != "tranche":
        return top.removeprefix("tranche_")
    return rest[0] if rest and not rest[0].startswith("__") else None


def test_the_picture_shows_all_imports_between_rooms_and_no_other() -> None:
    graph = grimp.build_graph(*PACKAGES)
    actual = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = (room(module), room(imported))
            if None not in pair and pair[0] != pair[1]:
                actual.add(pair)
    text = (ROOT / "docs/architecture.md").read_text()
    picture = re.search(r"flowchart TD\n(.*?)```", text, re.S)
    assert picture
    drawn = set(re.findall(r"(\w+) --> (\w+)", picture[1]))
    assert drawn == actual


def test_every_room_of_the_code_is_described() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for folder in (ROOT / "scheduler/tranche").iterdir():
        if (folder / "__init__.py").exists():
            assert f"    {folder.name}/ " in text


def test_folders_that_shadow_the_standard_library_are_no_packages() -> None:
    assert not (ROOT / "operator/__init__.py").exists()
    assert not (ROOT / "scheduler/__init__.py").exists()
