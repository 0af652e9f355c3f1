"""Errors of predicted iteration times on the measured throughputs of data/profiles.

``python benchmarks/throughput_prediction.py`` prints a table of Markdown: for each way to predict, the mean and
median of |predicted - measured| / measured over all batch sizes, GPU counts and placements that were not used.

* other kinds known: the family was measured on the other GPU kinds, and other families on this one.
* family left out: nothing of the family is known but its layer graph.
* all data: the same measurements are fitted and predicted, which no prediction by this form can beat by much; at last
  with factors of each pair's own.

A calibration run is one measurement of the family on the kind: the middle batch size on one, two or four GPUs of one
node (on one, if the family was measured on one only). It does not count as predicted. "Chosen by the others" takes for
each family the number of GPUs with which the other families have the least error. The online correction then learns
from the other measurements in random order; each is predicted first.

``--floors`` prints instead which errors remain with hindsight: if the calibration run is chosen by its result, by one
rule for all pairs or for each pair; and if numbers of each pair's own are fitted to all its measurements, for which a
linear program finds the least mean error.
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log2
from statistics import fmean, median

import highspy

from job_logs import ROOT
from tranche.estimate.layer_graph import Layer, dense, lstm, resnet18, resnet50, transformer
from tranche.estimate.throughput_model import OnlineCorrection, Setting, Size, ThroughputModel
from tranche.policies.seeded_choice import uniform

PROFILES = ROOT / "data/profiles/gavel_throughputs.json.gz"
KEY = re.compile(r"\('([\w-]+) \(batch size (\d+)\)', (\d)\)")
RECOMMENDATION = (dense("encoder", 20108, 200), dense("decoder", 200, 20108))
"""Autoencoder over the films of ML-20M; its hidden width is recalled [R]."""
GRAPHS: Mapping[str, tuple[Layer, ...]] = {
    "LM": lstm(200, 2, 33278, 35),
    "Recommendation": RECOMMENDATION,
    "ResNet-18": resnet18(32, 10),
    "ResNet-50": resnet50(224, 1000),
    "Transformer": transformer(512, 6, 2048, 9521, 32),
}
"""Layer graphs of the families by the names of the profiles, with the usual sizes of their data sets [I]."""
AFTER = (1, 2, 4, 8)
"""Numbers of measurements after which the online correction is shown."""
CALIBRATIONS = (1, 2, 4)
"""Numbers of GPUs of a calibration run."""
BEST = 2
"""Number of GPUs of the calibration run that the online correction begins with."""
KNOWN = ("family left out", "other kinds known")
"""Knowledge before the calibration run."""
HEADS = "| predicted from | settings | mean error | median | pairs below 10 % |\n|:--|--:|--:|--:|--:|"
"""First lines of the table."""
PLACES = tuple(product((2, 4, 8), (False, True)))
"""Numbers of several GPUs, and whether they are spread."""
BATCHES = {"smallest": 0.0, "second": 0.25, "middle": 0.5, "fourth": 0.75, "largest": 1.0}
"""Places among the batch sizes: share of those that are smaller."""
RULES = tuple((batch, *place) for batch in BATCHES for place in ((1, False), *PLACES))
"""Rules for the calibration run: place of its batch size, number of GPUs, and whether they are spread."""
CURVES: tuple[Callable[[int], float], ...] = (lambda _: 1.0, lambda n: 1.0 - 1.0 / n, log2, lambda n: n - 1.0)
"""Growth of the transfers of n GPUs: none, that of a ring, that of a tree, and that of a server."""


@dataclass(slots=True)
class Errors:
    """Relative errors of one way to predict, by pair of family and kind."""

    by_pair: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, setting: Setting, predicted: float, measured: float) -> None:
        """Add the error of one prediction."""
        self.by_pair.setdefault((setting.family, setting.kind), []).append(abs(predicted / measured - 1.0))

    def mean(self) -> float:
        """Return the mean error over all settings."""
        return fmean(error for errors in self.by_pair.values() for error in errors)

    def row(self, name: str) -> str:
        """Return a row of the table."""
        every = [error for errors in self.by_pair.values() for error in errors]
        below = sum(fmean(errors) < 0.1 for errors in self.by_pair.values())
        figures = (f"{len(every)}", f"{100 * self.mean():.1f} %", f"{100 * median(every):.1f} %")
        return f"| {name} | {' | '.join(figures)} | {below} of {len(self.by_pair)} |"


def read_runs() -> dict[Setting, float]:
    """Return the seconds of an iteration of every measured setting; a single GPU counts once, as consolidated."""
    runs: dict[Setting, float] = {}
    for name, rows in json.loads(gzip.decompress(PROFILES.read_bytes())).items():
        kind, _, spread = name.partition("_")
        for key, row in rows.items():
            match, rate = KEY.fullmatch(key), row.get("null")
            if match is None or not rate or (spread and match[3] == "1"):
                continue
            setting = Setting(match[1], kind, float(match[2]), int(match[3]), bool(spread))
            runs[setting] = setting.workers / rate
    return runs


def constant(seconds: float) -> Callable[[Setting], float]:
    """Return a naive prediction, which is the same for all settings."""
    return lambda _: seconds


def calibration_run(settings: Sequence[Setting], workers: int, spread: bool = False, share: float = 0.5) -> Setting:
    """Return the run on that number of GPUs, or on one GPU if there is none, by its place among the batch sizes.

    Args:
        settings: Measured settings of one pair.
        workers: Number of GPUs.
        spread: Whether they are on several nodes.
        share: Share of the batch sizes that are smaller: 0 for the smallest, 0.5 for the middle, 1 for the largest.
    """
    near = [setting for setting in settings if setting.workers == workers and setting.spread == spread]
    near = sorted(near or [setting for setting in settings if setting.workers == 1], key=lambda setting: setting.batch)
    return near[min(int(share * len(near)), len(near) - 1)]


def by_pair(runs: Mapping[Setting, float]) -> dict[tuple[str, str], list[Setting]]:
    """Return the measured settings of each pair of family and kind."""
    pairs: dict[tuple[str, str], list[Setting]] = {}
    for setting in runs:
        pairs.setdefault((setting.family, setting.kind), []).append(setting)
    return pairs


def measure(runs: Mapping[Setting, float]) -> dict[str, Errors]:
    """Return the errors of all ways to predict."""
    sizes = {family: Size.of(graph) for family, graph in GRAPHS.items()}
    by_way: dict[str, Errors] = {}
    whole = ThroughputModel.fitted(sizes, runs)
    for (family, kind), settings in by_pair(runs).items():
        print(f"{family} on {kind} …", file=sys.stderr)
        calibrations = {workers: calibration_run(settings, workers) for workers in CALIBRATIONS}
        others = {
            setting: seconds for setting, seconds in runs.items() if (setting.family, setting.kind) != (family, kind)
        }
        strangers = {setting: seconds for setting, seconds in runs.items() if setting.family != family}

        def add(
            name: str, predict: Callable[[Setting], float], run: Setting, settings: list[Setting] = settings
        ) -> None:
            for setting in settings:
                if setting != run:
                    by_way.setdefault(name, Errors()).add(setting, predict(setting), runs[setting])

        alone = calibrations[1]
        on_kind = fmean(seconds for setting, seconds in strangers.items() if setting.kind == kind)
        of_family = fmean(seconds for setting, seconds in others.items() if setting.family == family)
        add("naive: mean of the GPU kind over other families", constant(on_kind), alone)
        add("naive: mean of the family over other kinds", constant(of_family), alone)
        for workers in CALIBRATIONS:
            run = calibrations[workers]
            add(f"naive: time of the calibration run{_on(workers)}", constant(runs[run]), run)
        for known, data in zip(KNOWN, (strangers, others), strict=True):
            model = ThroughputModel.fitted(sizes, data)
            add(f"{known}, no run", model.seconds, alone)
            for workers in CALIBRATIONS:
                run = calibrations[workers]
                model.calibrate(run, runs[run])
                add(f"{known}, one run{_on(workers)}", model.seconds, run)
        model, run = ThroughputModel.fitted(sizes, others), calibrations[BEST]
        model.calibrate(run, runs[run])
        _correct(by_way, model, [setting for setting in settings if setting != run], runs, run)
        add("all data", whole.seconds, alone)
        own = ThroughputModel.fitted(sizes, {setting: runs[setting] for setting in settings})
        add("all data of the pair alone", own.seconds, alone)
    return by_way


def chosen_by_others(by_way: Mapping[str, Errors], known: str) -> Errors:
    """Return the errors if each family takes the calibration run with which the other families have the least error."""
    by_workers = {workers: by_way[f"{known}, one run{_on(workers)}"].by_pair for workers in CALIBRATIONS}
    chosen = Errors()
    for family, kind in by_workers[BEST]:
        means = {
            workers: fmean(error for pair, errors in by_pair.items() if pair[0] != family for error in errors)
            for workers, by_pair in by_workers.items()
        }
        chosen.by_pair[family, kind] = by_workers[min(means, key=means.__getitem__)][family, kind]
    return chosen


def _on(workers: int) -> str:
    return f" on {workers} GPU{'s' if workers > 1 else ''}"


def _correct(
    by_way: dict[str, Errors], model: ThroughputModel, rest: list[Setting], runs: Mapping[Setting, float], run: Setting
) -> None:
    """Add the errors of the remaining predictions after each number of online corrections."""
    correction = OnlineCorrection(run.batch)
    order = sorted(
        rest, key=lambda other: uniform(0, other.family, other.kind, other.batch, other.workers, other.spread)
    )
    for count, setting in enumerate(order, start=1):
        correction.observe(setting, runs[setting], model.seconds(setting))
        if count in AFTER:
            name = f"other kinds known, one run on 2 GPUs and {count} more run{'s' if count > 1 else ''}"
            for other in order[count:]:
                by_way.setdefault(name, Errors()).add(
                    other, model.seconds(other) * correction.factor(other), runs[other]
                )


def floors(runs: Mapping[Setting, float]) -> dict[str, Errors]:
    """Return the errors that remain with a calibration run, or numbers of each pair, chosen with hindsight."""
    by_way: dict[str, Errors] = {}
    pairs = by_pair(runs)
    for known in KNOWN:
        by_run = {pair: calibrated(runs, pair, known) for pair in pairs}
        by_rule = {rule: _by_rule(by_run, *rule) for rule in RULES}
        batch, workers, spread = best = min(RULES, key=lambda rule: by_rule[rule].mean())
        place = f"{batch} batch{_on(workers)}{' of several nodes' if spread else ''}"
        by_way[f"{known}, the best of {len(RULES)} rules ({place})"] = by_rule[best]
        by_way[f"{known}, the best run of each pair"] = Errors(
            {pair: min(errors.values(), key=fmean) for pair, errors in by_run.items()}
        )
    for pair, settings in pairs.items():
        seconds = [runs[setting] for setting in settings]
        fits: dict[str, list[list[float]]] = {}
        for curve in CURVES:
            rows = [forms(setting, curve) for setting in settings]
            for name in rows[0]:
                fits.setdefault(name, []).append(least_errors([row[name] for row in rows], seconds))
        for name, by_curve in fits.items():
            by_way.setdefault(name, Errors()).by_pair[pair] = min(by_curve, key=fmean)
    return by_way


def _by_rule(
    by_run: Mapping[tuple[str, str], Mapping[Setting, list[float]]], batch: str, workers: int, spread: bool
) -> Errors:
    """Return the errors if each pair takes the calibration run of this rule."""
    return Errors(
        {
            pair: errors[calibration_run(list(errors), workers, spread, BATCHES[batch])]
            for pair, errors in by_run.items()
        }
    )


def calibrated(runs: Mapping[Setting, float], pair: tuple[str, str], known: str) -> dict[Setting, list[float]]:
    """Return, for each run of a pair as the calibration run, the errors of all others."""
    family, _ = pair
    data = {
        setting: seconds
        for setting, seconds in runs.items()
        if (setting.family != family if known == KNOWN[0] else (setting.family, setting.kind) != pair)
    }
    print(f"{' on '.join(pair)}, {known} …", file=sys.stderr)
    model = ThroughputModel.fitted({name: Size.of(graph) for name, graph in GRAPHS.items()}, data)
    settings, by_run = by_pair(runs)[pair], {}
    for run in settings:
        model.calibrate(run, runs[run])
        by_run[run] = [abs(model.seconds(setting) / runs[setting] - 1.0) for setting in settings if setting != run]
    return by_run


def forms(setting: Setting, curve: Callable[[int], float]) -> dict[str, list[float]]:
    """Return the factors of a pair's numbers in the time of a setting, for each form of that time."""
    links = curve(setting.workers) if setting.workers > 1 else 0.0
    alone, *several = (float((setting.workers, setting.spread) == place) for place in ((1, False), *PLACES))
    line = [1.0, setting.batch]
    return {
        "2 numbers of each pair (a, c)": line,
        "3 numbers (links too)": [*line, links],
        "4 numbers (links by placement)": [*line, links * (not setting.spread), links * setting.spread],
        "8 numbers (links by GPUs and placement)": [*line, *several],
        "14 numbers (a, c by GPUs and placement)": [
            number for at_place in (alone, *several) for number in (at_place, at_place * setting.batch)
        ],
    }


