"""References in code and pages: to decisions, pages and their sections, pictures, paths and modules."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.doc_pages import ROOT, anchors

PACKAGES = {"scheduler": "tranche", "operator": "tranche_operator", "worker": "tranche_worker"} | {
    "observability": "tranche_observability",
    "testcluster": "tranche_testcluster",
    "tools": "tranche_codegen",
}
"""Packages by the folder that contains them; a folder that does not exist is left out."""
CODE = {".py"}
OTHER = {".toml", ".yaml", ".yml", ".tpl", ".sh", ".js", ".html", ".md", ".c", ""}
SKIPPED_FOLDERS = {"build", "dist", "node_modules", "data", "__pycache__"}
LARGEST = 1_000_000
"""Larger files are data."""

_GAP = r"(?:\s|\n[ \t]*#)+"
_NUMBER = r"\d{1,4}(?!\d|[.:-]\d)"
DECISIONS = re.compile(
    rf"\b[Dd]ecisions?{_GAP}(?P<numbers>{_NUMBER}(?:(?:,{_GAP}(?:and{_GAP})?|{_GAP}and{_GAP}){_NUMBER})*)"
)
DECISION_LINK = re.compile(r"\[[^\]\[]*?(?P<number>\d+)\]\([^()\s]*?(?P<file>\d{4}-[a-z0-9-]+\.md)(?:#[^()\s]*)?\)")
DECISION_FILE = re.compile(r"(?<![\w-])\d{4}-[a-z0-9-]+\.md\b")
PAGE = re.compile(
    r"(?<![\w/.:-])(?P<page>(?:[\w.-]+/)*[A-Za-z][\w-]*\.md)\b"
    r"(?:#(?P<anchor>[\w-]+)"
    r"|[)`]*,?\s+(?:section\s+)?(?:\"(?P<title>[^\"\n]+)\"|(?:§|section)\s*(?P<number>\d[\d.]*)))?"
)
PART = re.compile(
    r"\b(?:section|table)\s+\"(?P<title>[^\"\n]+)\"\s+(?:of|in)\s+[\[`]*(?P<page>(?:[\w.-]+/)*[\w-]+\.md)\b"
)
PICTURE = re.compile(r"(?<![\w/.-])(?:docs/)?pictures/[\w.-]+\.(?:png|svg|gif)")
MODULE = re.compile(r"(?<!`)`(?P<name>tranche(?:_[a-z]+)?(?!\.dev\b)(?:\.\w+)+)(?:\(\))?`(?!`)")
NOT_FOUND_HERE = re.compile(r"\b(?:issue|rule)\s+\d+\b(?!\s*(?:%|s\b))|(?<![\w.])shared[/]design\b")
"""Numbers of documents that are not part of the repository."""


@cache
def _decisions(root: Path) -> dict[int, str]:
    return {int(page.name[:4]): page.name for page in root.rglob("docs/**/[0-9][0-9][0-9][0-9]-*.md")}


@cache
def _pages(root: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for page in [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob("data/**/*.md")]:
        found.setdefault(page.name, []).append(page)
    return found


@cache
def _top_folders(root: Path) -> tuple[str, ...]:
    return tuple(one.name for one in root.iterdir() if one.is_dir() and not one.name.startswith("."))


def sources(root: Path = ROOT) -> list[Path]:
    """Return all files of the repository that people write, sorted."""
    files = [path for path in root.iterdir() if path.is_file()]
    for folder in _top_folders(root):
        if folder not in SKIPPED_FOLDERS:
            files += (path for path in (root / folder).rglob("*") if path.is_file())
    return sorted(
        path
        for path in files
        if path.suffix in CODE | OTHER
        and not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts[:-1])
        and path.stat().st_size <= LARGEST
    )


def prose(path: Path) -> str:
    """Return the text of a file; of Python only comments and docstrings, paragraphs apart."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return "\n\n".join(_python_prose(text)) if path.suffix in CODE else text


