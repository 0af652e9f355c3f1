"""Reproducible choices without a randomness source."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

Item = TypeVar("Item")


def choose(items: Sequence[Item], seed: int, *names: object) -> Item:
    """An item drawn uniformly by a hash of seed and names: the same arguments always give the same item."""
    digest = blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return items[int.from_bytes(digest) % len(items)]
