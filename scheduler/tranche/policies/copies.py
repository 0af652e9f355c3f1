"""Fast copies of the planner's state for rollouts, which copy thousands of objects while no event is handled."""

from typing import Any, TypeVar

T = TypeVar("T")


def shallow_copy(original: T) -> T:
    """Return a shallow copy of a dataclass with slots, several times as fast as `copy.copy`."""
    kind: Any = type(original)
    made = object.__new__(kind)
    for name in kind.__slots__:
        setattr(made, name, getattr(original, name))
    return made  # type: ignore[no-any-return]
