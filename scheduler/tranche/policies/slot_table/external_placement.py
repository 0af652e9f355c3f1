"""Linear programme of placing workers and parameter servers on several machines at the least price, solved exactly.

Source: the external placement of PD-ORS (arXiv 2108.02917), reconstructed [R]: minimize the price of all pods such that
the workers do the slot's samples, the parameter servers serve the workers, and each machine holds its pods. The method
is ours [I], since no solver is installed with the product: prices are positive, so the workers are exactly as many as
needed, and the price S* of a further parameter server is the only multiplier left. For a given S*, each machine has a
convex cost of its workers, along the edge of what it can hold, and the workers take the least slopes. Between a
solution with too few parameter servers and one with enough, the next S* is the slope between both; as in the method of
Kelley it ends after finitely many steps, when no solution is below the line through both. The optimum mixes the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import inf

from tranche.policies.slot_table.pool import Machine
from tranche.policies.slot_table.slot_job import NEARLY, Amounts, SlotJob

Place = tuple[float, float]
"""Workers and parameter servers on one machine; fractions are allowed."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The optimum of the linear programme."""

    cost: float
    places: Mapping[str, Place]
    """Workers and parameter servers by machine, machines without any left out."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a machine's edge: further workers, and the parameter servers that make room for them."""

    slope: float
    """Cost of a further worker, with the value of the parameter servers that make room for it."""
    pace: float
    """Cost of a further worker alone; 0 where there are no parameter servers."""
    name: str
    workers: float
    servers: float
    """Change of the number of parameter servers, at most 0."""
    cost: float


@dataclass(frozen=True, slots=True)
class _Option:
    """A machine that the job may use."""

    name: str
    worker_price: float
    server_price: float
    edge: tuple[Place, ...]
    """Corners of what it can hold, from no worker and its most parameter servers to its most workers."""


@dataclass(frozen=True, slots=True)
class _Solution:
    """The cheapest workers at a given price of a further parameter server."""

    cost: float
    servers: float
    places: Mapping[str, Place]


def relaxed_placement(job: SlotJob, workers: float, servers: float, machines: Sequence[Machine]) -> Relaxation | None:
    """Return the cheapest fractional placement on the machines; None if none exists.

    Args:
        job: Job with the demands of its pods.
        workers: Number of workers to place.
        servers: Least number of parameter servers.
        machines: Machines with their rooms and prices.
    """
    most = {
        machine.name: (
            workers if job.allows_worker(machine.name) else 0.0,
            servers if job.allows_server(machine.name) else 0.0,
        )
        for machine in machines
    }
    kinds = {(machine.room, *most[machine.name]) for machine in machines if max(most[machine.name]) > 0}
    edges = {kind: _edge(job, *kind) for kind in kinds}
    options = [
        _Option(machine.name, machine.price_of(job.worker), machine.price_of(job.server), edge)
        for machine in machines
        if (edge := edges.get((machine.room, *most[machine.name])))
    ]
    below = _solved(options, workers, 0.0)
    if below is None:
        return None
    if below.servers >= servers - NEARLY:
        return Relaxation(below.cost, below.places)
    above = _solved(options, workers, inf)
    if above is None or above.servers < servers - NEARLY:
        return None
    while True:
        price = (above.cost - below.cost) / (above.servers - below.servers)
        between = _solved(options, workers, price)
        assert between is not None, "workers fit at any price"
        gain = (below.cost - price * below.servers) - (between.cost - price * between.servers)
        if gain <= NEARLY * max(abs(below.cost), abs(price * below.servers), 1e-300):
            return _mixed(below, above, servers)
        if between.servers >= servers:
            above = between
        else:
            below = between


def _edge(job: SlotJob, room: Amounts, workers: float, servers: float) -> tuple[Place, ...]:
    """Return the edge of what a machine with this room can hold, at most all pods of each kind."""
    rows = [(1.0, 0.0, workers), (0.0, 1.0, servers)]
    rows += [(a, b, part) for a, b, part in zip(job.worker, job.server, room, strict=True) if a > 0 or b > 0]
    corners = {(0.0, min((c / b for _, b, c in rows if b > 0), default=0.0))}
    corners.add((min((c / a for a, _, c in rows if a > 0), default=0.0), 0.0))
    for (a, b, c), (d, e, f) in combinations(rows, 2):
        determinant = a * e - b * d
        if determinant and c < inf and f < inf:
            corners.add(((c * e - b * f) / determinant, (a * f - c * d) / determinant))
    feasible = [
        (w, s) for w, s in corners if w >= 0 and s >= 0 and all(a * w + b * s <= c + NEARLY for a, b, c in rows)
    ]
    edge: list[Place] = []
    # In order of fewer and fewer workers; a corner counts only if it has room for more servers than the one before.
    for corner in sorted(feasible, reverse=True):
        if not edge or corner[1] > edge[-1][1] + NEARLY:
            if edge and edge[-1][0] <= corner[0] + NEARLY:
                edge.pop()
            edge.append(corner)
    if edge and edge[-1][0] > 0:
        edge.append((0.0, edge[-1][1]))
    return tuple(edge[::-1])


def _solved(options: Sequence[_Option], workers: float, price: float) -> _Solution | None:
    """Return the cheapest workers, with the parameter servers that are worth their price; None if they do not fit."""
    segments: list[_Segment] = []
    places: dict[str, Place] = {}
    cost = 0.0
    for option in options:
        if option.server_price >= price:
            most = option.edge[-1][0]
            segments.append(_Segment(option.worker_price, 0.0, option.name, most, 0.0, option.worker_price * most))
            continue
        first = option.edge[0][1]
        places[option.name] = (0.0, first)
        cost += option.server_price * first
        for corner, next_corner in pairwise(option.edge):
            more, fewer = next_corner[0] - corner[0], corner[1] - next_corner[1]
            change = option.worker_price * more - option.server_price * fewer
            lost = fewer / more
            slope = (change + price * fewer) / more if price < inf else lost
            segments.append(_Segment(slope, change / more, option.name, more, -fewer, change))
    segments.sort(key=lambda segment: (segment.slope, segment.pace, segment.name))
    workers_left = workers
    for segment in segments:
        if workers_left <= 0:
            break
        part = min(1.0, workers_left / segment.workers) if segment.workers > 0 else 0.0
        place = places.get(segment.name, (0.0, 0.0))
        places[segment.name] = (place[0] + part * segment.workers, place[1] + part * segment.servers)
        cost += part * segment.cost
        workers_left -= part * segment.workers
    if workers_left > NEARLY * max(1.0, workers):
        return None
    return _Solution(cost, sum(servers for _, servers in places.values()), places)


def _mixed(below: _Solution, above: _Solution, servers: float) -> Relaxation:
    """Return the mixture of both solutions that has this number of parameter servers."""
    part = (servers - below.servers) / (above.servers - below.servers)
    places = {}
    for name in sorted({*below.places, *above.places}):
        (w0, s0), (w1, s1) = below.places.get(name, (0.0, 0.0)), above.places.get(name, (0.0, 0.0))
        place = ((1 - part) * w0 + part * w1, (1 - part) * s0 + part * s1)
        if max(place) > NEARLY:
            places[name] = place
    return Relaxation((1 - part) * below.cost + part * above.cost, places)
