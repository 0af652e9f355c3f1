"""Check the language of the repository: forbidden words, docstrings without a noun or verb, names of functions.

Usage::

    python tools/check_language.py                    # what `make lint` runs
    python tools/check_language.py --list [RULE ...]  # every finding, also the allowed ones
    python tools/check_language.py --write-baseline   # lower the allowed numbers to the measured ones

``language_baseline.toml`` holds the number of findings allowed per rule. The numbers may only fall. A rule without a
number allows none. The check reads the files that git tracks or would add, and nothing of the history.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
BASELINE = Path(__file__).with_name("language_baseline.toml")
SUFFIXES = {".py", ".md", ".yaml", ".tpl"}
LONGEST_TEST_NAME = 60
"""Limit in characters, ``test_`` included."""

Kind = Literal["text", "doc", "function_doc"]
"""``doc`` is a docstring or attribute documentation, ``function_doc`` the docstring of a function that is no property,
``text`` any other prose."""


@dataclass(frozen=True)
class Rule:
    """A pattern that no prose of the given kinds may contain."""

    name: str
    pattern: re.Pattern[str]
    advice: str
    kinds: tuple[Kind, ...] = ("text", "doc", "function_doc")


@dataclass(frozen=True)
class Exemption:
    """A use that a rule's pattern matches and that is correct."""

    rule: str
    path: re.Pattern[str]
    line: re.Pattern[str]
    reason: str


@dataclass(frozen=True)
class Finding:
    """A match of a rule, at a line of a file."""

    path: str
    line: int
    rule: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.text!r}: {self.advice}"


@dataclass(frozen=True)
class Passage:
    """A piece of prose and the line on which it begins."""

    line: int
    text: str
    kind: Kind = "text"


def _phrase(words: str) -> re.Pattern[str]:
    """Compile a pattern of whole words that may be divided by a line break or the mark of a comment."""
    spaced = words.replace(" ", r"[\s#]+")
    return re.compile(rf"\b(?:{spaced})\b", re.IGNORECASE)


_DOCS: tuple[Kind, ...] = ("doc", "function_doc")
_WORDS = tomllib.loads(Path(__file__).with_name("language_words.toml").read_text(encoding="utf-8"))["rule"]
SAMPLES: dict[str, tuple[str, str, str]] = {entry["name"]: tuple(entry["sample"]) for entry in _WORDS}
"""For each rule of words a path, a text with one finding, and the corrected text."""
RULES = (
    *(Rule(entry["name"], _phrase(entry["words"]), entry["advice"]) for entry in _WORDS),
    Rule(
        "personified",
        _phrase("hears|heard|believes|believed|tells|obeys|obeyed|wants|forgets|confesses|dares|hopes"),
        "programs receive, estimate, report, apply, request and drop",
    ),
    Rule(
        "so many",
        re.compile(r"\bso[\s#]+(?:many|much|long|few|often)\b(?![\s#]+(?:that|as)\b)", re.IGNORECASE),
        "name the parameter or the quantity",
    ),
    Rule(
        "who sentence",
        re.compile(r"(?:\A|(?<=[.:;]\s)|(?<=\n\n))Who(?:m|se)?\s[^.?!:|`]*\.(?=\s|\Z)"),
        "begin the sentence with the noun: 'A job that …'",
    ),
    Rule(
        "relative clause",
        re.compile(r"\A(?:Who|Whom|Whose|What|That|Which|Where)\b"),
        "begin with a verb (functions) or a noun: 'Return the …', 'Jobs that …'",
        _DOCS,
    ),
    Rule(
        "whether",
        re.compile(r"\AWhether\b"),
        "'Whether' is for attributes and properties; begin with a verb: 'Return whether …'",
        ("function_doc",),
    ),
    Rule(
        "genitive fragment",
        re.compile(r"\A(?:Of|(?:For|By|To|From|With|In|At) (?:whom|which|what))\b"),
        "begin with the noun that the name stands for",
        _DOCS,
    ),
    Rule(
        "interrupted sentence",
        re.compile(r"(?<=\n```\n\n)[a-z][^\n]*|(?<=\n```\n)[a-z][^\n]*"),
        "complete the sentence before the code block and begin another one after it",
    ),
)
TEST_NAME = "test name"
"""The rule on the length of test names; it concerns names, not prose."""
FUNCTION_NAME = "function name"
"""The rule on names of functions outside the tests."""
PERSONIFIED_WORDS = frozenset(
    ["believes", "hears", "heard", "knows", "remembers", "said", "says", "tells", "told", "wants"]
)
RULE_NAMES = (*(rule.name for rule in RULES), TEST_NAME, FUNCTION_NAME)

