"""Take code out, sentence by sentence of what enactment promises, and see the test turn red that shows it.

`benchmarks/mutations.toml` lists the sentences: what is taken out of which file, and the test that must not stand that.
Each is done in a copy of the checkout in a folder of its own, with the test run there. The verdict goes into the table
of docs/explanation/enactment.md at once, with its day; rows that were not tried this time keep theirs. Tests that are
red without any change are reported as such and prove nothing. The output of pytest stays in build/mutations, by number
of the row.
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
    """One sentence, and the change that makes it untrue."""

    point: str
    """Group of the sentence, 1 to 9: a section of docs/explanation/enactment.md's table."""
    sentence: str
    file: str
    old: str
    new: str
    what: str
    """Behaviour that the change removes, in words."""
    test: str
    """As pytest names it."""

    @property
    def changed(self) -> str:
        """The file without what is taken out.

        Raises:
            ValueError: if the text is not there, or there more than once, or nothing that can be read is left.
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
        """See that all tests are there.

        Raises:
            ValueError: if one is not.
        """
        for test in self.test.split():
            file, _, name = test.partition("::")
            path = ROOT / file
            if not path.exists() or (name and f"def {name}(" not in path.read_text()):
                raise ValueError(f"there is no {test}")

    def where(self) -> str:
        """File and line."""
        text = (ROOT / self.file).read_text()
        return f"{self.file}:{text[: text.index(self.old)].count(chr(10)) + 1}"

    def row(self) -> str:
        """Return the row of the table, without the verdict."""
        tests = "<br>".join(f"`{part.removeprefix('tests/')}`" for part in self.test.split())
        return f"| {self.point} | {self.sentence} | `{self.file}`: {self.what} | {tests} | "


def read() -> list[Mutation]:
    """All that are listed, by point."""
    found = [Mutation(**one) for one in tomllib.loads(LIST.read_text())["mutation"]]
    return sorted(found, key=lambda one: one.point)


def misfits(mutations: list[Mutation]) -> list[str]:
    """Return a message for each mutation that no longer fits code, tests and page."""
    found = []
    for mutation in mutations:
        try:
            _ = mutation.changed
            mutation.find_tests()
        except ValueError as error:
            found.append(f"{mutation.point}, {mutation.sentence}: {error}")
    if written(mutations) != PAGE.read_text():
        found.append(f"{PAGE.relative_to(ROOT)} has other rows: make mutations ONLY=the words of the new ones")
    return found


def copied(folder: Path) -> Path:
    """A copy of the checkout as it is, with what is not committed."""
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
    """Whether the test is green there; one that is red after everything stood still for a while is tried again.

    Raises:
        ValueError: if there is no such test.
    """
    while True:
        code, said, stood_still = _try(tree, "-x", *test.split())
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(said)
        if code == NOTHING_RAN or "no tests ran" in said:
            raise ValueError(f"{test}: {said[-500:]}")
        if code == 0 or not stood_still:
            return code == 0


def _try(tree: Path, *arguments: str, seconds: float = TEST_SECONDS) -> tuple[int, str, bool]:
    """Exit code, what pytest said, and whether we were stopped meanwhile (SIGSTOP), for which tests do not wait."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / part) for part in PARTS)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    stood_still, beat = False, time.monotonic()
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
            while (said := _said(tried)) is None and time.monotonic() < deadline:
                stood_still |= time.monotonic() - beat > LONGEST_BEAT_SECONDS
                beat = time.monotonic()
        finally:
            if tried.poll() is None:  # also after Ctrl-C: no control plane may stay behind
                os.killpg(tried.pid, signal.SIGKILL)
        stood_still |= time.monotonic() - beat > LONGEST_BEAT_SECONDS
    return tried.returncode, said or f"not over in {seconds:.0f} s", stood_still


def _said(tried: "subprocess.Popen[str]") -> str | None:
    """All that it has said, or None if it is not over in a second."""
    try:
        return tried.communicate(timeout=1.0)[0]
    except subprocess.TimeoutExpired:
        return None


