"""Layout of a Gantt chart: worker pods on the GPUs of their nodes, without matplotlib."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from tranche.simulation.engine.result import Occupation, Sample

MAX_LANES = 48
MAX_BARS = 500
"""Maximum number of bars; a chart with more shows only a period."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Worker pod on adjacent GPUs; a pod whose GPUs are not adjacent has several bars."""

    lane: int
    """First of its lanes, from the top of the chart."""
    lanes: int
    occupation: Occupation


@dataclass(frozen=True, slots=True)
class Chart:
    """Contents of a Gantt chart."""

    bars: tuple[Bar, ...]
    nodes: tuple[tuple[str, int, int], ...]
    """Name, first lane and number of lanes of each node, from the top."""
    begin: float
    end: float
    """End of the chart in seconds; bars may extend beyond begin and end."""
    scope: str
    """Description of the omitted parts; empty if the chart is complete."""


def lay_out(occupations: Sequence[Occupation], samples: Sequence[Sample] = ()) -> Chart:
    """Select nodes, GPUs and a period that fit one picture, and place the bars.

    The busiest nodes are kept, up to `MAX_LANES` GPUs together; of many pods, the period around the moment with the
    most waiting jobs (the middle without samples) that holds about `MAX_BARS`.

    Args:
        occupations: At least one.
        samples: Of the same run, in order of time.
    """
    by_node: dict[str, list[Occupation]] = defaultdict(list)
    for occupation in occupations:
        by_node[occupation.node].append(occupation)
    placed = {node: _place(sorted(items, key=lambda o: (o.opened, o.job))) for node, items in by_node.items()}
    widths = {node: max(bar.lane + bar.lanes for bar in bars) for node, bars in placed.items()}
    kept_nodes = _busiest(by_node, widths)
    bars: list[Bar] = []
    nodes: list[tuple[str, int, int]] = []
    lane = 0
    for node in kept_nodes:
        width = min(widths[node], MAX_LANES - lane)
        bars += (
            Bar(lane + bar.lane, min(bar.lanes, width - bar.lane), bar.occupation)
            for bar in placed[node]
            if bar.lane < width
        )
        nodes.append((node, lane, width))
        lane += width
    scopes = []
    if len(kept_nodes) < len(by_node):
        scopes.append(
            f"the {len(kept_nodes)} busiest of {len(by_node)} nodes"
            if len(kept_nodes) > 1
            else f"busiest node {kept_nodes[0]}"
        )
    if lane < sum(widths[node] for node in kept_nodes):
        scopes.append(f"{nodes[-1][2]} of {widths[kept_nodes[-1]]} used GPUs of {kept_nodes[-1]}")
    begin, end = min(o.opened for o in occupations), max(o.ended for o in occupations)
    if len(bars) > MAX_BARS:
        begin, end = _stretch(bars, samples)
        bars = [bar for bar in bars if bar.occupation.ended > begin and bar.occupation.opened < end]
        scopes.append("a stretch with many waiting jobs" if samples else "a stretch of the middle")
    return Chart(tuple(bars), tuple(nodes), begin, end, "; ".join(scopes))


def _place(occupations: Sequence[Occupation]) -> list[Bar]:
    """Assign the lowest free GPUs to every pod of one node; pods are in order of opening."""
    free: list[int] = []
    running: list[tuple[float, int, list[int]]] = []
    lane_count = 0
    bars = []
    for number, occupation in enumerate(occupations):
        while running and running[0][0] <= occupation.opened:
            for lane in heappop(running)[2]:
                heappush(free, lane)
        lanes = []
        for _ in range(max(1, occupation.gpus)):
            if free:
                lanes.append(heappop(free))
            else:
                lanes.append(lane_count)
                lane_count += 1
        heappush(running, (occupation.ended, number, lanes))
        bars += _runs(lanes, occupation)
    return bars


def _runs(lanes: list[int], occupation: Occupation) -> list[Bar]:
    bars: list[Bar] = []
    for lane in sorted(lanes):
        if bars and bars[-1].lane + bars[-1].lanes == lane:
            bars[-1] = Bar(bars[-1].lane, bars[-1].lanes + 1, occupation)
        else:
            bars.append(Bar(lane, 1, occupation))
    return bars


def _busiest(by_node: Mapping[str, Sequence[Occupation]], widths: Mapping[str, int]) -> list[str]:
    """Return names in natural order ("node-2" before "node-10")."""
    busy = {node: sum(o.gpus * (o.ended - o.opened) for o in items) for node, items in by_node.items()}
    chosen: list[str] = []
    room = MAX_LANES
    for node in sorted(busy, key=lambda node: (-busy[node], node)):
        if chosen and widths[node] > room:
            break
        chosen.append(node)
        room -= widths[node]
    return sorted(chosen, key=lambda name: [(not part.isdigit(), part.zfill(12)) for part in re.split(r"(\d+)", name)])


def _stretch(bars: Sequence[Bar], samples: Sequence[Sample]) -> tuple[float, float]:
    opened = sorted(bar.occupation.opened for bar in bars)
    middle = max(samples, key=lambda s: (s.waiting_jobs, -s.at)).at if samples else opened[len(opened) // 2]
    centre = sum(at < middle for at in opened)
    first = min(max(0, centre - MAX_BARS // 2), len(opened) - MAX_BARS)
    begin, end = opened[first], opened[first + MAX_BARS - 1]
    return begin, end if end > begin else begin + 1.0