UNCHECKED = re.compile(
    r"""
    tools/check_language\.py            # contains the patterns
    | tests/unit/test_check_language\.py  # contains an example of each
    | (tests/)?data/.*                  # inputs, written by others or by earlier releases
    """,
    re.VERBOSE,
)
EXEMPTIONS = (
    Exemption(
        _WORDS[5]["name"],
        re.compile(r".*\.(py|md)"),
        re.compile(rf"\b{_WORDS[5]['words']} GB|\"copied {_WORDS[5]['words']}\""),
        "a column of the tables of `tranche simulate` and of the web page; users' scripts read it under this name",
    ),
)


def check_file(path: str, source: str) -> list[Finding]:
    """Return the findings in one file, exemptions left out.

    Args:
        path: Path relative to the root, with slashes.
        source: Text of the file.
    """
    passages = _python_passages(source) if path.endswith(".py") else [Passage(1, _prose_of(path, source))]
    lines = source.splitlines()
    findings = [
        finding
        for passage in passages
        for rule in RULES
        if passage.kind in rule.kinds
        for finding in _matches(path, rule, passage)
    ]
    if path.endswith(".py"):
        names = _long_test_names if path.startswith("tests/") else _personified_names
        findings += names(path, source)
    return sorted(
        (finding for finding in findings if not _exempt(finding, lines)),
        key=lambda finding: (finding.line, finding.rule),
    )


def _matches(path: str, rule: Rule, passage: Passage) -> Iterator[Finding]:
    for match in rule.pattern.finditer(passage.text):
        line = passage.line + passage.text.count("\n", 0, match.start())
        yield Finding(path, line, rule.name, " ".join(match[0].split())[:60], rule.advice)


def _exempt(finding: Finding, lines: list[str]) -> bool:
    text = lines[finding.line - 1] if finding.line <= len(lines) else ""
    return any(
        exemption.rule == finding.rule and exemption.path.fullmatch(finding.path) and exemption.line.search(text)
        for exemption in EXEMPTIONS
    )


def _long_test_names(path: str, source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
            and len(node.name) > LONGEST_TEST_NAME
        ):
            advice = f"{len(node.name)} characters, at most {LONGEST_TEST_NAME}: test_<unit>_<condition>_<result>"
            yield Finding(path, node.lineno, TEST_NAME, node.name, advice)


