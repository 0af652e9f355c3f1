"""A clone needs no file outside it, and packages contain no third-party data that they do not use."""

import gzip
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "data"
OUTSIDE = re.compile(r"[.]{2}/shared\b|(?<![\w.-])/[w]ork/|\bshared/(traces|profiles|design|review|checks)\b")
"""Folders that stood beside early working copies, by relative and by absolute path."""
ANCESTOR = re.compile(r"\bparents\[(\d+)\]|\b[R]OOT\.parent\b")
LARGE = 2**20
MAX_BYTES = 30 * 2**20


def tracked() -> list[Path]:
    """The files of the repository, without those that are deleted in the working tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def outside(path: Path, text: str) -> list[str]:
    """Return what a text says of paths outside the repository, as `line: match`.

    Args:
        path: The file, relative to the repository.
        text: Its content.
    """
    depth = len(path.parts) - 1
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"{number}: {match[0]}" for match in OUTSIDE.finditer(line)]
        if path.suffix == ".py":
            climbs = (match for match in ANCESTOR.finditer(line) if match[1] is None or int(match[1]) > depth)
            found += [f"{number}: {match[0]}" for match in climbs]
    return found


def test_no_tracked_file_refers_to_a_path_outside() -> None:
    files = tracked()
    assert ROOT / "README.md" in files
    found = {}
    for file in files:
        content = file.read_bytes()
        if b"\0" not in content and (reference := outside(file.relative_to(ROOT), content.decode(errors="replace"))):
            found[str(file.relative_to(ROOT))] = reference
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "see ../" + "shared" + "/traces",
        "in shared" + "/design there is more",
        'open("/' + 'work/logs.csv")',
        "HERE = Path(__file__).resolve().parents[" + "2]",
        "FOLDER = ROOT" + ".parent",
    ],
)
def test_path_outside_is_found(line: str) -> None:
    assert outside(Path("benchmarks/some.py"), f"ok\n{line}\n")[0].startswith("2: ")


def test_path_inside_is_not_found() -> None:
    text = 'ROOT = Path(__file__).resolve().parents[1]\n"frame/work/x", "shared/links", "../docs"\n'
    assert outside(Path("benchmarks/some.py"), text) == []


def test_data_are_small_and_large_files_are_compressed() -> None:
    sizes = {file: file.stat().st_size for file in DATA.rglob("*") if file.is_file()}
    assert sum(sizes.values()) < MAX_BYTES
    assert {file.name for file, size in sizes.items() if size > LARGE and file.suffix not in (".gz", ".xz")} == set()
    for file in sizes:
        if file.suffix == ".gz":
            assert file.read_bytes()[4:8] == bytes(4), f"{file.name} holds a time: compress it with gzip -n"
            assert gzip.decompress(file.read_bytes())


@pytest.mark.parametrize("folder", [one for one in sorted(DATA.iterdir()) if one.is_dir()], ids=lambda one: one.name)
def test_each_data_file_has_its_source_and_licence(folder: Path) -> None:
    table, licences = ((folder / name).read_text(encoding="utf-8") for name in ("README.md", "LICENCES.txt"))
    headings = licences.partition("\n\n")[2]
    for file in sorted(folder.iterdir()):
        if file.name in ("README.md", "LICENCES.txt"):
            continue
        rows = [line for line in table.splitlines() if line.startswith(f"| `{file.name}`")]
        assert len(rows) == 1, file.name
        assert rows[0].rstrip(" |").rpartition("|")[2].strip() in ("MIT", "CC-BY-4.0", "Apache-2.0")
        assert re.search(rf"(?m)^(.*, )?{re.escape(file.name)}(, .*)?\n=+$", headings), file.name


def test_images_and_wheel_hold_no_data() -> None:
    kept = re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"))
    assert kept
    assert "data" not in {name.partition("/")[0] for name in kept}
