"""Every command that README and docs show exists, with every argument that is shown; a test types it, or none can.

Which one, or why not: typed_commands.py. Those that need a cluster are typed in tests/integration/docs.
"""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from support.doc_pages import CONSOLE, ROOT, SHELL, Block, blocks, pages, words, words_in_code
from support.typed_commands import NOT_HERE, TYPED, Typed, commands, every_command
from tranche_codegen.reference.commands import PROGRAMS

LANGUAGES = {"", SHELL, CONSOLE, "yaml", "python", "text", "mermaid", "promql", "json"}
TARGETS = set(re.findall(r"(?m)^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))
SETTINGS = set(re.findall(r"\b([A-Z_]{4,})\b", (ROOT / "Makefile").read_text(encoding="utf-8")))
BLOCKS = [block for page in pages() for block in blocks(page)]
SHELLS = [block for block in BLOCKS if block.commands]
HERE = ("make", "tranche", "tranche-operator", "kubectl tranche", "python", "pytest")


def simple(block: Block) -> Iterator[list[str]]:
    """All simple commands of a block."""
    for line in block.commands:
        yield from words(line)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the repository's own beside."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for one in ("data", "docs", "manifests", "helm", "benchmarks", "tests", "worker"):
        (folder / one).symlink_to(ROOT / one)
    monkeypatch.chdir(folder)
    return folder


def check(command: list[str], workplace: Path) -> None:
    """Fail if the command does not exist or does not take its arguments."""
    program, *arguments = [Path(command[0]).name, *command[1:]]
    if program == "kubectl" and "tranche" in arguments[:1]:
        program, arguments = "kubectl tranche", arguments[1:]
    if program in PROGRAMS:
        parse(program, arguments, workplace)
    elif program == "make":
        check_make(arguments)
    elif program == "python":
        check_python(arguments)
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in arguments if word.startswith("tests/"))


def parse(path: str, arguments: list[str], workplace: Path) -> None:
    """As the program itself would, with files where files are named."""
    for word in arguments:
        if re.search(r"\.(csv|json|yaml)$", word) and not (workplace / word).exists():
            (workplace / word).parent.mkdir(parents=True, exist_ok=True)
            (workplace / word).touch()
    command: click.Command = PROGRAMS[path]
    while isinstance(command, click.Group) and arguments and arguments[0] not in ("--help", "--version"):
        name, *arguments = arguments
        command = subcommand(command, name, path)
    if arguments[:1] not in (["--help"], ["--version"]):
        command.make_context(path, list(arguments))


def subcommand(group: click.Group, name: str, text: str) -> click.Command:
    """Return a command of a group, which may import it only now; fail if there is none."""
    command = group.get_command(click.Context(group), name)
    assert command, f"{text}: there is no command {name}"
    return command


def check_make(arguments: list[str]) -> None:
    for word in arguments:
        name, equals, _ = word.partition("=")
        assert name in (SETTINGS if equals else TARGETS), f"make knows no {word}"


def check_python(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.path[:0] = [str(ROOT / "worker/examples"), str(ROOT / "tests")]
        try:
            assert importlib.util.find_spec(arguments[1].partition(".")[0]), arguments[1]
        finally:
            del sys.path[:2]
        return
    script = ROOT / arguments[0]
    text = script.read_text(encoding="utf-8")
    for option in (word for word in arguments[1:] if word.startswith("--")):
        assert f'"{option}"' in text, f"{arguments[0]} has no {option}"


@pytest.mark.parametrize("block", SHELLS, ids=lambda block: block.name)
def test_every_command_of_a_block_exists(block: Block, workplace: Path) -> None:
    for command in simple(block):
        check(command, workplace)


def test_commands_stand_in_blocks_that_say_so() -> None:
    assert {block.language for block in BLOCKS} - {"{toctree}"} <= LANGUAGES
    for block in BLOCKS:
        if not block.commands:
            assert not re.search(r"(?m)^(\$ |(make|helm|kubectl|tranche) \w)", block.text), block.name
    assert len(SHELLS) > 20


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_test_types_every_command_or_it_is_said_why_not(page: Path) -> None:
    assert [one.text for one in commands(page) if not one.typed_by and not one.why_not] == []


@pytest.mark.parametrize("page", TYPED)
def test_a_page_is_typed_by_its_test(page: str) -> None:
    assert f'"{page}"' in (ROOT / TYPED[page]).read_text(encoding="utf-8")
    assert any(one.typed_by == TYPED[page] for one in commands(ROOT / page))


@pytest.mark.parametrize("pattern", NOT_HERE)
def test_a_reason_is_that_of_some_command(pattern: str) -> None:
    assert any(re.fullmatch(pattern, command.text) for command in every_command())


def test_make_help_explains_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"(?m)^\.PHONY: (.+)$", makefile)
    assert phony
    explained = set(re.findall(r"(?m)^([a-z0-9-]+):.*## [A-Z]", makefile))
    assert set(phony[1].split()) == explained


def test_a_new_command_on_any_page_is_seen() -> None:
    for page in ("docs/new.md", "CHANGELOG.md", "docs/decisions/0020-packaging.md"):
        assert not Typed(page, "kubectl get pods").typed_by
        assert not Typed(page, "kubectl get pods").why_not
    assert Typed("docs/how-to/sites.md", "kubectl get nowhere").typed_by, "and fails there"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_exist_with_their_options(page: Path, workplace: Path) -> None:
    for text in words_in_code(page):
        if not text.startswith(tuple(f"{name} " for name in HERE)):
            continue
        (first, *_) = words(text)
        if first[0] in ("make", "python", "pytest"):
            check(first, workplace)
        else:
            mentioned(text)


def mentioned(text: str) -> None:
    """A command with options, of which values may be missing in a sentence."""
    path = "kubectl tranche" if text.startswith("kubectl tranche") else text.split()[0]
    rest = text.removeprefix(path).split()
    command: click.Command = PROGRAMS[path]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, *rest = rest
        command = subcommand(command, name, text)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known | {"--help", "--version"}, text


@pytest.mark.parametrize(
    "command",
    [
        ["make", "nothing"],
        ["make", "demo", "NOTHING=1"],
        ["tranche", "simulat"],
        ["python", "-m", "nowhere"],
        ["python", "benchmarks/planner_speed.py", "--nothing"],
    ],
)
def test_what_does_not_exist_is_found(command: list[str], workplace: Path) -> None:
    with pytest.raises(AssertionError):
        check(command, workplace)


def test_an_option_that_does_not_exist_is_found(workplace: Path) -> None:
    with pytest.raises(click.ClickException):
        check(["kubectl", "tranche", "queue", "--nothing"], workplace)
    with pytest.raises(AssertionError):
        mentioned("tranche scheduler --nothing")
