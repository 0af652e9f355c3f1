"""Numbers of the command line: finite, and small enough that no sum of them overflows."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

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


def several_names(known: Sequence[str]) -> Callback:
    """For an option that takes some of the known names with commas between them, each once."""

    def convert(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = tuple(part.strip() for part in value.split(","))
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is not one of: {', '.join(known)}.")
        return _once(names, value)

    return convert


def _once(items: tuple[Item, ...], text: str) -> tuple[Item, ...]:
    if len(set(items)) < len(items):
        raise click.BadParameter(f"{text!r} has something twice.")
    return items


SECONDS = Finite(0, LONGEST_SECONDS)
SIGMA = Finite(0, 5)
LOAD = Finite(0.001, 1000)
