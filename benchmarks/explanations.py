"""Share of explanations whose constraint delays the job, for each policy that runs in clusters.

In each of 1,000 random states for each policy but those that distribute workers, whose states take longer, the
constraint that the explanation of one waiting job names is removed, and the simulator plays both courses on: the job
must start earlier. `tests/support/constraint_trials.py` has the scenarios and the removals. Prints a table by kind of
wait reason, and exits with 1 if a policy misses 95 %, or if a kind is too rare to be tested.

    python benchmarks/explanations.py --processes 2
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.constraint_trials import POLICIES, TrialCount, trial_count
from support.policy_groups import DISTRIBUTING

SEED = 20260
STATES = 1000
MIN_SHARE = 0.95
LEAST_OF_A_KIND = 5
"""Least number of trials of each kind that can occur under a policy, in 1,000."""
COLUMNS = ("all", "tier", "weight", "age", "share", "order", "not stopped", "quota", "data", "held", "nodes", "gang")


def cell(count: TrialCount, kind: str) -> str:
    return f"{count.earlier[kind]} / {count.total[kind]}" if count.total[kind] else "–"


def row(count: TrialCount) -> str:
    """Return one line of the table; the last column has all kinds without a column of their own."""
    others = set(count.total) - set(COLUMNS)
    total = sum(count.total[kind] for kind in others)
    cells = [cell(count, kind) for kind in COLUMNS]
    cells.append(f"{sum(count.earlier[kind] for kind in others)} / {total}" if total else "–")
    return f"| {count.policy} | {' | '.join(cells)} |"


def problems(count: TrialCount, states: int) -> list[str]:
    """Return what the trials of a policy do not show."""
    lines = []
    if count.earlier["all"] < MIN_SHARE * states:
        lines.append(f"{count.policy}: {count.earlier['all']} of {states} start earlier, less than {MIN_SHARE:.0%}")
    rare = count.missing(LEAST_OF_A_KIND * states // STATES)
    if rare:
        lines.append(f"{count.policy}: too few states with {', '.join(rare)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=STATES, help="states for each policy")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--policies", default=",".join(name for name in POLICIES if name not in DISTRIBUTING))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--failed", action="store_true", help="print the explanations that were wrong")
    options = parser.parse_args()
    policies = options.policies.split(",")
    counts = []
    print(f"| policy | {' | '.join(COLUMNS)} | other |", f"| :-- {'| --: ' * (len(COLUMNS) + 1)}|", sep="\n")
    with ProcessPoolExecutor(options.processes) as pool:
        for count in pool.map(partial(trial_count, states=options.states, seed=options.seed), policies):
            counts.append(count)
            print(row(count), flush=True)
    if options.failed:
        for count in counts:
            print(f"\n{count.policy}", *count.failed, sep="\n", file=sys.stderr)
    lines = [line for count in counts for line in problems(count, options.states)]
    print(*lines, sep="\n", file=sys.stderr)
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
