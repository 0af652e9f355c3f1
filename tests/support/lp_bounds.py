"""Lower bound on the average JCT by a time-indexed linear program, to compare with the bounds of the product."""

from collections.abc import Sequence
from math import inf, nan

import highspy
import numpy as np

from tranche.model import Job, Node
from tranche.simulation.analysis.lower_bound import relax
from tranche.simulation.analysis.relaxation import Floats, Pool


class BoundError(RuntimeError):
    """The program cannot be stated for this instance, or has no optimum."""


def lp_bound_seconds(jobs: Sequence[Job], nodes: Sequence[Node], *, cells: int = 200) -> float:
    """Lower bound on the average JCT by a time-indexed linear program, in seconds; NaN without jobs.

    Unlike `fluid_srpt_seconds` it keeps the limit c_j at all times: least Σ C_j over the rates that
    `tranche.simulation.analysis.lower_bound` describes, under its inequalities (1) and (2).
    Time is cut into cells, and work within a cell counts as done at its begin, which is early, so the
    bound is valid for every number of cells and rises towards the program's own optimum as they become finer (it lacks
    about one cell's length). Jobs × cells variables: for instances of at most some hundred jobs.

    Args:
        jobs: Those whose average is to be bounded; all must use GPUs.
        nodes: The cluster; no unlimited sites.
        cells: Into how many cells of equal length the time until everything surely is done is cut.

    Raises:
        BoundError: A job uses no GPU, the cluster has none, or HiGHS finds no optimum.
    """
    if not jobs:
        return nan
    pool, _ = relax(jobs, nodes, unlimited=False)
    if pool.capacity == inf or len(pool.work) < len(jobs):
        raise BoundError("the LP bound is for clusters with GPUs and jobs that use them")
    horizon = float(pool.release.max() + pool.work.sum() / pool.capacity + pool.ideal.max())
    edges = np.linspace(0.0, horizon, cells + 1)
    return (_solve(pool, edges) - float(pool.release.sum())) / len(jobs)


def _solve(pool: Pool, edges: Floats) -> float:
    """Least Σ C_j of the time-indexed program."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    begins = np.maximum(edges[:-1][None, :], pool.release[:, None])
    spans = np.maximum(edges[1:][None, :] - begins, 0.0)
    count, cells = spans.shape
    rates = pool.work / pool.ideal
    # Variables: the share of job j's work in cell k (j·cells + k), then C_j.
    limits = np.minimum(rates[:, None] * spans / pool.work[:, None], 1.0)
    solver.addVars(count * cells, np.zeros(count * cells), limits.ravel())
    earliest = pool.release + pool.ideal
    solver.addVars(count, earliest, np.full(count, highspy.kHighsInf))
    for job in range(count):
        solver.changeColCost(count * cells + job, 1.0)
        columns = np.arange(job * cells, (job + 1) * cells, dtype=np.int32)
        solver.addRow(1.0, 1.0, cells, columns, np.ones(cells))
        busy = np.append(columns, np.int32(count * cells + job))
        solver.addRow(float(pool.ideal[job]) / 2, highspy.kHighsInf, cells + 1, busy, np.append(-begins[job], 1.0))
    for cell in range(cells):
        columns = np.arange(cell, count * cells, cells, dtype=np.int32)
        room = pool.capacity * float(edges[cell + 1] - edges[cell])
        solver.addRow(-highspy.kHighsInf, room, count, columns, pool.work)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise BoundError(f"HiGHS ended with {solver.modelStatusToString(solver.getModelStatus())}")
    return float(solver.getInfo().objective_function_value)
