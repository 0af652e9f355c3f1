"""Numbers of the command line: finite, and small enough that no sum of them overflows."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tranche.model.quantities import parse_bytes
from tranche.policies import Policy, get_live_policy, get_policy

Item = TypeVar("Item")
LONGEST_SECONDS = 10**9


class Finite(click.FloatRange):
    """A number in a range; neither NaN nor infinite."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if number != number or number in (float("inf"), float("-inf")):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


Callback = Callable[[click.Context, click.Parameter, str | None], tuple[Any, ...] | None]


def several_numbers(of: Finite) -> Callback:
    """For an option that takes numbers with commas between them, each once."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...] | None:
        if value is None:
            return None
        return _once(tuple(of.convert(part.strip(), parameter, context) for part in value.split(",")), value)

    return convert


def several(of: click.ParamType[str]) -> Callback:
    """For an option that takes texts with commas between them, each once."""

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
    """A number of bytes as Kubernetes writes it."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of bytes."""
        try:
            return float(parse_bytes(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class PolicyName(click.ParamType[str]):
    """A policy of the registry, with options if any."""

    name = "policy"

    def __init__(self, read: Callable[[str], Policy] = get_policy) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is, if it means something."""
        try:
            self._read(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        return str(value)


POLICY = PolicyName()
LIVE_POLICY = PolicyName(get_live_policy)
SIZE = Size()
SECONDS = Finite(0, LONGEST_SECONDS)
SIGMA = Finite(0, 5)
SHARE = Finite(0, 1)
LOAD = Finite(0.001, 1000)
FACTOR = Finite(0.001, 1000)
