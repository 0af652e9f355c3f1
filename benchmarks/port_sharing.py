"""Workers at one port of a parameter server in virtual time: fixed shares, or fair shares of the present transfers.

`fair_end` is the network without any rule: at each moment all transfers in progress share the port equally, as long
TCP connections do. `shared_end` is the same with fixed shares, which a window that ends leaves to the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from tranche.estimate.iteration.bandwidth_share import Rule, WorkerLoad, window_seconds
from tranche.estimate.iteration.synchronization import ASP, end_seconds

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Course:
    """Workers with the same number of batches, and how they communicate."""

    loads: tuple[WorkerLoad, ...]
    gradient_bits: float
    port: float
    """Bandwidth of the parameter server in bit/s."""
    staleness: float
    decoupled: bool = False


def shared_end(course: Course, rule: Rule) -> float:
    """Return the seconds until all workers have trained their batches, with the shares of a rule.

    Asynchronous windows receive new shares whenever one of them ends. Under BSP and SSP, all end together at last.
    """
    if course.staleness != ASP:
        shares = rule(course.loads, course.gradient_bits, course.port)
        alone = [_one(load, course, share) for load, share in zip(course.loads, shares, strict=True)]
        ends = end_seconds(alone, [int(load.batches) for load in course.loads], course.staleness)
        return max(ends)
    return on_request_end(course, rule, rule, 0)


def on_request_end(course: Course, rule: Rule, last: Rule, waiting: int) -> float:
    """Return the seconds until `waiting` more windows are trained that workers take as soon as their own ends.

    Args:
        course: Workers with their first windows.
        rule: Rule for the shares while windows wait.
        last: Rule for the shares of the last windows.
        waiting: Number of windows that wait.
    """
    loads, now = list(course.loads), 0.0
    while any(load.batches > 0 for load in loads):
        shares = (rule if waiting else last)(loads, course.gradient_bits, course.port)
        alone = [_one(load, course, share) for load, share in zip(loads, shares, strict=True)]
        step = min(load.batches * seconds for load, seconds in zip(loads, alone, strict=True) if load.batches > 0)
        now += step
        for worker, load in enumerate(loads):
            batches_left = load.batches - step / alone[worker] if load.batches > 0 else 0.0
            if load.batches > 0 and batches_left <= 1e-9:
                batches_left, waiting = (course.loads[worker].batches, waiting - 1) if waiting else (0.0, 0)
            loads[worker] = replace(load, batches=batches_left)
    return now


def _one(load: WorkerLoad, course: Course, share: float) -> float:
    """Return the seconds of one batch."""
    return window_seconds(replace(load, batches=1), course.gradient_bits, share, decoupled=course.decoupled)


def fair_end(course: Course) -> float:
    """Return the seconds until all workers have trained their batches, if transfers in progress share the port."""
    compute = np.array([load.compute_seconds for load in course.loads])
    links = np.array([load.link_bits_per_second for load in course.loads])
    batches = np.array([load.batches for load in course.loads])
    ahead = float(course.decoupled)
    computed, trained = np.zeros(len(compute)), np.zeros(len(compute))
    ready, bits_left = np.full(len(compute), inf), np.zeros(len(compute))
    now = 0.0
    while (trained < batches).any():
        bits_left[(bits_left <= 0) & (computed > trained)] = 2 * course.gradient_bits
        slowest = trained[trained < batches].min()
        starts = (ready == inf) & (computed < batches)
        starts &= (computed - trained <= ahead) & (computed - slowest <= course.staleness + ahead)
        ready[starts] = now + compute[starts]
        rates = _fair_rates(bits_left > 0, links, course.port)
        ends = np.divide(bits_left, rates, out=np.full(len(bits_left), inf), where=rates > 0)
        step = min(ready.min() - now, ends.min())
        bits_left = np.where(ends <= step * (1 + 1e-12), 0.0, bits_left - rates * step)
        trained += ends <= step * (1 + 1e-12)
        now += step
        over = ready <= now * (1 + 1e-12)
        computed += over
        ready[over] = inf
    return now


def _fair_rates(sending: NDArray[np.bool_], links: Array, port: float) -> Array:
    """Return the max-min fair rates of the senders."""
    rates, open_ = np.zeros(len(links)), sending.copy()
    while open_.any() and port > 0:
        share = port / open_.sum()
        bound = open_ & (links <= share)
        if not bound.any():
            rates[open_] = share
            break
        rates[bound] = links[bound]
        port -= links[bound].sum()
        open_ &= ~bound
    return rates


def mixed_loads(workers: int, compute_seconds: Sequence[float], batches: int, link: float) -> tuple[WorkerLoad, ...]:
    """Return workers whose times of a computation alternate between the given ones."""
    return tuple(WorkerLoad(compute_seconds[i % len(compute_seconds)], batches, link) for i in range(workers))
