"""Bandwidth shares and batch sizes of workers against their comparators, in virtual time.

``python benchmarks/worker_network.py`` compares SaSP-like shares of a parameter server's port with equal and
proportional ones and with a network without shares, under BSP, SSP(3) and ASP; then LOFT-like batch sizes with LB-BSP
and equal ones, on the digits and the network of worker/examples/numpy_ps; then the rules of aggregation under an
attack. ``--picture`` draws docs/pictures/sasp.png and loft.png.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from port_sharing import Course, fair_end, mixed_loads, on_request_end, shared_end
from tranche.estimate.iteration.bandwidth_share import RULES, Rule, decoupled_shares
from tranche.estimate.iteration.batch_search import BatchSearch, Period, Setting
from tranche.estimate.iteration.batch_size import SampleTime, equal_split, fitted, needs_robust_rule, split
from tranche.estimate.iteration.synchronization import ASP, BSP

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "worker" / "examples")]

from numpy_ps.aggregation import RULES as AGGREGATIONS  # noqa: E402 - the examples are no package of the environment
from numpy_ps.models import Array, Labels, Network  # noqa: E402

PICTURES = ROOT / "docs/pictures"
SCHEMES = {"BSP": BSP, "SSP(3)": 3.0, "ASP": ASP}
WORKERS = (4, 8, 16, 32)
PORTS = (1e9, 10e9)
GRADIENT_BITS = (8e6, 8e7, 8e8)
"""Gradients of 1, 10 and 100 MB."""
COMPUTE_SECONDS = (0.25, 0.5, 1.0)
"""Times of a batch on three kinds of GPU."""
LINK = 1e9
BATCH, ITERATIONS, PERIOD, NOTED = 96, 400, 50, 5
"""Samples of a batch; iterations of a training, of a period of the search, and between two losses."""
ATTACKED_ITERATIONS, ATTACKER = 120, 4
SAMPLE_BITS, FETCH_BITS_PER_SECOND = 8e5, 2e7
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def courses(batches: int, scheme: float, decoupled: bool) -> list[Course]:
    """Return the courses of all numbers of workers, ports and sizes of gradients."""
    return [
        Course(mixed_loads(count, COMPUTE_SECONDS, batches, LINK), bits, port, scheme, decoupled)
        for count, port, bits in product(WORKERS, PORTS, GRADIENT_BITS)
    ]


def sasp_rule(decoupled: bool) -> Rule:
    """Return the SaSP-like rule for workers that do or do not communicate beside computation."""
    return decoupled_shares if decoupled else RULES["sasp-like"]


def ratios(values: Sequence[float], bases: Sequence[float]) -> str:
    """Return the geometric mean, least and largest of ratios."""
    quotients = [value / base for value, base in zip(values, bases, strict=True)]
    return f"{geometric_mean(quotients):8.3f} {min(quotients):7.3f} {max(quotients):7.3f}"


def compare_shares(batches: int) -> dict[str, list[float]]:
    """Print seconds of SaSP-like shares over those of the comparators; return seconds by name for the picture."""
    print(
        f"SaSP-like shares: seconds for {batches} batches per worker over those of another rule; {WORKERS} workers x "
        f"ports of {[port / 1e9 for port in PORTS]} Gbit/s x gradients of 1, 10, 100 MB"
    )
    print(f"{'scheme':8} {'mode':10} {'against':14} {'mean':>8} {'least':>7} {'largest':>7}")
    by_name: dict[str, list[float]] = {}
    for name, scheme in SCHEMES.items():
        for decoupled in (False, True):
            mode, cases = "decoupled" if decoupled else "in turn", courses(batches, scheme, decoupled)
            sasp_seconds = by_name[f"{name} {mode} sasp"] = [
                shared_end(course, sasp_rule(decoupled)) for course in cases
            ]
            others = {
                "equal": [shared_end(course, RULES["equal"]) for course in cases],
                "proportional": [shared_end(course, RULES["proportional"]) for course in cases],
                "no shares": [fair_end(course) for course in cases],
            }
            for rule, seconds in others.items():
                by_name[f"{name} {mode} {rule}"] = seconds
                print(f"{name:8} {mode:10} {rule:14} {ratios(sasp_seconds, seconds)}")
        for base in ("equal", "no shares"):
            text = ratios(by_name[f"{name} decoupled sasp"], by_name[f"{name} in turn {base}"])
            print(f"{name:8} {'decoupled against in turn':>25} {base:9} {text}")
    compare_on_request(batches)
    return by_name


def compare_on_request(batches: int) -> None:
    """Print seconds of windows that workers take on request over those of equal shares."""
    cases, rule, equal = courses(batches, ASP, False), RULES["sasp-like"], RULES["equal"]
    base = [on_request_end(course, equal, equal, 4 * len(course.loads)) for course in cases]
    for label, before in (("always", rule), ("last windows only", equal)):
        seconds = [on_request_end(course, before, rule, 4 * len(course.loads)) for course in cases]
        print(f"ASP, in turn, 5 windows per worker on request, {label:17} against equal: {ratios(seconds, base)}")


@dataclass
class Training:
    """Training of the digits on workers of different speed and locality, in virtual time."""

    x: Array
    y: Labels
    local: tuple[float, ...]
    seed: int
    attack: float = 1.0
    """Factor of the attacker's gradient."""
    aggregation: str = "mean"
    draw: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        self.network = Network(decay=1e-3)
        self.parameters = self.network.initial(self.seed)
        self.seconds, self.samples = 0.0, 0
        self.compute = [(0.01, 0.02, 0.04)[i % 3] / 4 for i in range(len(self.local))]
        self.truth = [
            SampleTime(0.1, compute + (1 - local) * SAMPLE_BITS / FETCH_BITS_PER_SECOND)
            for compute, local in zip(self.compute, self.local, strict=True)
        ]
        self.curve: list[tuple[float, int, float]] = []
        """Seconds, samples and loss on all data."""

    def models(self, *, fetches: bool) -> list[SampleTime]:
        """Return the workers' models: with fetches (LOFT-like), or of computation alone (LB-BSP-like)."""
        return self.truth if fetches else [SampleTime(0.1, compute) for compute in self.compute]

    def iterate(self, sizes: Sequence[int]) -> list[float]:
        """Train one global batch; return the seconds of each worker, with 10 % of noise."""
        noise = np.exp(0.1 * self.draw.standard_normal(len(sizes)))
        times = [model.seconds(size) * float(off) for model, size, off in zip(self.truth, sizes, noise, strict=True)]
        rows = self.draw.choice(len(self.y), sum(sizes), replace=False)
        parts = np.split(rows, np.cumsum(sizes)[:-1])
        gradients = np.stack([self.network.gradient(self.parameters, self.x[part], self.y[part]) for part in parts])
        gradients[ATTACKER] *= self.attack
        self.parameters = self.parameters - 0.5 * AGGREGATIONS[self.aggregation](
            gradients, np.array(sizes) / sum(sizes)
        )
        self.seconds += max(times)
        self.samples += sum(sizes)
        return times

    def note(self) -> float:
        """Record and return the loss on all data."""
        loss = min(1e9, self.network.loss(self.parameters, self.x, self.y))
        self.curve.append((self.seconds, self.samples, loss))
        return loss


