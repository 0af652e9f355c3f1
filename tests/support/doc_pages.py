"""Contents of README and docs: blocks, commands, words in code, links, headings."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
SHELL = "sh"
"""Language of blocks that are commands and nothing else."""
CONSOLE = "console"
"""Language of blocks with commands behind ``$`` and their output."""
_PARSER = MarkdownIt("commonmark").enable("table")


def pages() -> list[Path]:
    """Return README, CHANGELOG, CONTRIBUTING, SECURITY and everything under docs."""
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """Block of code."""

    page: Path
    line: int
    """Line of the page, from 1."""
    language: str
    text: str

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Return the command lines, continued ones as one line; a here-document belongs to its command."""
        text = self.text
        if self.language == CONSOLE:
            text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
        elif self.language != SHELL:
            return []
        found: list[str] = []
        end = None
        for line in text.replace("\\\n", " ").splitlines():
            if end is not None:
                found[-1] += f"\n{line}"
                end = None if line == end else end
            elif line.strip() and not line.lstrip().startswith("#"):
                found.append(line.strip())
                end = match[1] if (match := re.search(r"<<'?(\w+)'?", line)) else None
        return found


def blocks(page: Path) -> list[Block]:
    """Return all blocks of code of a page; indented ones count as commands if they look like commands."""
    found = _contents(page.read_text(encoding="utf-8")).blocks
    return [Block(page, line, language, text) for line, language, text in found]


def words_in_code(page: Path) -> list[str]:
    """Return the words between backquotes in sentences and tables."""
    return list(_contents(page.read_text(encoding="utf-8")).words_in_code)


def targets(page: Path) -> list[str]:
    """Return the targets of links and pictures."""
    return list(_contents(page.read_text(encoding="utf-8")).targets)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub and MyST make them."""
    return set(_contents(page.read_text(encoding="utf-8")).headings)


def section(page: Path, anchor: str) -> str:
    """The text from the heading with this anchor to the next heading of any level."""
    text = page.read_text(encoding="utf-8")
    lines, starts = text.splitlines(), _contents(text).headings
    return "\n".join(lines[starts[anchor] : min([at for at in starts.values() if at > starts[anchor]], default=None)])


@dataclass(frozen=True)
class _Contents:
    """Contents of a page that the functions above return, from one run of the parser."""

    blocks: tuple[tuple[int, str, str], ...]
    """Line, language and text of each block of code."""
    words_in_code: tuple[str, ...]
    targets: tuple[str, ...]
    headings: Mapping[str, int]
    """The line of each heading, counted from 0, by anchor."""


@cache
def _contents(text: str) -> _Contents:
    """Parse a page once: all pages take half a second, and each process that runs tests reads them at collection."""
    tokens = _PARSER.parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    linked = [token.attrs.get("href") or token.attrs.get("src") for token in inline]
    return _Contents(
        tuple(_code(token) for token in tokens if token.type in ("fence", "code_block")),
        tuple(" ".join(token.content.split()) for token in inline if token.type == "code_inline"),
        tuple(str(target) for target in linked if target),
        _headings(tokens),
    )


def _code(token: Token) -> tuple[int, str, str]:
    language = token.info.strip()
    if token.type == "code_block":
        shell = re.match(r"(tranche|kubectl|helm|make|python|curl|pytest) ", token.content)
        language = SHELL if shell else ""
    return (token.map or [0])[0] + 1, language, token.content


def _headings(tokens: Sequence[Token]) -> dict[str, int]:
    found: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found[anchor] = (opening.map or [0])[0]
    return found


def words(command: str) -> list[list[str]]:
    """Return the simple commands of a line, without redirections, comments and variables set before them."""
    lexer = shlex.shlex(command.partition("\n")[0], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    simple: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word in ("|", "&&", ";", "||", "&"):
            simple.append([])
        elif word and set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        else:
            simple[-1].append(word)
    return [_without_variables(one) for one in simple if one]


def _without_variables(command: Sequence[str]) -> list[str]:
    at = next((i for i, word in enumerate(command) if not re.match(r"[A-Z_]+=", word)), len(command))
    return list(command[at:])
