"""Mutation tests: for each promise about enactment, remove the code that keeps it, and check that its test then fails.

`benchmarks/mutations.toml` lists the promises, each with the code to remove and the test that must fail. Each mutation
is tried in a copy of the checkout. Its verdict and the date are written to the table of docs/explanation/enactment.md
at once; the other rows keep their verdicts. A test that also fails without the mutation is reported as such, because it
proves nothing. The output of pytest stays in build/mutations, by number of the row.
"""

import argparse
import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Container
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
PAGE = ROOT / "docs/explanation/enactment.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
LOGS = ROOT / "build" / "mutations"
PARTS = ("scheduler", "operator", "worker", "testcluster", "tests")
CAUGHT, MISSED, NEVER_GREEN, UNTRIED = "caught", "NOT CAUGHT", "red without it", "not tried yet"
TEST_SECONDS, LONGEST_BEAT_SECONDS = 400.0, 5.0
WRITING = Lock()
NOTHING_RAN = 5
"""Exit code of pytest."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Promise, and the change that breaks it."""

    point: str
    """Group of the promise, 1 to 10, in the table of docs/explanation/enactment.md."""
    sentence: str
    file: str
    old: str
    new: str
    what: str
    """Description of the removed code."""
    test: str
    """Test as pytest names it."""

    @property
    def changed(self) -> str:
        """Return the file without the removed code.

        Raises:
            ValueError: The text is missing or occurs more than once, or the rest does not parse.
        """
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times: {self.old!r}")
        changed = text.replace(self.old, self.new)
        try:
            if self.file.endswith(".py"):
                ast.parse(changed)
        except SyntaxError as error:
            raise ValueError(f"{self.file} without {self.old!r}: {error}") from error
        return changed

    def find_tests(self) -> None:
        """Check that all tests exist.

        Raises:
            ValueError: A test does not exist.
        """
        for test in self.test.split():
            file, _, name = test.partition("::")
            path = ROOT / file
            if not path.exists() or (name and f"def {name}(" not in path.read_text()):
                raise ValueError(f"there is no {test}")

    def where(self) -> str:
        """Return file and line."""
        text = (ROOT / self.file).read_text()
        return f"{self.file}:{text[: text.index(self.old)].count(chr(10)) + 1}"

    def row(self) -> str:
        """Return the row of the table, without the verdict."""
        tests = "<br>".join(f"`{part.removeprefix('tests/')}`" for part in self.test.split())
        return f"| {self.point} | {self.sentence} | `{self.file}`: {self.what} | {tests} | "


def read() -> list[Mutation]:
    """Return all listed mutations, by group."""
    mutations = [Mutation(**entry) for entry in tomllib.loads(LIST.read_text())["mutation"]]
    return sorted(mutations, key=lambda mutation: int(mutation.point))


def misfits(mutations: list[Mutation]) -> list[str]:
    """Return mismatches between the list and code, tests and page."""
    lines = []
    for mutation in mutations:
        try:
            _ = mutation.changed
            mutation.find_tests()
        except ValueError as error:
            lines.append(f"{mutation.point}, {mutation.sentence}: {error}")
    if written(mutations) != PAGE.read_text():
        lines.append(f"{PAGE.relative_to(ROOT)} has other rows: run make mutations ONLY='words of the new promises'")
    return lines


def copied(folder: Path) -> Path:
    """Copy the checkout as it is, with uncommitted files."""
    tree = folder / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def passes(tree: Path, test: str, log: Path) -> bool:
    """Return whether the test passes there; a failed test is tried again if the machine was suspended meanwhile.

    Raises:
        ValueError: The test does not exist.
    """
    while True:
        code, output, was_suspended = _try(tree, "-x", *test.split())
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output)
        if code == NOTHING_RAN or "no tests ran" in output:
            raise ValueError(f"{test}: {output[-500:]}")
        if code == 0 or not was_suspended:
            return code == 0


