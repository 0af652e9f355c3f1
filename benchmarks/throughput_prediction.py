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
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

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


@dataclass(slots=True)
class Errors:
    """Relative errors of one way to predict, by pair of family and kind."""

    by_pair: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, setting: Setting, predicted: float, measured: float) -> None:
        """Add the error of one prediction."""
        self.by_pair.setdefault((setting.family, setting.kind), []).append(abs(predicted / measured - 1.0))

    def row(self, name: str) -> str:
        """Return a row of the table."""
        every = [error for errors in self.by_pair.values() for error in errors]
        below = sum(fmean(errors) < 0.1 for errors in self.by_pair.values())
        figures = (f"{len(every)}", f"{100 * fmean(every):.1f} %", f"{100 * median(every):.1f} %")
        return f"| {name} | {' | '.join(figures)} | {below} of {len(self.by_pair)} |"


def read_runs() -> dict[Setting, float]:
    """Return the seconds of an iteration of every measured setting; a single GPU counts once, as consolidated."""
    runs: dict[Setting, float] = {}
    for name, rows in json.loads(gzip.decompress(PROFILES.read_bytes())).items():
        kind, _, spread = name.partition("_")
        for key, row in rows.items():
            known, rate = KEY.fullmatch(key), row.get("null")
            if known is None or not rate or (spread and known[3] == "1"):
                continue
            setting = Setting(known[1], kind, float(known[2]), int(known[3]), bool(spread))
            runs[setting] = setting.workers / rate
    return runs


def constant(seconds: float) -> Callable[[Setting], float]:
    """Return a naive prediction, which is the same for all settings."""
    return lambda _: seconds


def calibration_run(settings: list[Setting], workers: int) -> Setting:
    """Return the middle batch size on that number of GPUs of one node, or on one GPU if there is no such run."""
    near = [one for one in settings if one.workers == workers and not one.spread]
    near = sorted(near or [one for one in settings if one.workers == 1], key=lambda one: one.batch)
    return near[len(near) // 2]


def measure(runs: Mapping[Setting, float]) -> dict[str, Errors]:
    """Return the errors of all ways to predict."""
    sizes = {family: Size.of(graph) for family, graph in GRAPHS.items()}
    found: dict[str, Errors] = {}
    pairs: dict[tuple[str, str], list[Setting]] = {}
    for setting in runs:
        pairs.setdefault((setting.family, setting.kind), []).append(setting)
    whole = ThroughputModel.fitted(sizes, runs)
    for (family, kind), settings in pairs.items():
        print(f"{family} on {kind} …", file=sys.stderr)
        calibrations = {workers: calibration_run(settings, workers) for workers in CALIBRATIONS}
        others = {one: seconds for one, seconds in runs.items() if (one.family, one.kind) != (family, kind)}
        strangers = {one: seconds for one, seconds in runs.items() if one.family != family}

        def add(
            name: str, predict: Callable[[Setting], float], run: Setting, settings: list[Setting] = settings
        ) -> None:
            for one in settings:
                if one != run:
                    found.setdefault(name, Errors()).add(one, predict(one), runs[one])

        alone = calibrations[1]
        on_kind = fmean(seconds for one, seconds in strangers.items() if one.kind == kind)
        of_family = fmean(seconds for one, seconds in others.items() if one.family == family)
        add("naive: mean of the GPU kind over other families", constant(on_kind), alone)
        add("naive: mean of the family over other kinds", constant(of_family), alone)
        for workers in CALIBRATIONS:
            run = calibrations[workers]
            add(f"naive: time of the calibration run{_on(workers)}", constant(runs[run]), run)
        for known, data in (("family left out", strangers), ("other kinds known", others)):
            model = ThroughputModel.fitted(sizes, data)
            add(f"{known}, no run", model.seconds, alone)
            for workers in CALIBRATIONS:
                run = calibrations[workers]
                model.calibrate(run, runs[run])
                add(f"{known}, one run{_on(workers)}", model.seconds, run)
        model, run = ThroughputModel.fitted(sizes, others), calibrations[BEST]
        model.calibrate(run, runs[run])
        _correct(found, model, [one for one in settings if one != run], runs, run)
        add("all data", whole.seconds, alone)
        own = ThroughputModel.fitted(sizes, {one: runs[one] for one in settings})
        add("all data of the pair alone", own.seconds, alone)
    return found


def chosen_by_others(found: Mapping[str, Errors], known: str) -> Errors:
    """Return the errors if each family takes the calibration run with which the other families have the least error."""
    by_workers = {workers: found[f"{known}, one run{_on(workers)}"].by_pair for workers in CALIBRATIONS}
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
    found: dict[str, Errors], model: ThroughputModel, rest: list[Setting], runs: Mapping[Setting, float], run: Setting
) -> None:
    """Add the errors of the remaining predictions after each number of online corrections."""
    correction = OnlineCorrection(run.batch)
    order = sorted(rest, key=lambda one: uniform(0, one.family, one.kind, one.batch, one.workers, one.spread))
    for count, setting in enumerate(order, start=1):
        correction.observe(setting, runs[setting], model.seconds(setting))
        if count in AFTER:
            name = f"other kinds known, one run on 2 GPUs and {count} more run{'s' if count > 1 else ''}"
            for one in order[count:]:
                found.setdefault(name, Errors()).add(one, model.seconds(one) * correction.factor(one), runs[one])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", action="store_true", help="print the mean error of each family on each GPU kind too")
    arguments = parser.parse_args()
    found = measure(read_runs())
    for known in ("family left out", "other kinds known"):
        found[f"{known}, one run chosen by the others"] = chosen_by_others(found, known)
    print("| predicted from | settings | mean error | median | pairs below 10 % |\n|:--|--:|--:|--:|--:|")
    for name, errors in found.items():
        print(errors.row(name))
    if arguments.pairs:
        names = tuple(f"{known}, one run{_on(BEST)}" for known in ("family left out", "other kinds known"))
        names += ("all data of the pair alone",)
        print(f"\n| pair | {' | '.join(names)} |\n|:--|--:|--:|--:|")
        for pair in found[names[0]].by_pair:
            figures = (f"{100 * fmean(found[name].by_pair[pair]):.1f} %" for name in names)
            print(f"| {pair[0]} on {pair[1]} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
