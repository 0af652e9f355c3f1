"""Cost of preempted workers and a killed parameter server for a model: the numpy example, disturbed and undisturbed.

``python benchmarks/worker_losses.py`` trains scikit-learn's digits once undisturbed and once with three workers stopped
(SIGTERM and SIGKILL in turn) and the server killed, for each seed: real processes, the production planner, the real
report API. It prints the final losses, the repeated work, and the planner's estimates; with ``--picture`` it
draws docs/pictures/worker-losses.png. It exits with 1 if a bound of ranges.toml is missed or a batch is not in the
model exactly once.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import ranges

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "worker" / "examples")]

from support.worker_trial import Result, Trial, run  # noqa: E402 - the harness of the tests

PICTURE = ROOT / "docs/pictures/worker-losses.png"
SEEDS = (0, 1, 2, 3, 4)
COLUMNS = {"seed": 4, "undisturbed": 13, "disturbed": 11, "apart": 8, "stopped": 9, "trained again": 15, "seconds": 14}


def trial(seed: int, disturbed: bool) -> Result:
    """Train once in a temporary directory."""
    case = Trial(seed, preemptions=3 * disturbed, server_kills=int(disturbed))
    with tempfile.TemporaryDirectory(prefix="tranche-losses-") as directory:
        result = run(case, Path(directory))
    once = {(chunk, batch): 1 for chunk in range(case.chunks) for batch in range(case.batches // case.chunks)}
    assert dict(result.applied) == once, f"{case}: the model does not have every batch exactly once"
    assert result.repeated == sum(result.unsaved), f"{case}: more was trained again than the server had lost"
    return result


def draw(runs: dict[int, tuple[Result, Result]], path: Path) -> None:
    """Draw the loss against batches in the model, both axes logarithmic where it matters."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for results in runs.values():
        for result, colour, label in zip(results, ("#0072b2", "#d55e00"), ("undisturbed", "disturbed"), strict=True):
            axes.plot(*zip(*result.curve, strict=True), color=colour, alpha=0.6, linewidth=1.2, label=label)
    axes.set(yscale="log", xlabel="mini-batches in the model", ylabel="loss on all digits")
    axes.grid(visible=True, which="both", alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[:2], labels[:2], frameon=False)
    axes.set_title(f"{len(runs)} seeds; disturbed: 3 workers stopped, the parameter server killed", fontsize=10)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {Trial(0)}")
    print("".join(name.rjust(width) for name, width in COLUMNS.items()))
    runs: dict[int, tuple[Result, Result]] = {}
    for seed in options.seeds:
        calm, rough = runs[seed] = trial(seed, False), trial(seed, True)
        again = f"{rough.repeated} of {sum(rough.applied.values())}"
        print(
            f"{seed:>4}{calm.loss:>13.5f}{rough.loss:>11.5f}{rough.loss / calm.loss - 1:>+8.2%}"
            f"{len(rough.stopped):>9}{again:>15}{f'{calm.seconds:.0f}, {rough.seconds:.0f}':>14}",
            flush=True,
        )
    apart = max(abs(rough.loss / calm.loss - 1) for calm, rough in runs.values())
    again_most = float(max(max(rough.unsaved) for _, rough in runs.values()))
    if options.picture:
        draw(runs, PICTURE)
    figures = {
        "final loss, disturbed against undisturbed": apart,
        "batches trained again after the server was killed": again_most,
    }
    sys.exit(not ranges.all_kept(figures))


if __name__ == "__main__":
    main()
