"""Text form of sets of chunk numbers, such as ``0-11,14``, in status.plan.homes and status.progress.done."""

from collections.abc import Iterable

MAX_CHUNK = 9999
"""Largest chunk number, above that of any job; without a limit, a foreign text could cause an endless loop."""


def format_chunks(chunks: Iterable[int]) -> str:
    """Format chunk numbers as sorted ranges; the empty set is the empty string.

    >>> format_chunks([3, 0, 1, 2, 14])
    '0-3,14'
    """
    ranges: list[list[int]] = []
    for chunk in sorted(set(chunks)):
        if ranges and chunk == ranges[-1][1] + 1:
            ranges[-1][1] = chunk
        else:
            ranges.append([chunk, chunk])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_chunks(text: str) -> frozenset[int]:
    """Parse the text that `format_chunks` returns.

    >>> sorted(parse_chunks("0-3,14"))
    [0, 1, 2, 3, 14]

    Raises:
        ValueError: if the text does not have that form, or names a chunk above `MAX_CHUNK`.
    """
    chunks: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        end = int(last if dash else first)
        if end > MAX_CHUNK:
            raise ValueError(f"chunk {end} in {text[:40]!r} is above {MAX_CHUNK}")
        chunks.update(range(int(first), end + 1))
    return frozenset(chunks)
