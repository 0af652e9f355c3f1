"""Event-driven simulation of batched service with a waiting room, to check `tranche.estimate.batch_service`.

The simulation shares no code with the model: it draws arrivals and service times, and counts.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev

Draw = Callable[[Random, int], float]
"""Service time in seconds by the number of requests in a batch."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over runs, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: list[float]) -> "Estimate":
        """Return the estimate from one value of each run."""
        return cls(fmean(values), stdev(values) / len(values) ** 0.5)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Simulated figures of one pair of limits."""

    delay_seconds: Estimate
    loss: Estimate
    queue_length: Estimate


def deterministic(fixed: float, each: float) -> Draw:
    """Return service times of exactly fixed + each · k seconds."""
    return lambda random, size: fixed + each * size


def exponential(fixed: float, each: float) -> Draw:
    """Return exponential service times with the mean fixed + each · k seconds."""
    return lambda random, size: random.expovariate(1.0 / (fixed + each * size))


def simulate(
    rate: float,
    least: int,
    most: int,
    places: int,
    draw: Draw,
    *,
    requests: int = 20_000,
    runs: int = 10,
    seed: int = 1,
) -> Simulated:
    """Simulate independent runs of M/G(a,b)/1/N of `requests` arrivals each; the first tenth does not count."""
    outcomes = [_run(rate, least, most, places, draw, requests, Random(f"{seed} {number}")) for number in range(runs)]
    return Simulated(*(Estimate.of(list(values)) for values in zip(*outcomes, strict=True)))


def _run(
    rate: float, least: int, most: int, places: int, draw: Draw, requests: int, random: Random
) -> tuple[float, float, float]:
    """Return mean delay, share of lost requests and mean number of waiting requests of one run."""
    waiting: deque[float] = deque()
    now, busy_until = 0.0, 0.0
    counted_from = requests // 10
    began = area = delays = 0.0
    served = lost = 0
    for number in range(requests):
        arrival = now + random.expovariate(rate)
        if number == counted_from:
            began, area, delays, served, lost = now, 0.0, 0.0, 0, 0
        while now < arrival:  # batches end, and others start, until this request arrives
            until = min(arrival, busy_until) if busy_until > now else arrival
            area += len(waiting) * (until - now)
            now = until
            if now < arrival or now == busy_until:
                busy_until, size, delay_sum = _start(waiting, least, most, now, draw, random)
                served, delays = served + size, delays + delay_sum
        if len(waiting) >= places:
            lost += 1
            continue
        waiting.append(arrival)
        if busy_until <= now:
            busy_until, size, delay_sum = _start(waiting, least, most, now, draw, random)
            served, delays = served + size, delays + delay_sum
    return delays / served, lost / (requests - counted_from), area / (now - began)


def _start(
    waiting: deque[float], least: int, most: int, now: float, draw: Draw, random: Random
) -> tuple[float, int, float]:
    """Start a batch if enough requests wait; return its end, its size, and the sum of its requests' delays."""
    if len(waiting) < least:
        return 0.0, 0, 0.0
    size = min(len(waiting), most)
    end = now + draw(random, size)
    return end, size, sum(end - waiting.popleft() for _ in range(size))
