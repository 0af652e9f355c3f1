"""Conditions of Kubernetes objects."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class HasType(Protocol):
    """A condition of any kind of object."""

    @property
    def type(self) -> str:
        """Type of the condition."""


C = TypeVar("C", bound=HasType)


def find_condition(conditions: Iterable[C], kind: str) -> C | None:
    """Return the condition of this type; None if there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)
