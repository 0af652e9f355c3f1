"""Comparison of figures with their bounds in ranges.toml, the one place where benchmarks define their limits."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")


def bound(name: str) -> float:
    """Return the upper bound of a figure.

    Raises:
        KeyError: ranges.toml has no such table.
    """
    return float(tomllib.loads(FILE.read_text())[name]["bound"])


def judge(name: str, value: float) -> tuple[bool, str]:
    """Return whether a figure keeps its bound, and a line with the margin, beside earlier trials.

    Args:
        name: A table of ranges.toml.
        value: The figure; smaller is better.

    Raises:
        KeyError: there is no such table.
    """
    limit = bound(name)
    trials = [float(trial) for trial in tomllib.loads(FILE.read_text())[name]["trials"]]
    kept = value <= limit
    room = f"{100 * (1 - value / limit):.0f} % head-room" if kept else "OVER"
    earlier = f", trials {min(trials):g} to {max(trials):g}" if trials else ""
    return kept, f"{name}: {value:.4g}, bound {limit:g}: {room}{earlier}"


def all_kept(figures: Mapping[str, float]) -> bool:
    """Print a line for each figure; return whether all keep their bounds.

    Args:
        figures: By table of ranges.toml.

    Raises:
        KeyError: there is no such table.
    """
    judged = [judge(name, value) for name, value in figures.items()]
    for _, line in judged:
        print(line)
    return all(kept for kept, _ in judged)
