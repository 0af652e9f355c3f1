"""Randomized rounding of a fractional placement, its repair, and the factors that bound its violations.

Source: PD-ORS (arXiv 2108.02917), reconstructed [R]: each entry of G times the solution is rounded up with the
probability of its fraction, and again until all constraints hold. [I] at most a given number of tries; then the
solution is rounded down, and pods are added one by one where they are cheapest. [I] surplus workers are dropped before
the constraints are checked, on the dearest machine first, so that more tries succeed. G = 1 by default, the value with
which the group's paper SMD evaluates [P]: with G < 1 a covering constraint fails almost surely. The factors for bounds
on one side follow from Chernoff's inequality [D]: both are roots of ``1 − G + ln G = −c``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, floor, log

from tranche.policies.slot_table.cells import Cells
from tranche.policies.slot_table.external_placement import Place, Relaxation
from tranche.policies.slot_table.pool import Machine
from tranche.policies.slot_table.slot_job import NEARLY, SlotJob

Draw = Callable[[int, int], float]
"""Uniform random number in (0, 1), by try and entry."""
Placed = dict[str, tuple[int, int]]
"""Workers and parameter servers by machine."""


def packing_factor(rows: int, delta: float, least_side: float) -> float:
    """Return the G with which a packing row is violated with probability at most δ/(3R).

    Args:
        rows: R, the number of packing rows.
        delta: δ.
        least_side: W_b, the least right-hand side of rows whose largest coefficient is 1.
    """
    return _root(log(3 * rows / delta) / least_side, below=True)


def covering_factor(rows: int, delta: float, least_side: float) -> float:
    """Return the G with which a covering row is violated with probability at most δ/(3R)."""
    return _root(log(3 * rows / delta) / least_side, below=False)


def bounding_factor(
    job: SlotJob, workers: int, relaxation: Relaxation, machines: Iterable[Machine], side: str, delta: float
) -> float:
    """Return the G that bounds violations of the `packing` or the `covering` rows of a placement.

    [I] packing rows are those of the machines that the fractional solution uses; covering rows are those of the workers
    and of the parameter servers, with the numbers of both as right-hand sides.
    """
    if side == "covering":
        servers = job.least_servers_for(workers)
        return covering_factor(2, delta, min(workers, servers) if servers > 0 else workers)
    largest = [max(parts) for parts in zip(job.worker, job.server, strict=True)]
    sides = [
        room / most
        for machine in machines
        if machine.name in relaxation.places
        for room, most in zip(machine.room, largest, strict=True)
        if most > 0
    ]
    return packing_factor(len(sides), delta, max(NEARLY, min(sides)))


def _root(excess: float, *, below: bool) -> float:
    """Return the root of 1 − G + ln G = −excess below or above 1, by bisection."""
    low, high = (exp(-1.0 - excess), 1.0) if below else (1.0, 2.0 + 2.0 * excess)
    for _ in range(200):
        middle = (low + high) / 2
        if (1.0 - middle + log(middle) < -excess) == below:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def rounded(place: Place, factor: float, draws: Sequence[float]) -> tuple[int, int]:
    """Return the place with each number times the factor, up with the probability of its fraction."""
    workers, servers = (_drawn(factor * part, draw) for part, draw in zip(place, draws, strict=True))
    return workers, servers


def _drawn(value: float, draw: float) -> int:
    whole = floor(value + NEARLY)
    return whole + (draw < value - whole and value - whole > NEARLY)


def violated_packing(job: SlotJob, placed: Mapping[str, tuple[int, int]], machines: Iterable[Machine]) -> int:
    """Return the number of machines that cannot hold their pods."""
    used = {
        name: job.worker.times(workers).plus(job.server.times(servers)) for name, (workers, servers) in placed.items()
    }
    return sum(machine.name in used and not used[machine.name].fit(machine.room) for machine in machines)


def is_covering(job: SlotJob, placed: Mapping[str, tuple[int, int]], workers: int) -> bool:
    """Return whether the workers are enough and at most those of the job, and the parameter servers serve them."""
    placed_workers = sum(count for count, _ in placed.values())
    served = sum(count for _, count in placed.values())
    return workers <= placed_workers <= job.most_workers and served >= job.servers_for(placed_workers)


def integral_cells(
    job: SlotJob,
    workers: int,
    relaxation: Relaxation,
    machines: Sequence[Machine],
    draw: Draw,
    *,
    tries: int,
    factor: float = 1.0,
) -> Cells | None:
    """Return whole pods near the solution of the linear programme; None if even the repair finds no room.

    Args:
        job: Job whose pods they are.
        workers: Number of workers.
        relaxation: Solution of the linear programme.
        machines: Machines with their rooms and prices.
        draw: Random numbers.
        tries: Most roundings to try; 0: round up if that fits, else repair.
        factor: G.
    """
    names = sorted(relaxation.places)
    for attempt in range(max(1, tries)):
        placed: Placed = {}
        for entry, name in enumerate(names):
            draws = (draw(attempt, 2 * entry), draw(attempt, 2 * entry + 1)) if tries else (0.0, 0.0)
            placed[name] = rounded(relaxation.places[name], factor, draws)
        _drop_surplus(job, placed, workers, machines)
        if is_covering(job, placed, workers) and not violated_packing(job, placed, machines):
            return priced(job, placed, machines)
    return _repaired(job, workers, relaxation, machines)


def priced(job: SlotJob, placed: Mapping[str, tuple[int, int]], machines: Iterable[Machine]) -> Cells:
    """Return the pods with their cost."""
    cost, workers, servers = 0.0, [], []
    for machine in machines:
        worker_count, server_count = placed.get(machine.name, (0, 0))
        if worker_count:
            workers.append((machine.name, worker_count))
            cost += worker_count * machine.price_of(job.worker)
        if server_count:
            servers.append((machine.name, server_count))
            cost += server_count * machine.price_of(job.server)
    return Cells(cost, tuple(workers), tuple(servers))


def _drop_surplus(job: SlotJob, placed: Placed, workers: int, machines: Iterable[Machine]) -> None:
    """Drop workers that are not needed, on the dearest machine first."""
    surplus = sum(count for count, _ in placed.values()) - workers
    dearest = sorted(machines, key=lambda machine: (-machine.price_of(job.worker), machine.name)) if surplus > 0 else ()
    for machine in dearest:
        worker_count, server_count = placed.get(machine.name, (0, 0))
        dropped = min(worker_count, surplus)
        if dropped > 0:
            placed[machine.name] = (worker_count - dropped, server_count)
            surplus -= dropped


def _repaired(job: SlotJob, workers: int, relaxation: Relaxation, machines: Sequence[Machine]) -> Cells | None:
    placed: Placed = {
        name: (floor(workers_part + NEARLY), floor(servers_part + NEARLY))
        for name, (workers_part, servers_part) in relaxation.places.items()
    }
    for column, needed in ((0, workers), (1, job.servers_for(workers))):
        demand = job.server if column else job.worker
        allows = job.allows_server if column else job.allows_worker
        able = [machine for machine in machines if allows(machine.name)]
        able.sort(key=lambda machine: (machine.price_of(demand), machine.name))
        missing = needed - sum(counts[column] for counts in placed.values())
        for machine in able:
            worker_count, server_count = placed.get(machine.name, (0, 0))
            used = job.worker.times(worker_count).plus(job.server.times(server_count))
            count = demand.most_in(machine.room.minus(used), missing) if missing > 0 else 0
            if count > 0:
                placed[machine.name] = (
                    (worker_count, server_count + count) if column else (worker_count + count, server_count)
                )
                missing -= count
        if missing > 0:
            return None
    return priced(job, placed, machines)