def least_errors(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Return the relative errors of the sums of factor × number, with the numbers, at least 0, of least mean error.

    Args:
        rows: For each measurement, the factors of the numbers.
        seconds: Measurements.
    """
    lp = highspy.Highs()  # type: ignore[no-untyped-call]
    lp.setOptionValue("output_flag", False)
    numbers = [lp.addVariable(lb=0.0) for _ in rows[0]]
    errors = []
    for row, measured in zip(rows, seconds, strict=True):
        ratio = sum(number * (factor / measured) for number, factor in zip(numbers, row, strict=True) if factor)
        errors.append(lp.addVariable(lb=0.0))
        lp.addConstr(ratio - errors[-1] <= 1.0)
        lp.addConstr(ratio + errors[-1] >= 1.0)
    lp.minimize(sum(errors))
    assert lp.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return [float(lp.val(error)) for error in errors]


def print_pairs(by_way: Mapping[str, Errors], names: Sequence[str]) -> None:
    """Print the mean error of each pair, with a column for each of these ways to predict."""
    print(f"\n| pair | {' | '.join(names)} |\n|:--|{'--:|' * len(names)}")
    for pair in by_way[names[0]].by_pair:
        figures = (f"{100 * fmean(by_way[name].by_pair[pair]):.1f} %" for name in names)
        print(f"| {pair[0]} on {pair[1]} | {' | '.join(figures)} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", action="store_true", help="print the mean error of each family on each GPU kind too")
    parser.add_argument("--floors", action="store_true", help="print the errors that remain with hindsight instead")
    arguments = parser.parse_args()
    if arguments.floors:
        by_way = floors(read_runs())
        names = tuple(name for name in by_way if "rules" not in name and KNOWN[1] not in name)
    else:
        by_way = measure(read_runs())
        for known in KNOWN:
            by_way[f"{known}, one run chosen by the others"] = chosen_by_others(by_way, known)
        names = tuple(f"{known}, one run{_on(BEST)}" for known in KNOWN)
        names += ("all data of the pair alone",)
    print(HEADS)
    for name, errors in by_way.items():
        print(errors.row(name))
    if arguments.pairs:
        print_pairs(by_way, names)


if __name__ == "__main__":
    main()
