"""Relaxation of the cluster to one pool of GPUs, and three problems on it that are solved or bounded from below.

`tranche.simulation.analysis.lower_bound` defines them and derives why each is a lower bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from math import inf

import numpy as np
from numpy.typing import NDArray

from tranche.simulation.analysis.quantile import quantiles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ONE = np.uint64(1)

BATCH = 16_000
"""Number of elements of one array while prices are evaluated: several such arrays fit into the cache of a core."""
SORTED = 8_000
"""Number of cells whose levels are sorted at once: the arrays for that fit into the second cache of a core."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Jobs that need GPUs, in order of arrival, and the cluster as one pool."""

    release: Floats
    """r_j, seconds."""
    work: Floats
    """a_j, GPU-seconds at speed 1."""
    ideal: Floats
    """p_j, seconds: the work at the job's highest rate."""
    capacity: float
    """C, GPU-seconds at speed 1 a second; infinite if a site is unlimited."""


def srpt_flow(pool: Pool) -> float:
    """Return Σ (C_j − r_j) of preemptive shortest remaining processing time on one machine of the pool's speed."""
    release = pool.release.tolist()
    lengths = (pool.work / pool.capacity).tolist()
    waiting: list[tuple[float, float]] = []
    now, arrived, count, total = 0.0, 0, len(lengths), 0.0
    while waiting or arrived < count:
        if not waiting:
            now = max(now, release[arrived])
        while arrived < count and release[arrived] <= now:
            heappush(waiting, (lengths[arrived], release[arrived]))
            arrived += 1
        until = release[arrived] if arrived < count else inf
        remaining, since = waiting[0]
        if now + remaining <= until:
            heappop(waiting)
            now += remaining
            total += now - since
        else:
            heapreplace(waiting, (remaining - (until - now), since))
            now = until
    return total


def smallest_first(pool: Pool) -> Iterator[tuple[float, float, int]]:
    """Yield (begin, end, job) of one machine of the pool's speed that always serves the smallest released job."""
    release, sizes = pool.release.tolist(), pool.work.tolist()
    remaining = (pool.work / pool.capacity).tolist()
    waiting: list[tuple[float, int]] = []
    now, arrived, count = 0.0, 0, len(remaining)
    while waiting or arrived < count:
        if not waiting:
            now = max(now, release[arrived])
        while arrived < count and release[arrived] <= now:
            heappush(waiting, (sizes[arrived], arrived))
            arrived += 1
        job = waiting[0][1]
        until = release[arrived] if arrived < count else inf
        if now + remaining[job] <= until:
            heappop(waiting)
            end = now + remaining[job]
        else:
            end = until
            remaining[job] -= end - now
        yield now, end, job
        now = end


