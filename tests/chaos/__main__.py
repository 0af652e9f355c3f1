"""``make chaos``: rounds of faults against the real control plane, one line a round."""

import argparse
import sys
from pathlib import Path

from chaos import rounds
from tranche_testcluster import Meter


def main() -> None:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next has one more")
    parser.add_argument("--folder", type=Path, default=Path("build/chaos"), help="logs of rounds that fail")
    parser.add_argument("--jobs", type=int, default=rounds.Size().jobs)
    parser.add_argument("--faults", type=int, default=rounds.Size().faults)
    parser.add_argument("--verbose", action="store_true", help="tell what happens within a round")
    options = parser.parse_args()
    failed = []
    with Meter() as meter:
        meter.phase("chaos", options.rounds)
        for seed in range(options.seed, options.seed + options.rounds):
            tell = meter.say if options.verbose else lambda line: meter.advance(0)
            size = rounds.Size(options.jobs, options.faults)
            outcome = rounds.run(seed, options.folder / str(seed), size, tell)
            meter.say(str(outcome))
            meter.advance()
            if outcome.problems:
                failed.append(seed)
    if failed:
        sys.exit(f"{len(failed)} of {options.rounds} rounds failed, logs in {options.folder}: seeds {failed}")
    sys.stdout.write(f"{options.rounds} rounds passed, seeds {options.seed} to {options.seed + options.rounds - 1}\n")


if __name__ == "__main__":
    main()