def _try(tree: Path, *arguments: str, seconds: float = TEST_SECONDS) -> tuple[int, str, bool]:
    """Return exit code, output, and whether this process was stopped meanwhile (SIGSTOP): tests do not wait then."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / part) for part in PARTS)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    was_suspended, beat = False, time.monotonic()
    deadline = beat + seconds
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as tried:
        try:
            while (output := _output(tried)) is None and time.monotonic() < deadline:
                was_suspended |= time.monotonic() - beat > LONGEST_BEAT_SECONDS
                beat = time.monotonic()
        finally:
            if tried.poll() is None:  # also after Ctrl-C: no control plane may stay behind
                os.killpg(tried.pid, signal.SIGKILL)
        was_suspended |= time.monotonic() - beat > LONGEST_BEAT_SECONDS
    return tried.returncode, output or f"not over in {seconds:.0f} s", was_suspended


def _output(tried: "subprocess.Popen[str]") -> str | None:
    """Return the whole output, or None if the process has not ended within a second."""
    try:
        return tried.communicate(timeout=1.0)[0]
    except subprocess.TimeoutExpired:
        return None


def green_together(tests: Collection[str], at_once: int) -> set[str]:
    """Return the tests that pass without a mutation, in one run of all modules with one control plane each."""
    parts = sorted({part for test in tests for part in test.split()})
    shared = ("-n", str(at_once), "--dist", "loadfile", "-rA")
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        output = _try(copied(Path(folder)), *shared, *parts, seconds=TEST_SECONDS + 60.0 * len(parts))[1]
    outcomes = [line.split()[:2] for line in output.splitlines() if line.startswith(("PASSED ", "FAILED ", "ERROR "))]

    def is_green_part(part: str) -> bool:
        own = {
            outcome
            for outcome, name in outcomes
            if name == part or name.startswith((f"{part}[", f"{part}:", f"{part}/"))
        }
        return own == {"PASSED"}

    green = {test for test in tests if all(map(is_green_part, test.split()))}
    print(f"{len(green)} of {len(tests)} tests are green in one run of all", flush=True)
    return green


@cache
def is_green(test: str) -> bool:
    """Return whether the test passes without a change."""
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        return passes(copied(Path(folder)), test, LOGS / f"unchanged-{test.rpartition('/')[2].split()[0]}.txt")


def verdict(mutation: Mutation, number: int, green: Container[str]) -> str:
    """Return the result of the test with the mutation."""
    began = time.monotonic()
    log = LOGS / f"{number}.txt"
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        tree = copied(Path(folder))
        (tree / mutation.file).write_text(mutation.changed)
        if passes(tree, mutation.test, log):
            result = MISSED
        else:
            result = CAUGHT if mutation.test in green or is_green(mutation.test) else NEVER_GREEN
    took = time.monotonic() - began
    print(f"{number:3} {mutation.point:2} {result:14} {took:4.0f} s  {mutation.where()}: {mutation.what}", flush=True)
    return result


def known() -> dict[str, str]:
    """Return the verdict of each row on the page."""
    text = PAGE.read_text()
    table = text[text.index(BEGIN) : text.index(END)]
    cut = (line.rstrip(" |").rpartition("| ") for line in table.splitlines() if line.startswith("| "))
    return {row + bar: last for row, bar, last in cut}


def written(mutations: list[Mutation], news: dict[str, str] | None = None) -> str:
    """Return the page with known and new verdicts."""
    text, verdicts = PAGE.read_text(), known() | (news or {})
    rows = [f"{row}{verdicts.get(row, UNTRIED)} |" for row in (mutation.row() for mutation in mutations)]
    table = "\n".join(["| group | promise | removed code | test | verdict |", "|---|---|---|---|---|", *rows])
    caught = sum(f"| {CAUGHT}" in row for row in rows)
    return (
        f"{text[: text.index(BEGIN)]}{BEGIN}\n{caught} of {len(rows)} are caught.\n\n{table}\n{text[text.index(END) :]}"
    )


def main() -> None:
    """Try the selected mutations; exit with 1 if a test has missed its change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        default="",
        help="groups, row numbers (#7), words of promises or tests, separated by commas (default: all)",
    )
    parser.add_argument("--left", action="store_true", help=f"only rows whose verdict on the page is not {CAUGHT}")
    parser.add_argument("--at-once", type=int, default=1, help="number of copies to test in parallel (1)")
    parser.add_argument(
        "--check", action="store_true", help="run no test; check that all rows match code, tests and page"
    )
    arguments = parser.parse_args()
    mutations = read()
    if arguments.check:
        sys.exit("\n".join(misfits(mutations)) or None)
    words = [word.strip() for word in arguments.only.split(",") if word.strip()]
    caught = {row for row, result in known().items() if result.startswith(CAUGHT)} if arguments.left else set()
    chosen = [
        (number, mutation)
        for number, mutation in enumerate(mutations, 1)
        if (
            not words
            or any(w in (mutation.point, f"#{number}") or w in mutation.sentence or w in mutation.test for w in words)
        )
        and mutation.row() not in caught
    ]
    if not chosen:
        sys.exit(f"no promise matches {arguments.only!r}")

    def tried(numbered: tuple[int, Mutation]) -> str:
        number, mutation = numbered
        result = verdict(mutation, number, green)
        with WRITING:
            page = written(mutations, {mutation.row(): f"{result}, {datetime.now(UTC):%Y-%m-%d}"})
            PAGE.with_suffix(".new").write_text(page)
            PAGE.with_suffix(".new").replace(PAGE)
        return result

    green = green_together({mutation.test for _, mutation in chosen}, arguments.at_once)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        verdicts = list(pool.map(tried, chosen))
    missed = sum(result != CAUGHT for result in verdicts)
    print(f"{len(verdicts)} changes, {len(verdicts) - missed} caught")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