def train_fixed(training: Training, sizes: Sequence[int], samples: int) -> Training:
    """Train a number of samples with the same sizes."""
    while training.samples < samples:
        training.iterate(sizes)
        if len(training.curve) * NOTED * BATCH <= training.samples:
            training.note()
    return training


def train_search(training: Training, samples: int, *, total_may_change: bool) -> tuple[Training, Setting]:
    """Train with LOFT-like sizes that are fitted after every period, and the grid search; return the last setting."""
    workers, search = training.models(fetches=False), BatchSearch(Setting(BATCH))
    while training.samples < samples:
        setting = search.setting
        limited = [replace(worker, smallest=setting.smallest) for worker in workers]
        sizes, began, trained_before = split(limited, setting.total).sizes, training.seconds, training.samples
        points: list[list[tuple[float, float]]] = [[] for _ in workers]
        losses = []
        for iteration in range(PERIOD):
            for worker, seconds in enumerate(training.iterate(sizes)):
                points[worker].append((sizes[worker], seconds))
            if iteration % NOTED == NOTED - 1:
                losses.append((float(training.samples), training.note()))
        workers = [fitted(pairs, worker) for pairs, worker in zip(points, workers, strict=True)]
        period = Period((training.seconds - began) / (training.samples - trained_before), tuple(losses))
        search = search.after(period, workers, total_may_change=total_may_change)
    return training, search.kept


def loss_at(training: Training, column: int, limit: float) -> float:
    """Return the last loss before a number of seconds (column 0) or samples (column 1)."""
    return [point[2] for point in training.curve if point[column] <= limit][-1]


