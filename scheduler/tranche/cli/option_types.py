"""Option types of the command line. Numbers are finite and bounded, so that sums do not overflow."""

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import click

from tranche.kube.api.names import GPU_RESOURCE, GPU_RESOURCES, GpuResources
from tranche.model.gpu_kind import GPU_KIND_LABELS
from tranche.model.quantity import parse_bytes, parse_quantity
from tranche.model.topology import Topology

Item = TypeVar("Item")
LONGEST_SECONDS = 10**9


class Finite(click.FloatRange):
    """Finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to a number."""
        number = float(super().convert(value, param, ctx))
        if number != number or number in (float("inf"), float("-inf")):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


Callback = Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...] | None]


def several_numbers(of: Finite) -> Callback:
    """Create a callback for an option with distinct numbers, separated by commas."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...] | None:
        if value is None:
            return None
        return _once(tuple(of.convert(part.strip(), parameter, context) for part in value.split(",")), value)

    return convert


def several(of: click.ParamType[str]) -> Callback:
    """Create a callback for an option with distinct texts, separated by commas."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        return _once(tuple(str(of.convert(part.strip(), parameter, context)) for part in value.split(",")), value)

    return convert


def _once(items: tuple[Item, ...], text: str) -> tuple[Item, ...]:
    if len(set(items)) < len(items):
        raise click.BadParameter(f"{text!r} contains a value twice.")
    return items


class Size(click.ParamType[float]):
    """Number of bytes as a Kubernetes quantity."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to a number of bytes."""
        try:
            size = float(parse_bytes(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if size < 0:
            self.fail(f"{value!r} is negative: a size is at least 0.", param, ctx)
        return size


class PolicyName(click.ParamType[str]):
    """Policy of the registry, optionally with options."""

    name = "policy"

    def __init__(self, *, live: bool = False) -> None:
        self._live = live

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the policy and return the text unchanged."""
        from tranche.policies import get_live_policy, get_policy  # extender and API need no policies

        try:
            (get_live_policy if self._live else get_policy)(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return str(value)


POLICY = PolicyName()
LIVE_POLICY = PolicyName(live=True)
SIZE = Size()
SECONDS = Finite(0, LONGEST_SECONDS)
SIGMA = Finite(0, 5)
SHARE = Finite(0, 1)
LOAD = Finite(0.001, 1000)
FACTOR = Finite(0.001, 1000)


def _resources(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> GpuResources:
    """Check the names of the GPU resources."""
    if len(set(values)) < len(values):
        raise click.BadParameter("a resource is named twice", context, parameter)
    if "cpu" in values and len(values) > 1:
        raise click.BadParameter("cpu plans whole cores in place of GPUs, and cannot be combined", context, parameter)
    return values


def _speeds(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Parse speeds by GPU kind."""
    speeds: dict[str, float] = {}
    for value in values:
        kind, _, number = value.rpartition("=")
        if not kind:
            raise click.BadParameter(f"{value!r} is not KIND=SPEED", context, parameter)
        speeds[kind] = FACTOR.convert(number, parameter, context)
    return speeds


def _levels(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check the topology levels."""
    try:
        return Topology(values).labels
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def _bandwidths(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[float, ...]:
    """Parse bandwidths in bit/s."""
    try:
        bandwidths = tuple(float(parse_quantity(value)) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    if not all(0 < bandwidth < inf for bandwidth in bandwidths):
        raise click.BadParameter("a bandwidth is more than 0 bit/s", context, parameter)
    return bandwidths


TOPOLOGY_LEVELS = (
    click.option(
        "--topology-level",
        "topology_levels",
        multiple=True,
        default=Topology().labels,
        show_default=True,
        callback=_levels,
        help="Node label of a topology level, the narrowest first. May be repeated; the WAN is always the widest "
        "level.",
    ),
    click.option(
        "--level-bandwidth",
        "level_bandwidths",
        multiple=True,
        metavar="QUANTITY",
        callback=_bandwidths,
        help="Capacity in bit/s, such as 100G, of a link of each topology level and, at the end, of the WAN. May be "
        "repeated: the last one counts for all wider levels. Without it, the communication between the members of a "
        "gang takes no time.",
    ),
)
GPU_KINDS = (
    click.option(
        "--gpu-kind-label",
        "gpu_kind_labels",
        multiple=True,
        default=GPU_KIND_LABELS,
        show_default=True,
        help="Node label that names the kind of the node's GPUs. May be repeated: the first one on a node counts.",
    ),
    click.option(
        "--gpu-speed",
        "gpu_speeds",
        multiple=True,
        metavar="KIND=SPEED",
        callback=_speeds,
        help="Speed of a GPU kind, relative to the kind that stepTime of the jobs refers to; others have 1. May be "
        "repeated.",
    ),
)
GPU = click.option(
    "--gpu-resource",
    "gpu_resources",
    multiple=True,
    default=GPU_RESOURCES,
    show_default=True,
    callback=_resources,
    help="Resource name of the GPUs. May be repeated: a job requests one of them, and of a node that offers several "
    "the first is planned.",
)
EXPORT_GPU = click.option(
    "--gpu-resource",
    "gpu_resources",
    multiple=True,
    callback=_resources,
    help="Resource name of the GPUs in the export of a cluster. May be repeated [default: those that kubectl tranche "
    f"export has recorded, else {GPU_RESOURCE}].",
)
