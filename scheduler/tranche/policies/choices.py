"""Reproducible random choices, by hashing instead of a source of randomness."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

Item = TypeVar("Item")


def uniform(seed: int, *names: object) -> float:
    """Return a number in (0, 1) from a hash of seed and names: equal arguments give equal numbers."""
    return (_hash(seed, names) + 0.5) / 2**64


def choose(items: Sequence[Item], seed: int, *names: object) -> Item:
    """Return an item drawn uniformly by a hash of seed and names: equal arguments give the same item."""
    return items[_hash(seed, names) % len(items)]


def _hash(seed: int, names: tuple[object, ...]) -> int:
    return int.from_bytes(blake2b(repr((seed, *names)).encode(), digest_size=8).digest())
