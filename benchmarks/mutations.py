"""Take code out, sentence by sentence of what enactment promises, and see the test turn red that shows it.

`benchmarks/mutations.toml` lists the sentences: what is taken out of which file, and the test that must not stand that.
Each is done in a copy of the checkout in a folder of its own, with the test run there; the table goes into
docs/enactment.md. Tests that are red without any change are told as such and prove nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
PAGE = ROOT / "docs" / "enactment.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"
PARTS = ("scheduler", "operator", "worker", "testcluster", "tests")
CAUGHT, MISSED, NEVER_GREEN = "caught", "NOT CAUGHT", "red without it"
TEST_SECONDS = 400.0
NOTHING_RAN = 5
"""Exit code of pytest."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One sentence, and the change that makes it untrue."""

    point: str
    """Of issue 6."""
    sentence: str
    file: str
    old: str
    new: str
    what: str
    """What the change takes out, in words."""
    test: str
    """As pytest names it."""

    def where(self) -> str:
        """File and line.

        Raises:
            ValueError: if the text is not there, or there more than once.
        """
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times: {self.old!r}")
        return f"{self.file}:{text[: text.index(self.old)].count(chr(10)) + 1}"

    def apply(self, tree: Path) -> None:
        """Make the change in a copy."""
        path = tree / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


def read() -> list[Mutation]:
    """All that are listed.

    Raises:
        ValueError: if one does not fit the code any more.
    """
    found = [Mutation(**one) for one in tomllib.loads(LIST.read_text())["mutation"]]
    for mutation in found:
        mutation.where()
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


def passes(tree: Path, test: str) -> bool:
    """Whether the test is green there.

    Raises:
        ValueError: if there is no such test.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / part) for part in PARTS)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *test.split()]
    try:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=TEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if ended.returncode == NOTHING_RAN or b"no tests ran" in ended.stdout:
        raise ValueError(f"{test}: {ended.stdout.decode()[-500:]}")
    return ended.returncode == 0


@cache
def is_green(test: str) -> bool:
    """Whether the test is green as the code is."""
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        return passes(copied(Path(folder)), test)


def verdict(mutation: Mutation) -> str:
    """What becomes of the test when the code is taken out."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tranche-mutation-") as folder:
        tree = copied(Path(folder))
        mutation.apply(tree)
        found = MISSED if passes(tree, mutation.test) else CAUGHT if is_green(mutation.test) else NEVER_GREEN
    print(f"{mutation.point:4} {found:14} {time.monotonic() - began:4.0f} s  {mutation.where()}: {mutation.what}")
    sys.stdout.flush()
    return found


def table(mutations: list[Mutation], verdicts: list[str]) -> str:
    """As in docs/enactment.md."""
    rows = ["| point | sentence | taken out | test | |", "|---|---|---|---|---|"]
    for one, found in zip(mutations, verdicts, strict=True):
        test = "<br>".join(f"`{part.removeprefix('tests/')}`" for part in one.test.split())
        rows.append(f"| {one.point} | {one.sentence} | `{one.where()}`: {one.what} | {test} | {found} |")
    return "\n".join(rows)


def main() -> None:
    """Try those that are asked for; exit with 1 if a test has missed its change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", help="points or words of sentences, separated by commas; all if not given"
    )
    parser.add_argument("--at-once", type=int, default=1, help="copies that are tried side by side (1)")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    words = [word.strip() for word in arguments.only.split(",") if word.strip()]
    chosen = [one for one in read() if not words or any(w == one.point or w in one.sentence for w in words)]
    if not chosen:
        sys.exit(f"no sentence for {arguments.only!r}")
    with ThreadPoolExecutor(arguments.at_once) as pool:
        verdicts = list(pool.map(verdict, chosen))
    if arguments.write:
        text = PAGE.read_text()
        before, after = text[: text.index(BEGIN)], text[text.index(END) :]
        PAGE.write_text(f"{before}{BEGIN}\n{table(chosen, verdicts)}\n{after}")
    missed = sum(found != CAUGHT for found in verdicts)
    print(f"{len(verdicts)} changes, {len(verdicts) - missed} caught")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
