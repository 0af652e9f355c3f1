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

from builders import job, node
from tranche.model import Job, Node
from tranche.policies import get_policy
from tranche.simulation import SimulationResult, simulate


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
    """Bounds of OPT_LP⁺ from below and above, in seconds, from time slots of one second.

    Charging a slot by its start is too little; charging it by its middle is exact for a y that is constant in each
    slot. Chunks of one job are alike, and so are workers of one speed, so each kind has one variable a slot.

    Args:
        jobs: With whole seconds of submission.
        nodes: Of one worker each.
        processing: With the term "+ 1"; else the fractional flow alone.
    """
    kinds = sorted(Counter(host.speed for host in nodes).items())
    lengths = [one.batches_per_chunk_total * one.step_seconds for one in jobs]
    begin = int(min(one.submitted for one in jobs))
    work = sum(one.chunks * length for one, length in zip(jobs, lengths, strict=True))
    slots = int(max(one.submitted for one in jobs) + work / kinds[0][0]) + 1
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    capacity: dict[tuple[float, int], list[int]] = {(speed, t): [] for speed, _ in kinds for t in range(begin, slots)}
    columns = 0
    for one, length in zip(jobs, lengths, strict=True):
        first, shares = columns, []
        for speed, count in kinds:
            for t in range(int(one.submitted), slots):
                solver.addVar(0.0, float(count))
                seconds = (t - one.submitted) * speed / length + processing
                solver.changeColCost(columns, seconds / one.chunks)
                capacity[speed, t].append(columns)
                shares.append(speed / length)
                columns += 1
        used = np.arange(first, columns, dtype=np.int32)
        solver.addRow(float(one.chunks), highspy.kHighsInf, len(used), used, np.array(shares))
    for (speed, _), sharing in capacity.items():
        most = float(dict(kinds)[speed])
        solver.addRow(-highspy.kHighsInf, most, len(sharing), np.array(sharing, dtype=np.int32), np.ones(len(sharing)))
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ValueError("the linear program was not solved")
    least = float(solver.getObjectiveValue())
    return least, least + len(jobs) / 2


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
    """An instance for the exhaustive search: two or three chunks, two workers."""
    total = draw.randint(2, 3)
    sizes = draw.choice([[1] * total, [total], [1, total - 1]])
    slow = draw.random() < 0.5
    jobs = [
        job(
            f"j{i}",
            float(draw.randint(0, 6)),
            chunks=size,
            seconds=float(draw.choice([2, 4]) if slow else draw.randint(1, 4)),
        )
        for i, size in enumerate(sizes)
    ]
    return jobs, [node("n0"), node("n1", speed=2.0 if slow else 1.0)]
