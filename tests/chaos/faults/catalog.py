"""All faults, and the draw of those of a round. A fault begins, lasts for a time, and is undone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.faults import admission, api_object, kubelet, network, process_and_node, tenant
from chaos.labs import Begin

FIRST_SECONDS = 2.0
"""Earliest time of a fault, when jobs run already."""
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 8.0


FAULTS: dict[str, Begin] = {
    **process_and_node.FAULTS,
    **network.FAULTS,
    **api_object.FAULTS,
    **kubelet.FAULTS,
    **admission.FAULTS,
    **tenant.FAULTS,
}
LONG = {**process_and_node.SECONDS, **kubelet.SECONDS, **admission.SECONDS, **tenant.SECONDS}
"""Shortest and longest duration, in seconds, of the faults that need more time than others to have an effect."""
OPEN: dict[str, str] = {}
"""Faults that are drawn only if they are requested by name, with the reason."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a round."""

    at: float
    """Seconds after the round's start."""
    seconds: float
    """Duration, of a fault that is undone."""
    name: str
    seed: int


def draw(chance: random.Random, count: int, seconds: float, names: Sequence[str] = ()) -> list[Fault]:
    """Draw faults in order of time, no fault twice unless there are too few.

    Args:
        chance: Source of the draws.
        count: Number of faults.
        seconds: Time within which all of them begin.
        names: Faults to draw from; default: all but those of `OPEN`.
    """
    names = list(names or (name for name in FAULTS if name not in OPEN))
    chance.shuffle(names)
    return sorted(
        (
            Fault(
                chance.uniform(FIRST_SECONDS, seconds),
                chance.uniform(*LONG.get(name, (SHORTEST_SECONDS, LONGEST_SECONDS))),
                name,
                chance.randrange(2**32),
            )
            for name in (names[number % len(names)] for number in range(count))
        ),
        key=lambda fault: fault.at,
    )
