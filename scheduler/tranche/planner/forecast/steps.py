"""Cooperative steps: long computations as generators, so that a caller with an event loop can yield between steps."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Computation that pauses at each yield and returns its result at the end."""


def run_to_completion(steps: Steps[T]) -> T:
    """Run all steps without a pause, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
