"""Faults of a round: each fault is begun, lasts a while, and is undone."""

import random
from dataclasses import dataclass

from chaos import machines, objects, requests
from chaos.labs import Begin

FIRST_SECONDS = 2.0
"""There is something to break by then."""
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 8.0


FAULTS: dict[str, Begin] = {**machines.FAULTS, **requests.FAULTS, **objects.FAULTS}


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a round's list."""

    at: float
    """Seconds after the round's start."""
    seconds: float
    """How long it lasts, if it is one that lasts."""
    name: str
    seed: int


def draw(chance: random.Random, count: int, seconds: float) -> list[Fault]:
    """Draw ``count`` faults within ``seconds``, different ones as far as there are, in their order."""
    names = list(FAULTS)
    chance.shuffle(names)
    return sorted(
        (
            Fault(
                chance.uniform(FIRST_SECONDS, seconds),
                chance.uniform(SHORTEST_SECONDS, LONGEST_SECONDS),
                names[number % len(names)],
                chance.randrange(2**32),
            )
            for number in range(count)
        ),
        key=lambda fault: fault.at,
    )