class PriceBound:
    """Bound (4) of `tranche.simulation.analysis.lower_bound` as a concave function of GPU prices over time.

    Time is divided into cells of one price each, half of them of equal length, half as dense as the arrivals; the last
    cell extends beyond all completions.
    """

    def __init__(self, pool: Pool, cells: int, busy_until: float) -> None:
        """Divide the time until `busy_until` (seconds) into at most `cells` cells."""
        self.pool = pool
        begin = float(pool.release[0])
        even = np.linspace(begin, busy_until, cells // 2 + 1)
        dense = quantiles(pool.release, np.linspace(0, 1, cells // 2 + 1))
        inner = np.sort(np.concatenate((even, dense)))
        inner = inner[np.append(True, inner[1:] != inner[:-1])]
        beyond = 2 * max(busy_until, float((pool.release + pool.ideal).max())) - begin + 1.0
        self.edges: Floats = np.append(inner, beyond)
        self.lengths: Floats = np.diff(self.edges)
        # Behind the last cell is one without span, for windows of jobs that extend beyond it.
        self._begins: Floats = np.append(self.edges[:-1], self.edges[-2])
        self._ends: Floats = np.append(self.edges[1:], -inf)
        self._first: Ints = np.searchsorted(self.edges, pool.release, side="right") - 1
        last = np.searchsorted(self.edges, pool.release + pool.ideal, side="left") - 1
        self._last: Ints = np.clip(last, self._first, len(self.lengths) - 1)
        self._rates: Floats = pool.work / pool.ideal

    def at(self, prices: Floats) -> tuple[float, Floats]:
        """Return the bound, Σ (C_j − r_j) in seconds, and by how much each cell's mean use differs from the capacity.

        Args:
            prices: Price of one GPU-second in each cell, in seconds of completion time; not negative; 0 in the last
                cell, which has capacity for all work, so that no job extends beyond it.
        """
        pool = self.pool
        used = np.zeros(len(prices))
        total = float(pool.ideal.sum() / 2 - pool.capacity * (prices * self.lengths).sum())
        reach = self._reach(prices)
        last = np.minimum(np.searchsorted(self.edges, pool.release + reach, side="left"), len(prices)) - 1
        widths = np.maximum(last - self._first, 0) + 1
        padded = np.append(prices, prices[-1])
        for jobs in _batches(widths):
            cost, cells, spans = self._answer(jobs, int(widths[jobs].max()), padded, reach[jobs])
            total += float(cost.sum())
            np.multiply(spans, self._rates[jobs, None], out=spans)
            used += np.bincount(cells.ravel(), spans.ravel(), minlength=len(prices) + 1)[:-1]
        return total, used / self.lengths - pool.capacity

    def _answer(self, jobs: Ints, width: int, prices: Floats, reach: Floats) -> tuple[Floats, Ints, Floats]:
        """Return the cost of each job's cheapest p_j seconds, and their cells and seconds.

        A moment t costs ``level(t) = t − r_j + a_j × price(t)``; a job takes all moments below the water level z at
        which they last p_j. Its cost is ``z − ∫ max(0, z − level) / p_j``; with any other z that is less.
        """
        pool = self.pool
        release, ideal = pool.release[jobs, None], pool.ideal[jobs]
        cells = self._first[jobs, None] + np.arange(width)
        np.minimum(cells, len(self.lengths), out=cells)
        begins, spans = self._begins.take(cells), self._ends.take(cells)
        np.maximum(begins, release, out=begins)
        np.maximum(np.subtract(spans, begins, out=spans), 0.0, out=spans)
        costs = prices.take(cells)
        costs *= pool.work[jobs, None]
        levels = np.add(np.subtract(begins, release, out=begins), costs, out=begins)
        water = np.minimum(_water_level(levels, spans, ideal), reach)
        heights = np.subtract(water[:, None], levels, out=levels)
        depths = np.minimum(np.maximum(heights, 0.0, out=costs), spans, out=spans)
        halves = depths**2
        halves /= 2
        saved = np.subtract(np.multiply(depths, heights, out=heights), halves, out=halves).sum(axis=1)
        return water - saved / ideal, cells, depths

    def _reach(self, prices: Floats) -> Floats:
        """Return an upper bound of each job's water level: the highest level in its first p_j seconds after arrival."""
        return self.pool.ideal + self.pool.work * _range_maximum(prices, self._first, self._last)


def ascend(bound: PriceBound, starts: list[Floats], passes: int) -> float:
    """Return the highest value found by a supergradient ascent from the best of the given start prices.

    Steps are Polyak's towards a target above the best value so far; the target approaches it when a step gains nothing.
    """
    answers = [bound.at(prices) for prices in starts]
    chosen = max(range(len(starts)), key=lambda index: answers[index][0])
    prices, (best, slope) = starts[chosen], answers[chosen]
    value, best_prices, ambition, idle = best, prices, 0.03, 0
    best_slope = slope
    for _ in range(passes):
        direction = np.where((prices <= 0) & (slope < 0), 0.0, slope)
        direction[-1] = 0.0
        steepness = float((bound.lengths * direction**2).sum())
        if steepness <= 0:
            break
        prices = np.maximum(prices + direction * ((1 + ambition) * best - value) / steepness, 0.0)
        value, slope = bound.at(prices)
        if value > best:
            best, best_prices, best_slope, idle = value, prices, slope, 0
        else:
            idle += 1
            if idle == 3:
                ambition, idle = ambition / 2, 0
                prices, value, slope = best_prices, best, best_slope
    return best


def queue_prices(bound: PriceBound, served: list[tuple[float, float, int]]) -> Floats:
    """Return prices that are optimal if no job were limited in parallel, averaged over each cell.

    While job j is served, a GPU-second costs ``α_j − t / a_j``; the constants follow backwards from the end of each
    busy period, where the price is 0.
    """
    work = bound.pool.work
    constants: dict[int, float] = {}
    begins = np.array([begin for begin, _, _ in served])
    ends = np.array([end for _, end, _ in served])
    highs, lows = np.empty_like(begins), np.empty_like(begins)
    after, follows = 0.0, inf
    for number in range(len(served) - 1, -1, -1):
        begin, end, job = served[number]
        price = after if end == follows else 0.0
        constant = constants.setdefault(job, price + end / work[job])
        highs[number] = max(constant - begin / work[job], 0.0)
        lows[number] = max(constant - end / work[job], 0.0)
        after, follows = float(highs[number]), begin
    times = np.column_stack((begins, ends)).ravel()
    areas = np.zeros(len(times))
    areas[1::2] = (highs + lows) / 2 * (ends - begins)
    return np.diff(np.interp(bound.edges, times, np.cumsum(areas))) / bound.lengths


def _water_level(levels: Floats, spans: Floats, volumes: Floats) -> Floats:
    """Return the z of each row with ``Σ clip(z − level, 0, span) = volume``.

    Args:
        levels: Level at which each cell begins to fill; not negative.
        spans: Height of each cell above that level; not negative.
        volumes: What each row holds.
    """
    water = np.empty(len(levels))
    rows = max(1, SORTED // levels.shape[1])
    for begin in range(0, len(levels), rows):
        part = slice(begin, begin + rows)
        water[part] = _water_level_of_rows(levels[part], spans[part], volumes[part])
    return water


def _water_level_of_rows(levels: Floats, spans: Floats, volumes: Floats) -> Floats:
    """Return `_water_level` of a few rows.

    Of all that is computed here, this takes the most time. Numbers that are not negative have the order of their bit
    patterns, whose sign bit is free to mark ends; sorting these is faster than sorting indices.
    """
    rows, cells = levels.shape
    points = np.empty((rows, 2 * cells))
    points[:, :cells] = levels
    np.add(levels, spans, out=points[:, cells:])
    keys = points.view(np.uint64)
    keys <<= _ONE
    keys[:, cells:] |= _ONE
    keys.sort(axis=1)
    change = (keys & _ONE).astype(np.int8)
    change *= -2
    change += 1  # 1 where a cell begins, -1 where it ends
    rising = np.cumsum(change, axis=1, dtype=np.int32)  # number of cells that fill after each point
    keys >>= _ONE
    filled = np.empty_like(points)
    filled[:, 0] = 0.0
    steps = np.subtract(points[:, 1:], points[:, :-1], out=filled[:, 1:])
    steps *= rising[:, :-1]
    np.cumsum(steps, axis=1, out=steps)
    at = np.argmax(filled >= volumes[:, None], axis=1)  # `filled` does not decrease
    at[filled[:, -1] < volumes] = 2 * cells
    at = np.maximum(at - 1, 0)
    at += np.arange(0, points.size, 2 * cells)
    level: Floats = points.ravel()[at] + (volumes - filled.ravel()[at]) / np.maximum(rising.ravel()[at], 1.0)
    return level


def _batches(widths: Ints) -> Iterator[Ints]:
    """Yield jobs with windows of about equal width, in groups whose array stays small."""
    order = np.argsort(widths, kind="stable")
    widths = widths[order]
    begin = 0
    while begin < len(order):
        width = 1 << (int(widths[begin]) - 1).bit_length()
        end = min(int(np.searchsorted(widths, width, side="right")), begin + max(1, BATCH // width))
        yield order[begin:end]
        begin = end


def _range_maximum(values: Floats, first: Ints, last: Ints) -> Floats:
    """Return the largest value between two indices, both included, of many pairs at once (sparse table)."""
    table = [values]
    while 2 ** len(table) <= len(values):
        half = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-half], table[-1][half:]))
    height = np.floor(np.log2(last - first + 1)).astype(np.int64)
    answer = np.empty(len(first))
    for level, maxima in enumerate(table):
        selected = height == level
        answer[selected] = np.maximum(maxima[first[selected]], maxima[last[selected] - 2**level + 1])
    return answer
