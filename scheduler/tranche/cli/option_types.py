"""Option types of the command line. Numbers are finite and bounded, so that sums do not overflow."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tranche.model.quantity import parse_bytes
from tranche.policies import Policy, get_live_policy, get_policy

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
            return float(parse_bytes(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class PolicyName(click.ParamType[str]):
    """Policy of the registry, optionally with options."""

    name = "policy"

    def __init__(self, read: Callable[[str], Policy] = get_policy) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the policy and return the text unchanged."""
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
