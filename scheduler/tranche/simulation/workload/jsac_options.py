"""Options of the presets after JSAC'22: one value that their clusters and their jobs share.

Source of the setting: Wang et al., IEEE JSAC 40(8), 2022; docs/reference/presets.md lists every parameter with its
provenance. The options are ours [I], and so are their values unless a comment says otherwise.
"""

from dataclasses import dataclass, fields
from math import isfinite
from typing import Literal, get_args

Draw = Literal["log-uniform", "uniform"]
Delay = Literal["outside", "home"]
Speeds = Literal["equal", "mixed"]

DELAYS: dict[str, Delay] = {"jsac-cloud": "outside"}
"""Source of the data by preset, unless an option overrides it; `home` for presets that are missing here."""
MAX_EDGES, MAX_WORKERS_PER_EDGE, MAX_PS_HOSTS, MAX_EPOCHS = 100, 1000, 1000, 10_000
LARGEST_SCALE = 1000


@dataclass(frozen=True, slots=True)
class JsacOptions:
    """Differences from the setting as it is drawn by default."""

    draw: Draw = "log-uniform"
    """Distribution of m, q and b within their ranges. `uniform` is what a third party's re-implementation does [C2]."""
    delay: Delay | None = None
    """`outside`: the data of a job are at no site, and Δ is drawn by job and site, as in the paper [P2]. `home`: they
    are at one edge site, where Δ = 0, and Δ depends on the pair of sites only. None: see `DELAYS`."""
    speeds: Speeds = "equal"
    """`mixed`: the speed of every worker is drawn from 0.5 to 1.5, uniformly. The paper's edge servers are
    heterogeneous [P2]; how is unknown."""
    ps_hosts: int | None = None
    """Parameter servers that an edge site can host, each on a machine of its own without GPU; None: no limit."""
    edges: int | None = None
    """Number of edge sites; None: nine."""
    workers_per_edge: int | None = None
    """Workers of an edge site; None: three or four, drawn by site."""
    epochs: int | None = None
    """Epochs E of all jobs; None: drawn by job."""
    edge_delay_scale: float = 1.0
    """Factor of Δ to an edge site."""
    cloud_delay_scale: float = 1.0
    """Factor of Δ to a cloud."""
    bandwidth_scale: float = 1.0
    """Factor of b."""
    gradient_scale: float = 1.0
    """Factor of q."""

    def __post_init__(self) -> None:
        _among("draw", self.draw, get_args(Draw))
        _among("speeds", self.speeds, get_args(Speeds))
        if self.delay is not None:
            _among("delay", self.delay, get_args(Delay))
        _count("ps_hosts", self.ps_hosts, MAX_PS_HOSTS)
        _count("edges", self.edges, MAX_EDGES)
        _count("workers_per_edge", self.workers_per_edge, MAX_WORKERS_PER_EDGE)
        _count("epochs", self.epochs, MAX_EPOCHS)
        for name in ("edge_delay_scale", "cloud_delay_scale", "bandwidth_scale", "gradient_scale"):
            value = getattr(self, name)
            positive = value > 0 or (value == 0 and name != "bandwidth_scale")
            if not (isfinite(value) and positive and value <= LARGEST_SCALE):
                least = "above 0" if name == "bandwidth_scale" else "0 or more"
                raise ValueError(f"{name} is {value}: it must be {least}, at most {LARGEST_SCALE:g}")

    def delay_of(self, cluster: str) -> Delay:
        """Return the source of the data in the preset of that name (or any other cluster)."""
        return self.delay or DELAYS.get(cluster, "home")

    def changed(self) -> tuple[str, ...]:
        """Return the names of the options that differ from the default."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)


CLUSTER_OPTIONS = frozenset({"speeds", "ps_hosts", "edges", "workers_per_edge"})
"""Options that define nodes and sites; the others concern the jobs."""


def _among(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def _count(name: str, value: int | None, maximum: int) -> None:
    if value is not None and not 1 <= value <= maximum:
        raise ValueError(f"{name} is {value}: it must be from 1 to {maximum:,}")


USUAL = JsacOptions()
"""Options with default values."""