def _personified_names(path: str, source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if PERSONIFIED_WORDS.intersection(node.name.split("_")):
            yield Finding(path, node.lineno, FUNCTION_NAME, node.name, "programs receive, report, have and need")


def _prose_of(path: str, source: str) -> str:
    """Return the text with code blanked, line by line; fences remain, for the rules on the lines next to them."""
    if not path.endswith(".md"):
        return source
    text = re.sub(r"^ *```[^\n]*\n(.*?)^ *```[^\n]*$", _blank_block, source, flags=re.MULTILINE | re.DOTALL)
    return _blank_code(text)


def _blank_block(match: re.Match[str]) -> str:
    return "```\n" + "\n" * match[1].count("\n") + "```"


def _blank_code(text: str) -> str:
    """Replace quoted code, in single or double backticks, by a neutral character."""
    return re.sub(
        r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", lambda match: re.sub(r"[^\n]", "_", match[0]), text, flags=re.DOTALL
    )


def _python_passages(source: str) -> list[Passage]:
    tree = ast.parse(source)
    passages = list(_comments(source))
    docs: set[int] = set()
    for node in ast.walk(tree):
        for owner, constant in _documented(node):
            docs.add(id(constant))
            passages.append(Passage(constant.lineno, _blank_code(str(constant.value)), _kind_of(owner)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
            continue
        if " " in node.value.strip():  # a message: keys, names and paths contain no space
            passages.append(Passage(node.lineno, node.value))
    return passages


def _documented(node: ast.AST) -> Iterator[tuple[ast.AST, ast.Constant]]:
    """Yield (what is documented, documentation) of the docstring of a node and the attribute documentation in it."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    before: ast.AST = node
    for index, statement in enumerate(node.body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            attribute = isinstance(before, ast.Assign | ast.AnnAssign)
            if isinstance(statement.value.value, str) and (index == 0 or attribute):
                yield before, statement.value
        before = statement


def _kind_of(owner: ast.AST) -> Kind:
    if not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        return "doc"
    if owner.name.startswith("_"):
        return "text"  # the rules on first lines concern public names
    is_property = any("property" in ast.unparse(decorator) for decorator in owner.decorator_list)
    return "doc" if is_property else "function_doc"


def _comments(source: str) -> Iterator[Passage]:
    """Yield the comments; those on consecutive lines are one passage."""
    block: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield Passage(begin, _blank_code("\n".join(block)))
            block = []
        if not block:
            begin = token.start[0]
        block.append(token.string.lstrip("#: "))
        last = token.start[0]
    if block:
        yield Passage(begin, _blank_code("\n".join(block)))


def tracked_files(root: Path) -> list[str]:
    """Return the paths that the check reads, relative to the root, sorted."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    return sorted(
        path
        for path in set(output.split("\0"))
        if Path(path).suffix in SUFFIXES and not UNCHECKED.fullmatch(path) and (root / path).is_file()
    )


def over_baseline(counts: Counter[str], allowed: dict[str, int]) -> list[str]:
    """Return the rules with more findings than the baseline allows."""
    return [name for name in RULE_NAMES if counts[name] > allowed.get(name, 0)]


def read_baseline(path: Path) -> dict[str, int]:
    """Return the allowed number of findings per rule, empty without a file."""
    return dict(tomllib.loads(path.read_text())["allowed"]) if path.exists() else {}


def write_baseline(path: Path, counts: Counter[str]) -> None:
    """Write the measured numbers as the allowed ones.

    Raises:
        ValueError: A number would rise. Correct the text instead.
    """
    if path.exists() and (risen := over_baseline(counts, read_baseline(path))):
        raise ValueError(f"the number of findings may only fall, and rose for: {', '.join(risen)}")
    numbers = "".join(f'"{name}" = {counts[name]}\n' for name in RULE_NAMES)
    path.write_text(
        "# Findings of tools/check_language.py that are still allowed, per rule. The numbers may only fall:\n"
        f"# python tools/check_language.py --write-baseline\n[allowed]\n{numbers}"
    )


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the check; return the exit status."""
    parser = argparse.ArgumentParser(description="Check the language of the repository.")
    parser.add_argument("--list", nargs="*", metavar="RULE", help="print every finding (of these rules)")
    parser.add_argument("--write-baseline", action="store_true", help="lower the allowed numbers to the measured ones")
    options = parser.parse_args(None if arguments is None else list(arguments))
    findings = [finding for path in tracked_files(ROOT) for finding in check_file(path, (ROOT / path).read_text())]
    counts = Counter(finding.rule for finding in findings)
    if options.list is not None:
        print(*(finding for finding in findings if not options.list or finding.rule in options.list), sep="\n")
        print(*(f"{name}: {counts[name]}" for name in RULE_NAMES), sep="\n")
        return 0
    if options.write_baseline:
        try:
            write_baseline(BASELINE, counts)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    allowed = read_baseline(BASELINE)
    over = over_baseline(counts, allowed)
    for name in over:
        print(*(finding for finding in findings if finding.rule == name), sep="\n", file=sys.stderr)
        print(f"{name}: {counts[name]} findings, {allowed.get(name, 0)} allowed", file=sys.stderr)
    if not over and any(counts[name] < allowed.get(name, 0) for name in RULE_NAMES):
        print("fewer findings than allowed: run python tools/check_language.py --write-baseline")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
