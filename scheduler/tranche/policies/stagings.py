"""What a job's own pods bring to the sites where its chunks may train."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Staging:
    """Data of chunks on their way to one site, brought by one pod after the other."""

    site: str
    attempt: int = 0
    """Of the pod; 0: there is none now."""
    chunks: tuple[int, ...] = ()
    """That the pod brings, in this order."""
    wanted: tuple[int, ...] = ()
    """For the next pod."""
    failures: int = 0
    """Pods that failed since one succeeded."""
    held_until: float = 0.0
    """No pod before."""
    given_up: bool = False
    """Too many pods failed: chunks train where their data are."""


def expected_copies(
    copies: Mapping[str, Mapping[int, float]], coming: Mapping[tuple[str, int], float]
) -> dict[str, dict[int, float]]:
    """When copies are complete, by site and chunk; of those that have to be reported, when that is expected."""
    return {site: {chunk: coming.get((site, chunk), at) for chunk, at in here.items()} for site, here in copies.items()}
