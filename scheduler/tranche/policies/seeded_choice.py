"""Reproducible choices without a randomness source."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

Item = TypeVar("Item")


def uniform(seed: int, *names: object) -> float:
    """A number in (0, 1) by a hash of seed and names: the same arguments always give the same number."""
    return (_hash(seed, names) + 0.5) / 2**64


def choose(items: Sequence[Item], seed: int, *names: object) -> Item:
    """An item drawn uniformly by a hash of seed and names: the same arguments always give the same item."""
    return items[_hash(seed, names) % len(items)]


def _hash(seed: int, names: tuple[object, ...]) -> int:
    return int.from_bytes(blake2b(repr((seed, *names)).encode(), digest_size=8).digest())
