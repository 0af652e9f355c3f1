"""Sweeps of benchmarks/sweeps.py: each changes one parameter of a setting and keeps the others.

The evaluation of JSAC'22 was not available, so no sweep repeats a figure of it. Parameters and values are ours [I];
they follow the parameters of the published model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tranche.simulation.recipe import DrawnJobs, Log, PresetCluster, Recipe
from tranche.simulation.study import Cell
from tranche.simulation.workload.jsac_options import USUAL, JsacOptions

POLICIES = ("chunk", "chunk-faithful", "fifo", "drf", "srtf", "least-loaded", "round-robin", "random")
PRINTED = "chunk-faithful:refresh=printed"
"""Policy that places chunks on stale keys, as the print of Alg. 2 does."""
LOAD = 0.9
JSAC_OPTIONS = frozenset(option.name for option in fields(JsacOptions))


@dataclass(frozen=True, slots=True)
class Setting:
    """Simulated setting without policy and seed."""

    preset: str = "jsac-cloud"
    options: JsacOptions = USUAL
    load: float = LOAD
    jobs: int = 60
    chunk_scale: float = 1.0
    speed_factor: float = 1.0

    def changed(self, changes: Mapping[str, Any]) -> "Setting":
        """Return the setting with other values of its own fields, or of its options."""
        own = {name: value for name, value in changes.items() if name not in JSAC_OPTIONS}
        others = {name: value for name, value in changes.items() if name in JSAC_OPTIONS}
        return replace(self, **own, options=replace(self.options, **others))

    def cell(self, log: Log, policy: str, seed: int) -> Cell:
        """Return one simulation, which answers with the results of all jobs."""
        drawn = DrawnJobs(log, self.jobs, self.chunk_scale, options=self.options)
        recipe = Recipe(drawn, PresetCluster(self.preset, self.options), speed_factor=self.speed_factor)
        return Cell(recipe, policy, seed, self.load, bounded=True, kept=True)


@dataclass(frozen=True, slots=True)
class Panel:
    """Part of the picture, with a setting of its own."""

    title: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """Value of the parameter."""

    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    x: float | None = None
    """Position on the axis; None: the value is a name, not a number."""
    options: str = ""
    """Options of the policy, such as ``:price=0.1``."""


CLOUD, EDGE = (Panel(name, {"preset": name}) for name in ("jsac-cloud", "jsac-edge"))


@dataclass(frozen=True, slots=True)
class Sweep:
    """Parameter and its values."""

    name: str
    title: str
    axis: str
    points: tuple[Point, ...]
    panels: tuple[Panel, ...] = (CLOUD, EDGE)
    policies: tuple[str, ...] = POLICIES
    figures: tuple[str, ...] = ("average",)
    """Names of `FIGURES` in sweeps.py; the picture shows the first."""
    logarithmic: bool = False
    """Whether the axis of the parameter is logarithmic."""
    against: str = ""
    """Figure that replaces the parameter on the axis of the picture."""

    def setting(self, base: Setting, panel: Panel, point: Point) -> Setting:
        """Return the base with the changes of the panel and of the point."""
        return base.changed(panel.changes).changed(point.changes)

    def cells(self, base: Setting, log: Log, seeds: Sequence[int]) -> dict[tuple[str, str, str, int], Cell]:
        """Return all simulations, by panel, point, policy and seed."""
        by_place = {}
        for panel in self.panels:
            for point in self.points:
                setting = self.setting(base, panel, point)
                for policy in self.policies:
                    for seed in seeds:
                        cell = setting.cell(log, policy + point.options, seed)
                        by_place[panel.title, point.label, policy, seed] = cell
        return by_place

    def fewer_points(self) -> "Sweep":
        """Return the sweep with the first and the last value only."""
        return replace(self, points=(self.points[0], self.points[-1]))

    def within(self, most_jobs: int) -> "Sweep":
        """Return the sweep without the points that need more jobs."""
        return replace(self, points=tuple(point for point in self.points if point.changes.get("jobs", 0) <= most_jobs))


def numbers(name: str, values: Sequence[float]) -> tuple[Point, ...]:
    """Return points that set one field."""
    return tuple(Point(f"{value:g}", {name: value}, value) for value in values)


SCALES = (0.1, 0.3, 1, 3, 10)
DELAY_SCALES = (0, 0.25, 0.5, 1, 2)
EPSILONS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
PRICES = (0, 0.01, 0.03, 0.1, 0.3, 1)
WITH_TIERS = ("average", "cloud chunks")


def sweeps() -> list[Sweep]:
    """Return all sweeps, in the order of the page."""
    return [*_size_sweeps(), *_network_sweeps(), *_option_sweeps()]


def _size_sweeps() -> list[Sweep]:
    scaled = (*POLICIES, PRINTED)
    return [
        Sweep("load", "Load", "load", numbers("load", (0.5, 0.7, 0.9, 1.1)), figures=("average", "p99")),
        Sweep("jobs", "Number of jobs", "jobs", numbers("jobs", (20, 40, 60, 80, 100, 500))),
        Sweep("edges", "Edge sites", "edge sites", numbers("edges", (3, 6, 9, 12, 15))),
        Sweep("workers", "Workers of an edge site", "workers", numbers("workers_per_edge", (2, 3, 4, 6, 8))),
        Sweep(
            "chunks",
            "Chunks D of a job",
            "D, multiplied by",
            numbers("chunk_scale", (0.1, 0.25, 0.5, 1)),
            policies=scaled,
        ),
        Sweep("epochs", "Epochs E", "E of all jobs", numbers("epochs", (20, 30, 40, 50, 60))),
    ]


def _network_sweeps() -> list[Sweep]:
    return [
        Sweep(
            "bandwidth",
            "Bandwidth b of a worker",
            "b, multiplied by",
            numbers("bandwidth_scale", SCALES),
            figures=("average", "communication"),
            logarithmic=True,
        ),
        Sweep(
            "gradients",
            "Gradients q",
            "q, multiplied by",
            numbers("gradient_scale", SCALES),
            figures=("average", "communication"),
            logarithmic=True,
        ),
        Sweep(
            "delay-edge",
            "Δ to edge sites",
            "Δ to edge sites, multiplied by",
            numbers("edge_delay_scale", DELAY_SCALES),
            figures=WITH_TIERS,
        ),
        Sweep(
            "delay-cloud",
            "Δ to the cloud",
            "Δ to the cloud, multiplied by",
            numbers("cloud_delay_scale", DELAY_SCALES),
            panels=(CLOUD,),
            figures=WITH_TIERS,
        ),
    ]


def _option_sweeps() -> list[Sweep]:
    by_epsilon = tuple(Point(f"{value:g}", {"speed_factor": 1 + value}, value) for value in EPSILONS)
    by_price = tuple(Point(f"{value:g}", {}, value, f":price={value:g}") for value in PRICES)
    clouds = (
        Point("no cloud", {"preset": "jsac-edge"}),
        Point("10 workers", {"preset": "jsac-cloud10"}),
        Point("unlimited", {"preset": "jsac-cloud"}),
    )
    delays = tuple(Panel(f"data: {value}", {"delay": value}) for value in ("outside", "home"))
    options = (
        Point("draw log-uniform", {"draw": "log-uniform"}),
        Point("draw uniform", {"draw": "uniform"}),
        Point("delay outside", {"delay": "outside"}),
        Point("delay home", {"delay": "home"}),
        Point("speeds mixed", {"speeds": "mixed"}),
        Point("ps_hosts 1", {"ps_hosts": 1}),
        Point("ps_hosts 2", {"ps_hosts": 2}),
    )
    return [
        Sweep(
            "cloud-share",
            "Size of the cloud",
            "workers of the cloud",
            clouds,
            panels=delays,
            figures=("average", "cloud chunks", "cloud jobs"),
        ),
        Sweep("options", "Options of the presets", "option", options),
        Sweep("epsilon", "Faster workers: speed 1 + ε", "ε", by_epsilon),
        Sweep(
            "price",
            "Price of a cloud GPU-hour",
            "hours of JCT for a cloud GPU-hour",
            by_price,
            panels=(CLOUD,),
            policies=("chunk",),
            figures=("average", "cloud GPU-hours", "cloud chunks"),
            against="cloud GPU-hours",
        ),
    ]
