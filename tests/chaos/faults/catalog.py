"""Faults of a round: each fault is begun, lasts a while, and is undone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.faults import admission, api_object, kubelet, network, process_and_node, tenant
from chaos.labs import Begin

FIRST_SECONDS = 2.0
"""There is something to break by then."""
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
"""Least and most duration, in seconds, of faults that need longer than others to have an effect."""
OPEN: dict[str, str] = {}
"""Faults that are not drawn unless they are asked for by name, with the reason."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a round's list."""

    at: float
    """Seconds after the round's start."""
    seconds: float
    """How long it lasts, if it is one that lasts."""
    name: str
    seed: int


def draw(chance: random.Random, count: int, seconds: float, names: Sequence[str] = ()) -> list[Fault]:
    """Draw ``count`` faults within ``seconds``, different ones as far as there are, in their order.

    Args:
        chance: Source of the draws.
        count: How many faults.
        seconds: Time within which they begin.
        names: The faults to draw from; all except the open ones if it is empty.
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