def _python_prose(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    block: list[str] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and block:
                yield "\n".join(block)
                block = []
            block.append(token.string.lstrip("# "))
            last = token.start[0]
    if block:
        yield "\n".join(block)


def unresolved(path: Path, root: Path = ROOT) -> list[str]:
    """Return the references of a file that lead nowhere, each as in the text with what is wrong."""
    whole = path.read_text(encoding="utf-8", errors="replace")
    said = prose(path)
    return sorted(
        {
            *_wrong_decisions(whole, root),
            *_wrong_pages(said, root),
            *_wrong_paths(said, root),
            *(f"{m[0]}: no such picture" for m in PICTURE.finditer(whole) if not _is_picture(m[0], root)),
            *(f"{m['name']}: no such module or name" for m in MODULE.finditer(said) if not _is_name(m["name"], root)),
            *(f"{m[0]}: of no document in this repository" for m in NOT_FOUND_HERE.finditer(said)),
        }
    )


def _wrong_decisions(text: str, root: Path) -> Iterator[str]:
    known = _decisions(root)
    for match in DECISIONS.finditer(text):
        for number in re.findall(r"\d+", match["numbers"]):
            if int(number) not in known:
                yield f"decision {number}: there is none"
    for match in DECISION_LINK.finditer(text):
        if int(match["number"]) != int(match["file"][:4]):
            yield f"{match[0]}: the number is not that of the page"
    for match in DECISION_FILE.finditer(text):
        if match[0] not in known.values():
            yield f"{match[0]}: no such decision"


def _wrong_pages(text: str, root: Path) -> Iterator[str]:
    joined = " ".join(text.split())
    for match in PART.finditer(joined):
        found = _found(match["page"], root)
        if not any(match["title"] in page.read_text(encoding="utf-8") for page in found):
            yield f"{match[0]}: no such section or table"
    for match in PAGE.finditer(joined):
        name = match["page"]
        if DECISION_FILE.fullmatch(Path(name).name):
            continue
        found = _found(name, root)
        if not found:
            yield f"{name}: no such page"
        elif not _has_section({anchor for page in found for anchor in anchors(page)}, match):
            yield f"{match[0]}: no such section"


def _has_section(known: set[str], match: re.Match[str]) -> bool:
    if match["anchor"]:
        return match["anchor"] in known
    if match["title"]:
        return anchor_of(match["title"]) in known
    return not match["number"] or any(f"{one}-".startswith(f"{anchor_of(match['number'])}-") for one in known)


def _found(name: str, root: Path) -> list[Path]:
    """Return the pages that a name may mean: with a folder only those below it."""
    relative = "/" not in name or name.startswith(".")
    return [page for page in _pages(root).get(Path(name).name, []) if relative or str(page).endswith(f"/{name}")]


def anchor_of(title: str) -> str:
    """Return the anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _wrong_paths(text: str, root: Path) -> Iterator[str]:
    folders = "|".join(map(re.escape, sorted(set(_top_folders(root)) - SKIPPED_FOLDERS)))
    created = set(re.findall(r"\bCreate `([^`]+)`", text))
    """Files that the reader of a page creates."""
    for match in re.finditer(rf"(?<![\w/.~@<>$}}-])(?:{folders})/[\w./-]+\.[a-z]+\b(?![*{{<])", text):
        if match[0].endswith(".md") or PICTURE.fullmatch(match[0]):
            continue
        if match[0] not in created and not (root / match[0]).exists():
            yield f"{match[0]}: no such file"


def _is_picture(name: str, root: Path) -> bool:
    return (root / "docs" / name.removeprefix("docs/")).exists()


@cache
def _is_name(dotted: str, root: Path) -> bool:
    """Whether a module, or a name that a module defines or imports, is found; looks at the text and imports nothing."""
    parts = dotted.split(".")
    folder = next((folder for folder, package in PACKAGES.items() if package == parts[0]), "")
    at = root / folder / parts[0]
    for index, part in enumerate(parts[1:], start=1):
        if (at / part).is_dir():
            at = at / part
            continue
        module = at / f"{part}.py"
        if module.exists():
            return all(_defines(module, name) for name in parts[index + 1 :])
        return all(_defines(at / "__init__.py", name) for name in parts[index:])
    return at.is_dir()


def _defines(module: Path, name: str) -> bool:
    return module.exists() and bool(re.search(rf"\b{re.escape(name)}\b", module.read_text(encoding="utf-8")))
