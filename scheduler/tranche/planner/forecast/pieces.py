"""Long work in pieces: whoever has a clock may let others have their turn between two of them."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Pieces = Generator[None, None, T]
"""Work that stops for a moment whenever it yields, and returns its result in the end."""


def at_once(pieces: Pieces[T]) -> T:
    """The result, without a pause."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result
