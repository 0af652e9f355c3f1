"""Cost of a preemption for the PyTorch and the TensorFlow gang of worker/examples, disturbed and undisturbed.

``python benchmarks/framework_examples.py`` trains scikit-learn's digits with each framework once undisturbed and once
stopped by a more urgent job (SIGTERM to all) and by the death of a member (SIGKILL), at moments drawn from ``--seed``:
real processes, the production planner, the operator's environment, the real report API. It prints the final losses and
what was repeated, and exits with 1 if a bound of ranges.toml is missed or the model has not seen every batch once.
The frameworks are installed by ``make examples``.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import ranges

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "worker" / "examples")]

from support.frameworks import python_of  # noqa: E402 - the harness of the tests
from support.gang_trial import GRACE_SECONDS, TENSORFLOW, TORCH, Example, Result, Trial, run  # noqa: E402

EXAMPLES = {example.framework: example for example in (TORCH, TENSORFLOW)}
COLUMNS = {
    "framework": 10,
    "undisturbed": 13,
    "disturbed": 11,
    "apart": 9,
    "again, preempted": 18,
    "again, killed": 15,
    "s to stop": 11,
    "seconds": 12,
}


def trial(case: Trial) -> Result:
    """Train once in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="tranche-gang-") as directory:
        result = run(case, Path(directory))
    # A step in progress on a killed TensorFlow worker is given to another one: it may be in the model twice.
    twice = case.kills if case.example.framework == "tensorflow" else 0
    assert min(result.counts) == 1, f"{case}: the model does not have every batch: {result.counts}"
    assert sum(result.counts) <= len(result.counts) + twice, f"{case}: batches are in the model twice: {result.counts}"
    assert result.reported > 0, f"{case}: no report was counted"
    assert result.refused == 0, f"{case}: reports were refused"
    return result


def measure(example: Example, seed: int) -> dict[str, float]:
    """Train twice, print a row, and return the figures that have bounds."""
    calm, rough = trial(Trial(example, seed)), trial(Trial(example, seed, preemptions=1, kills=1))
    kinds = [kind for kind, _ in rough.moments]
    again = {
        kind: max(0.0, seen - resumed) for kind, seen, resumed in zip(kinds, rough.seen, rough.resumed, strict=True)
    }
    apart = rough.loss / calm.loss - 1
    print(
        f"{example.framework:>10}{calm.loss:>13.5f}{rough.loss:>11.5f}{apart:>+9.3%}{again['preempt']:>18.0f}"
        f"{again['kill']:>15.0f}{max(rough.stopping):>11.1f}{f'{calm.seconds:.0f}, {rough.seconds:.0f}':>12}"
    )
    print(" " * 11 + ", ".join(f"{kind} after {batches} of {example.batches}" for kind, batches in rough.moments))
    return {
        f"{example.framework} gang, final loss, disturbed against undisturbed": abs(apart),
        f"{example.framework} gang, batches trained again after a preemption": again["preempt"],
        f"{example.framework} gang, batches trained again after a member was killed": again["kill"],
        f"{example.framework} gang, part of the grace period that stopping takes": max(rough.stopping) / GRACE_SECONDS,
    }


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frameworks", nargs="+", choices=sorted(EXAMPLES), default=list(EXAMPLES))
    options = parser.parse_args()
    for framework in options.frameworks:
        try:
            python_of(framework)
        except FileNotFoundError as error:
            sys.exit(str(error))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; seed {options.seed}")
    print("".join(name.rjust(width) for name, width in COLUMNS.items()))
    figures: dict[str, float] = {}
    for framework in options.frameworks:
        figures |= measure(EXAMPLES[framework], options.seed)
    sys.exit(not ranges.all_kept(figures))


if __name__ == "__main__":
    main()
