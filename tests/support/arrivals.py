"""Jobs that arrive at a steady pace while something else happens to the cluster."""

import time
from collections.abc import Callable

from support.full_stack import System

ARRIVAL_SECONDS = 3.0
"""Time between two arrivals: 20 in each minute."""


class Arrivals:
    """Jobs of one second that arrive at a steady pace."""

    def __init__(self, system: System, name: str = "arrival", *, zone: str | None = None) -> None:
        self.system, self.name, self.zone, self.names = system, name, zone, list[str]()
        self._next = time.monotonic()

    def submit_due(self) -> None:
        """Submit the next job if its time has come."""
        if time.monotonic() >= self._next:
            self._next += ARRIVAL_SECONDS
            self.names.append(f"{self.name}-{len(self.names)}")
            self.system.submit(self.names[-1], seconds=1.0, zone=self.zone)

    def until(self, true: Callable[[], bool], seconds: float) -> float:
        """Submit jobs until a function returns true; return the seconds that this took.

        Raises:
            TimeoutError: The function did not return true within the limit.
        """
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"no replica continued within {seconds:g} s")
            self.submit_due()
            time.sleep(0.05)
        return time.monotonic() - began
