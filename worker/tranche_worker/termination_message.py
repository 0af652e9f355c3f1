"""Durable progress in the container's termination message."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes' default terminationMessagePath."""
MOST_BYTES = 4096
"""Kubernetes keeps the last 4 KiB of a message, and the rest of a longer one is not JSON."""


def report(batches: Mapping[int, float], path: Path = TERMINATION_LOG) -> None:
    """Write the number of durable batches (in a checkpoint or at the parameter server) of each chunk.

    Call it after each save; the last call counts.

    Args:
        batches: Durable batches by chunk, including those of earlier attempts; for a member of a gang, the fraction of
            its one batch.
        path: The container's termination message file.
    """
    text = message(batches)
    # The file is not truncated first: the process may be killed then, or the disk of the node may be full.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "w", encoding="ascii") as file:
        file.write(text.ljust(os.fstat(file.fileno()).st_size))
        file.flush()
        file.truncate(len(text))


def _number(count: float) -> float:
    """Return a number of batches as JSON has it; that of a program may be a scalar of an array library."""
    number = float(count)
    return int(number) if number.is_integer() else number


def message(batches: Mapping[int, float]) -> str:
    """Return durable batches as JSON of at most `MOST_BYTES`, such as ``{"14":250,"15":17}``.

    A longer message becomes ``{"0-11,14":250,"15":17}``: chunks with equal counts, as all that are done have, share one
    entry, and chunks without batches are left out. If that is too long too, the entries with the most batches stay.
    """
    counts = {int(chunk): _number(count) for chunk, count in batches.items()}
    plain = json.dumps(counts, separators=(",", ":"))
    if len(plain) <= MOST_BYTES:
        return plain
    groups: dict[float, list[int]] = {}
    for chunk, count in counts.items():
        if count > 0:
            groups.setdefault(count, []).append(chunk)
    entries: list[str] = []
    bytes_left = MOST_BYTES - len("{}")
    for count, chunks in sorted(groups.items(), key=lambda group: -group[0] * len(group[1])):
        for ranges in _pieces(_ranges(chunks)):
            entry = f'"{ranges}":{json.dumps(count)}'
            if len(entry) + 1 <= bytes_left:
                entries.append(entry)
                bytes_left -= len(entry) + 1
    return f"{{{','.join(entries)}}}"


def _ranges(chunks: Iterable[int]) -> list[str]:
    ranges: list[list[int]] = []
    for chunk in sorted(chunks):
        if ranges and chunk == ranges[-1][1] + 1:
            ranges[-1][1] = chunk
        else:
            ranges.append([chunk, chunk])
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]


def _pieces(ranges: list[str]) -> Iterable[str]:
    """Join ranges to keys of at most 100 ranges, so that a key that does not fit costs few chunks."""
    return (",".join(ranges[first : first + 100]) for first in range(0, len(ranges), 100))