def compare_batches(seeds: Sequence[int]) -> dict[str, Training]:
    """Print times and losses of the rules for batch sizes; return the trainings of the first seed."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    x, y = pixels / 16.0, classes.astype(np.int64)
    print(f"LOFT-like batch sizes: {ITERATIONS * BATCH} samples in batches of {BATCH}, 6 workers, {len(seeds)} seeds")
    print(f"{'local data':10} {'rule':14} {'seconds':>9} {'loss, equal samples':>20} {'loss, equal time':>17}  sizes")
    first: dict[str, Training] = {}
    for label, local in (
        ("all", (1.0,) * 6),
        ("mixed", (1, 1, 1, 0.8, 0.8, 0.8)),
        ("skewed", (1, 1, 0.9, 0.5, 0.9, 0.5)),
    ):
        rows: dict[str, list[tuple[float, float, float]]] = {}
        sizes_text: dict[str, str] = {}
        for seed in seeds:
            trainings = one_seed(lambda seed=seed, local=local: Training(x, y, local, seed), sizes_text)  # type: ignore[misc]
            shortest = min(training.seconds for training in trainings.values())
            for rule, training in trainings.items():
                losses = loss_at(training, 1, ITERATIONS * BATCH), loss_at(training, 0, 0.5 * shortest)
                rows.setdefault(rule, []).append((training.seconds / training.samples * ITERATIONS * BATCH, *losses))
            if label == "skewed" and seed == seeds[0]:
                first = trainings
        for rule, figures in rows.items():
            seconds, at_samples, at_time = np.mean(figures, 0)
            print(f"{label:10} {rule:14} {seconds:9.1f} {at_samples:20.4f} {at_time:17.4f}  {sizes_text[rule]}")
    return first


def one_seed(begun: Callable[[], Training], sizes_text: dict[str, str]) -> dict[str, Training]:
    """Train by every rule; describe the sizes in `sizes_text`."""
    trainings: dict[str, Training] = {}
    for rule in ("equal", "lb-bsp", "loft"):
        training = begun()
        models = training.models(fetches=rule == "loft")
        sizes = equal_split(len(models), BATCH) if rule == "equal" else split(models, BATCH).sizes
        trainings[rule], sizes_text[rule] = train_fixed(training, sizes, ITERATIONS * BATCH), str(sizes)
    for rule, total_may_change in (("loft, fitted", False), ("loft, B free", True)):
        trainings[rule], setting = train_search(begun(), ITERATIONS * BATCH, total_may_change=total_may_change)
        sizes_text[rule] = f"last: B = {setting.total}, smallest {setting.smallest}"
    return trainings


def compare_aggregations(seeds: Sequence[int]) -> None:
    """Print losses with one of six workers that sends −10 times its gradient."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    x, y = pixels / 16.0, classes.astype(np.int64)
    sizes = split(Training(x, y, (1, 1, 0.9, 0.5, 0.9, 0.5), 0).models(fetches=True), BATCH).sizes
    print(
        f"worker {ATTACKER} of 6 sends -10 times its gradient; parts {sizes}, "
        f"robust rule due: {needs_robust_rule(sizes, 1)}"
    )
    for attack, rule in product((1.0, -10.0), AGGREGATIONS):
        losses = []
        for seed in seeds:
            training = Training(x, y, (1, 1, 0.9, 0.5, 0.9, 0.5), seed, attack, rule)
            with np.errstate(all="ignore"):
                losses.append(train_fixed(training, sizes, ATTACKED_ITERATIONS * BATCH).note())
        print(f"{'attack' if attack < 0 else 'clean':8} {rule:14} loss {np.mean(losses):.4f}")


def draw_shares(by_name: dict[str, list[float]], path: Path) -> None:
    """Draw seconds over those of equal shares in turn, by number of workers, for each scheme."""
    pyplot = plotter()
    figure, panels = pyplot.subplots(1, 3, figsize=(10, 3.4), sharey=True)
    lines = (("in turn sasp", "SaSP-like"), ("in turn no shares", "no shares"),
             ("decoupled sasp", "SaSP-like, decoupled"), ("decoupled no shares", "no shares, decoupled"))  # fmt: skip
    for panel, scheme in zip(panels, SCHEMES, strict=True):
        base = np.array(by_name[f"{scheme} in turn equal"]).reshape(len(WORKERS), -1)
        for (key, label), colour in zip(lines, COLOURS, strict=True):
            ratio = np.array(by_name[f"{scheme} {key}"]).reshape(len(WORKERS), -1) / base
            panel.plot(WORKERS, np.exp(np.log(ratio).mean(1)), "o-", color=colour, label=label, linewidth=1.5)
        panel.axhline(1, color="grey", linewidth=0.8)
        panel.set(title=scheme, xlabel="workers", xscale="log", xticks=WORKERS, xticklabels=WORKERS)
        panel.minorticks_off()
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("seconds / equal shares in turn")
    panels[2].legend(frameon=False, fontsize=7, loc="lower right", bbox_to_anchor=(1, 0.02))
    panels[0].set_ylim(0.7, 1.01)
    save(figure, path)


def draw_losses(trainings: dict[str, Training], path: Path) -> None:
    """Draw the loss against virtual time and against samples."""
    pyplot = plotter()
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for column, (panel, label) in enumerate(zip(panels, ("virtual seconds", "samples"), strict=True)):
        for (rule, training), colour in zip(trainings.items(), (*COLOURS, "#000000"), strict=True):
            panel.plot(*[[point[i] for point in training.curve] for i in (column, 2)], color=colour, label=rule)
        panel.set(xlabel=label, yscale="log")
        panel.grid(visible=True, which="both", alpha=0.3)
    panels[0].set_ylabel("loss on all digits")
    panels[1].legend(frameon=False, fontsize=8)
    save(figure, path)


def plotter() -> Any:
    """Return pyplot without a display."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """Write a picture."""
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Compare, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("sasp", "loft"))
    parser.add_argument("--batches", type=int, default=40, help="batches per worker")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    if options.only != "loft":
        by_name = compare_shares(options.batches)
        if options.picture:
            draw_shares(by_name, PICTURES / "sasp.png")
    if options.only != "sasp":
        trainings = compare_batches(options.seeds)
        compare_aggregations(options.seeds)
        if options.picture:
            draw_losses(trainings, PICTURES / "loft.png")


if __name__ == "__main__":
    main()
