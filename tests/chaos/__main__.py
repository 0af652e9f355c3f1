"""``make chaos``: rounds of faults on a real control plane, with one line of output for each round."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos import rounds
from chaos.faults.catalog import FAULTS
from chaos.parallels import side_by_side
from tranche_testcluster import Meter


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="number of rounds")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round; it increases by one")
    parser.add_argument("--at-once", type=int, default=1, help="number of rounds that run at a time")
    parser.add_argument("--folder", type=Path, default=Path("build/chaos"), help="logs of rounds that fail")
    parser.add_argument("--jobs", type=int, default=rounds.Size().jobs)
    parser.add_argument("--faults", type=int, default=rounds.Size().faults)
    parser.add_argument("--only", action="append", choices=list(FAULTS), default=[], help="draw from these faults only")
    parser.add_argument("--policy", default=rounds.Size().policy, help="policy of the planner")
    parser.add_argument("--verbose", action="store_true", help="write the log of each round to standard error")
    options = parser.parse_args(arguments)
    if options.at_once < 1:
        parser.error("--at-once: at least 1")
    seeds, failed = range(options.seed, options.seed + options.rounds), list[int]()
    size = rounds.Size(options.jobs, options.faults, only=tuple(options.only), policy=options.policy)

    def command(seed: int) -> list[str]:
        return rounds.command(seed, options.folder / str(seed), size, options.verbose)

    with Meter() as meter:
        meter.phase("chaos", options.rounds)
        for outcome in side_by_side(seeds, options.at_once, command, lambda: meter.advance(0)):
            meter.print_line(str(outcome))
            meter.advance()
            if outcome.problems:
                failed.append(outcome.seed)
    if failed:
        sys.exit(f"{len(failed)} of {options.rounds} rounds failed, logs in {options.folder}: seeds {sorted(failed)}")
    sys.stdout.write(f"{options.rounds} rounds passed, seeds {options.seed} to {options.seed + options.rounds - 1}\n")


if __name__ == "__main__":
    main()
