"""Optima of the weighted flow F = Σ (1/D_j)(C_jd − r_j) on small instances, to compare `chunk-faithful` with.

A job of D_j chunks arrives at r_j; a chunk takes p_ji seconds on worker i at speed 1, and nothing has to be brought.

OPT is the least F if each chunk stays on one worker. OPT_LP⁺ relaxes it: y_jdi(t) is the part of worker i that chunk d
of job j has at t ≥ r_j, with Σ_{j,d} y ≤ 1 per worker and Σ_i ∫ y/p_ji dt ≥ 1 per chunk, and

    OPT_LP⁺ = min Σ_{j,d,i} (1/D_j) ∫ [(t − r_j)/p_ji + 1] y_jdi(t) dt ≤ 2·OPT,

because on one worker ∫ (t − r_j)/p·y and ∫ y = p are at most C_jd − r_j each.
"""

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf

import highspy
import numpy as np

from support.builders import job, node
from tranche.model import Job, Node
from tranche.policies import get_policy
from tranche.simulation import SimulationResult, simulate

SLOT_SECONDS = 0.25
"""Length of a slot of the linear program."""


def augmented(jobs: list[Job], nodes: list[Node], epsilon: float, policy: str = "chunk-faithful") -> SimulationResult:
    """Run the jobs under a policy on workers of speed 1 + ε.

    Raises:
        ValueError: a job did not complete.
    """
    faster = [replace(one, speed=one.speed * (1 + epsilon)) for one in nodes]
    result = simulate(jobs, faster, (), get_policy(policy))
    if len(result.jobs) != len(jobs):
        raise ValueError(f"{len(jobs) - len(result.jobs)} jobs did not complete")
    return result


def weighted_flow_seconds(result: SimulationResult) -> float:
    """F of a run, in seconds."""
    return sum(
        (end - one.submitted) / len(one.chunk_completions) for one in result.jobs for end in one.chunk_completions
    )


def relaxed_flow_seconds(jobs: list[Job], nodes: list[Node], *, processing: bool = True) -> tuple[float, float]:
    """Bounds of OPT_LP⁺ from below and above, in seconds, from slots of `SLOT_SECONDS`.

    Charging a slot by its start is too little; charging it by its middle is exact for a y that is constant in each
    slot. Chunks of one job are alike, and so are workers of one speed, so each kind has one variable a slot.

    Args:
        jobs: With whole seconds of submission.
        nodes: Of one worker each.
        processing: With the term "+ 1"; else the fractional flow alone.
    """
    kinds = Counter(host.speed for host in nodes)
    work = sum(one.chunks * one.batches_per_chunk_total * one.step_seconds for one in jobs)
    slots = slot_of(max(one.submitted for one in jobs) + work / min(kinds)) + 1
    capacity: dict[tuple[float, int], list[int]] = {(speed, slot): [] for speed in kinds for slot in range(slots)}
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    columns = 0
    for one in jobs:
        first, shares = columns, []
        for speed, count in kinds.items():
            seconds = one.batches_per_chunk_total * one.step_seconds / speed
            for slot in range(slot_of(one.submitted), slots):
                solver.addVar(0.0, count * SLOT_SECONDS)
                flow = (slot * SLOT_SECONDS - one.submitted) / seconds
                solver.changeColCost(columns, (flow + processing) / one.chunks)
                capacity[speed, slot].append(columns)
                shares.append(1 / seconds)
                columns += 1
        used = np.arange(first, columns, dtype=np.int32)
        solver.addRow(float(one.chunks), highspy.kHighsInf, len(used), used, np.array(shares))
    for (speed, _), sharing in capacity.items():
        used = np.array(sharing, dtype=np.int32)
        solver.addRow(-highspy.kHighsInf, kinds[speed] * SLOT_SECONDS, len(used), used, np.ones(len(used)))
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ValueError("the linear program was not solved")
    least = float(solver.getObjectiveValue())
    return least, least + len(jobs) * SLOT_SECONDS / 2


def slot_of(seconds: float) -> int:
    """The slot that begins then, or contains that moment."""
    return int(seconds / SLOT_SECONDS)


def least_flow_seconds(jobs: list[Job], nodes: list[Node]) -> float:
    """OPT: all ways to give each chunk a worker, and on each worker all orders in unit steps.

    Args:
        jobs: With whole seconds of submission and, on each worker, of chunks.
        nodes: Of one worker each.
    """
    chunks = [
        (round(one.submitted), one.batches_per_chunk_total * one.step_seconds, 1 / one.chunks)
        for one in jobs
        for _ in range(one.chunks)
    ]
    least = inf
    for choice in product(range(len(nodes)), repeat=len(chunks)):
        flow = 0.0
        for i, host in enumerate(nodes):
            mine = tuple(
                (release, round(seconds / host.speed), weight)
                for (release, seconds, weight), worker in zip(chunks, choice, strict=True)
                if worker == i
            )
            flow += _least_on_one(mine)
        least = min(least, flow)
    return least


@cache
def _least_on_one(chunks: tuple[tuple[int, int, float], ...]) -> float:
    """The least Σ weight × (completion − release) on one worker with preemption, of (release, seconds, weight).

    With whole numbers there is an optimum that changes chunks at whole seconds only and is never idle without need.
    """

    @cache
    def best(now: int, rest: tuple[int, ...]) -> float:
        ready = [i for i, left in enumerate(rest) if left and chunks[i][0] <= now]
        if not ready:
            later = [chunks[i][0] for i, left in enumerate(rest) if left]
            return best(min(later), rest) if later else 0.0
        least = inf
        for i in ready:
            left = (*rest[:i], rest[i] - 1, *rest[i + 1 :])
            done = chunks[i][2] * (now + 1 - chunks[i][0]) if rest[i] == 1 else 0.0
            least = min(least, done + best(now + 1, left))
        return least

    return best(0, tuple(seconds for _, seconds, _ in chunks))


def drawn_relaxed(draw: random.Random) -> tuple[list[Job], list[Node]]:
    """An instance for the linear program: up to three jobs and ten workers."""
    jobs = [
        job(
            f"j{i}",
            float(draw.randint(0, 12)),
            chunks=draw.choice([1, 1, 2, 3, 5]),
            seconds=float(draw.choice([1, 2, 4, 6, 12, 20])),
        )
        for i in range(draw.randint(1, 3))
    ]
    nodes = [node(f"n{i}", speed=draw.choice([1.0, 1.0, 2.0])) for i in range(draw.randint(1, 10))]
    return jobs, nodes


def drawn_exact(draw: random.Random) -> tuple[list[Job], list[Node]]:
    """An instance for the exhaustive search: two to five chunks, one or two workers, whole seconds on each."""
    unequal = draw.random() < 0.5
    jobs: list[Job] = []
    left = draw.randint(2, 5)
    while left:
        chunks = draw.randint(1, min(left, 3))
        seconds = draw.choice([2, 4]) if unequal else draw.randint(1, 4)
        jobs.append(job(f"j{len(jobs)}", float(draw.randint(0, 6)), chunks=chunks, seconds=float(seconds)))
        left -= chunks
    return jobs, [node("n0"), node("n1", speed=2.0 if unequal else 1.0)][: draw.randint(1, 2)]
