"""State of the copies of a job's data at other sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

ARRIVED = -inf
"""Time of a completed copy: always in the past, so that a clock that is set back does not undo it."""


@dataclass(slots=True, eq=False)
class Staging:
    """Copying of chunks' data to one site, by one pod after the other."""

    site: str
    attempt: int = 0
    """Attempt number of the pod; 0: there is no pod now."""
    chunks: tuple[int, ...] = ()
    """Chunks whose data the pod copies, in this order."""
    wanted: tuple[int, ...] = ()
    """Chunks for the next pod."""
    failures: int = 0
    """Number of pods that have failed since one succeeded."""
    refusals: int = 0
    """Number of pods that a kubelet has refused since one succeeded; these count for pauses only."""
    problem: str = ""
    """Why the last pod that did not succeed ended."""
    held_until: float = 0.0
    """Time before which no pod starts, in seconds on the planner's clock."""
    given_up: bool = False
    """Whether too many pods have failed: until `held_until`, chunks train where their data are."""


def expected_copies(
    copies: Mapping[str, Mapping[int, float]], coming: Mapping[tuple[str, int], float]
) -> dict[str, dict[int, float]]:
    """Return when copies are complete, by site and chunk; for copies that pods report, when the report is expected."""
    return {
        site: {chunk: coming.get((site, chunk), at) for chunk, at in chunks.items()} for site, chunks in copies.items()
    }
