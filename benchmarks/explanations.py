"""How often the constraint that an explanation names really delays the job, under every policy that runs in clusters.

In each of 1,000 random states for each policy, the constraint that the explanation of one waiting job names is
removed, and the simulator plays both courses on: the job must start earlier. `tests/support/constraint_trials.py` has
the scenarios and the removals. Prints a table by kind of wait reason, and exits with 1 if a policy misses 95 %, or if a
kind is too rare to be tested.

    python benchmarks/explanations.py --processes 2
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.constraint_trials import POLICIES, Tally, tally_of

SEED = 20260
STATES = 1000
LEAST_SHARE = 0.95
LEAST_OF_A_KIND = 5
"""Least number of trials of each kind that can occur under a policy, in 1,000."""
COLUMNS = ("all", "tier", "weight", "age", "share", "order", "not stopped", "quota", "data", "held", "nodes", "gang")


def cell(tally: Tally, kind: str) -> str:
    return f"{tally.earlier[kind]} / {tally.total[kind]}" if tally.total[kind] else "–"


def row(tally: Tally) -> str:
    """Return one line of the table; the last column has all kinds without a column of their own."""
    rest = set(tally.total) - set(COLUMNS)
    other = sum(tally.total[kind] for kind in rest)
    cells = [cell(tally, kind) for kind in COLUMNS]
    cells.append(f"{sum(tally.earlier[kind] for kind in rest)} / {other}" if other else "–")
    return f"| {tally.policy} | {' | '.join(cells)} |"


def problems(tally: Tally, states: int) -> list[str]:
    """Return what the trials of a policy do not show."""
    found = []
    if tally.earlier["all"] < LEAST_SHARE * states:
        found.append(f"{tally.policy}: {tally.earlier['all']} of {states} start earlier, less than {LEAST_SHARE:.0%}")
    rare = tally.missing(LEAST_OF_A_KIND * states // STATES)
    if rare:
        found.append(f"{tally.policy}: too few states with {', '.join(rare)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=STATES, help="states for each policy")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--failed", action="store_true", help="print the explanations that were wrong")
    options = parser.parse_args()
    policies = options.policies.split(",")
    tallies = []
    print(f"| policy | {' | '.join(COLUMNS)} | other |", f"| :-- {'| --: ' * (len(COLUMNS) + 1)}|", sep="\n")
    with ProcessPoolExecutor(options.processes) as pool:
        for tally in pool.map(partial(tally_of, states=options.states, seed=options.seed), policies):
            tallies.append(tally)
            print(row(tally), flush=True)
    if options.failed:
        for tally in tallies:
            print(f"\n{tally.policy}", *tally.failed, sep="\n", file=sys.stderr)
    found = [line for tally in tallies for line in problems(tally, options.states)]
    print(*found, sep="\n", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