def green_together(tests: Collection[str], at_once: int) -> set[str]:
    """Those that are green, as the code is, in one run of all: a control plane a module, and not one a test."""
    parts = sorted({part for test in tests for part in test.split()})
    shared = ("-n", str(at_once), "--dist", "loadfile", "-rA")
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        said = _try(copied(Path(folder)), *shared, *parts, seconds=TEST_SECONDS + 60.0 * len(parts))[1]
    outcomes = [line.split()[:2] for line in said.splitlines() if line.startswith(("PASSED ", "FAILED ", "ERROR "))]

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
    """Whether the test is green as the code is."""
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        return passes(copied(Path(folder)), test, LOGS / f"unchanged-{test.rpartition('/')[2].split()[0]}.txt")


def verdict(mutation: Mutation, number: int, green: Container[str]) -> str:
    """Return the result of the test when the code is removed."""
    began = time.monotonic()
    log = LOGS / f"{number}.txt"
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        tree = copied(Path(folder))
        (tree / mutation.file).write_text(mutation.changed)
        if passes(tree, mutation.test, log):
            found = MISSED
        else:
            found = CAUGHT if mutation.test in green or is_green(mutation.test) else NEVER_GREEN
    took = time.monotonic() - began
    print(f"{number:3} {mutation.point:2} {found:14} {took:4.0f} s  {mutation.where()}: {mutation.what}", flush=True)
    return found


def known() -> dict[str, str]:
    """Return the verdict that the page has for each row."""
    text = PAGE.read_text()
    table = text[text.index(BEGIN) : text.index(END)]
    cut = (line.rstrip(" |").rpartition("| ") for line in table.splitlines() if line.startswith("| "))
    return {row + bar: last for row, bar, last in cut}


def written(mutations: list[Mutation], news: dict[str, str] | None = None) -> str:
    """The page, with what is known of all rows and what is new."""
    text, verdicts = PAGE.read_text(), known() | (news or {})
    rows = [f"{row}{verdicts.get(row, UNTRIED)} |" for row in (one.row() for one in mutations)]
    table = "\n".join(["| point | sentence | taken out | test | |", "|---|---|---|---|---|", *rows])
    caught = sum(f"| {CAUGHT}" in row for row in rows)
    return (
        f"{text[: text.index(BEGIN)]}{BEGIN}\n{caught} of {len(rows)} are caught.\n\n{table}\n{text[text.index(END) :]}"
    )


def main() -> None:
    """Try those that are asked for; exit with 1 if a test has missed its change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        default="",
        help="points, numbers of rows (#7), words of sentences or tests, separated by commas; all if not given",
    )
    parser.add_argument(
        "--left", action="store_true", help=f"of these, only those that the page does not call {CAUGHT}"
    )
    parser.add_argument("--at-once", type=int, default=1, help="copies that are tried side by side (1)")
    parser.add_argument("--check", action="store_true", help="try none; see that all rows fit code, tests and page")
    arguments = parser.parse_args()
    mutations = read()
    if arguments.check:
        sys.exit("\n".join(misfits(mutations)) or None)
    words = [word.strip() for word in arguments.only.split(",") if word.strip()]
    caught = {row for row, found in known().items() if found.startswith(CAUGHT)} if arguments.left else set()
    chosen = [
        (number, one)
        for number, one in enumerate(mutations, 1)
        if (not words or any(w in (one.point, f"#{number}") or w in one.sentence or w in one.test for w in words))
        and one.row() not in caught
    ]
    if not chosen:
        sys.exit(f"no sentence for {arguments.only!r}")

    def tried(numbered: tuple[int, Mutation]) -> str:
        number, one = numbered
        found = verdict(one, number, green)
        with WRITING:
            page = written(mutations, {one.row(): f"{found}, {datetime.now(UTC):%Y-%m-%d}"})
            PAGE.with_suffix(".new").write_text(page)
            PAGE.with_suffix(".new").replace(PAGE)
        return found

    green = green_together({one.test for _, one in chosen}, arguments.at_once)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        verdicts = list(pool.map(tried, chosen))
    missed = sum(found != CAUGHT for found in verdicts)
    print(f"{len(verdicts)} changes, {len(verdicts) - missed} caught")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
