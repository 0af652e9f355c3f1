"""Run each test module that uses a control plane several times alone, beside busy loops, and list what failed.

A test that fails once in twenty runs is a defect. Each module runs ``--times`` times in a process of its own; the busy
loops, and with ``--at-once`` other modules, take the processors from it. With ``--pause``, random processes of the runs
stop for up to that many seconds; ``build/repeats/pauses.log`` lists which. Results are added to
``build/repeats/results.jsonl`` at once, so that ``--left`` continues an interrupted run; the output of a failed run
stays beside it.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from process_pauses import process_pauses

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests/chaos", "tests/integration", "tests/testcluster")
RESULTS = ROOT / "build/repeats/results.jsonl"
SECONDS = 900.0
"""Maximum time of one run."""
NOTHING_RAN = 5
"""Exit code of pytest."""


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep processors busy within the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def modules(words: list[str]) -> list[str]:
    """Return the paths of the modules that contain one of the words, or of all in :data:`FOLDERS`."""
    folders = ("tests",) if words else FOLDERS
    paths = [str(path.relative_to(ROOT)) for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py"))]
    return [path for path in paths if not words or any(word in path for word in words)]


def run(module: str, number: int, environment: dict[str, str]) -> bool:
    """Run a module once and record the result; return whether it passed."""
    name = "-".join(Path(module).with_suffix("").parts[1:])
    began, log = time.monotonic(), RESULTS.with_name(f"{name}-{number}.log")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", module]
    with log.open("wb") as output:
        try:
            code = subprocess.run(  # noqa: S603
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, timeout=SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    passed = code in (0, NOTHING_RAN)
    if passed:
        log.unlink()
    line = {"module": module, "passed": passed, "seconds": round(time.monotonic() - began, 1)}
    with RESULTS.open("a") as results:
        results.write(json.dumps(line) + "\n")
    return passed


def recorded_results() -> dict[str, list[bool]]:
    """Return the recorded results by module."""
    by_module: dict[str, list[bool]] = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else ():
        result = json.loads(line)
        by_module.setdefault(result["module"], []).append(result["passed"])
    return by_module


def main() -> int:
    """Run the modules; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="parts of the paths of modules (default: all)")
    parser.add_argument("--times", type=int, default=10, help="runs of each module (%(default)s)")
    parser.add_argument("--busy", type=int, default=3, help="busy loops beside them (%(default)s)")
    parser.add_argument("--at-once", type=int, default=1, help="modules that run at a time (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.0, help="longest pause of a process in seconds (none)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="random seed of the pauses (random)")  # noqa: S311
    parser.add_argument("--left", action="store_true", help="continue an interrupted run")
    options = parser.parse_args()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    if not options.left:
        RESULTS.unlink(missing_ok=True)
    chosen, recorded = modules(options.words), recorded_results()

    def repeat(module: str) -> tuple[str, list[bool]]:
        before = recorded.get(module, [])
        return module, [*before, *(run(module, number, environment) for number in range(len(before), options.times))]

    if options.pause:
        sys.stdout.write(f"pauses of up to {options.pause:g} s, --seed {options.seed}\n")
    with (
        busy_loops(options.busy),
        process_pauses(options.pause, options.seed, RESULTS.with_name("pauses.log")) as environment,
        ThreadPoolExecutor(options.at_once) as pool,
    ):
        for module, results in pool.map(repeat, chosen):
            sys.stdout.write(f"{results.count(True):3} of {len(results)} passed  {module}\n")
            sys.stdout.flush()
    return int(not all(all(results) for module, results in recorded_results().items() if module in chosen))


if __name__ == "__main__":
    sys.exit(main())
