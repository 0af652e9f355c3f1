"""Results of simulations, written by hand."""

from typing import Any

from tranche.simulation.analysis.summary import summarize
from tranche.simulation.engine.result import JobResult, Occupation, Sample, SimulationResult
from tranche.simulation_report import ReportRun


def job_result(key: str, submitted: float = 0.0, completed: float = 10.0, **changes: Any) -> JobResult:
    fields: dict[str, Any] = {
        "key": key,
        "submitted": submitted,
        "started": submitted,
        "completed": completed,
        "gpus": 1,
        "ideal_seconds": completed - submitted,
        "waiting_seconds": 0.0,
        "preemptions": 0,
        "starts": 1,
        "lost_gpu_seconds": 0.0,
        "attained_gpu_seconds": completed - submitted,
    }
    return JobResult(**{**fields, **changes})


def occupation(
    job: str, node: str, opened: float, ended: float, gpus: int = 1, outcome: str = "Succeeded"
) -> Occupation:
    return Occupation(job, "edge-a", node, gpus, opened, ended, outcome)


def full_result() -> SimulationResult:
    """Return three jobs of two sizes on two nodes, one preempted, one on a lost node, and one that never fits."""
    return SimulationResult(
        jobs=(
            job_result("default/small", 5.0, 15.0, tenant="a"),
            job_result("default/large", 0.0, 60.0, gpus=2, ideal_seconds=40.0, preemptions=1, starts=2),
            job_result("default/moved", 0.0, 80.0, ideal_seconds=50.0, starts=2, lost_gpu_seconds=20.0),
        ),
        unfinished={"default/giant": "needs 64 GPUs, the largest node has 4"},
        capacity_gpus=4,
        samples=(Sample(0.0, 3, 0), Sample(5.0, 2, 1), Sample(15.0, 3, 0), Sample(60.0, 1, 0)),
        occupations=(
            occupation("default/large", "node-1", 0.0, 5.0, 2, "Preempted"),
            occupation("default/small", "node-1", 5.0, 15.0),
            occupation("default/large", "node-1", 15.0, 60.0, 2),
            occupation("default/moved", "node-2", 0.0, 20.0, 1, "Lost"),
            occupation("default/moved", "node-1", 60.0, 80.0),
        ),
    )


def report_run(label: str = "srsf", result: SimulationResult | None = None, bound: float | None = 40.0) -> ReportRun:
    kept = full_result() if result is None else result
    return ReportRun(label, kept, summarize(kept), bound)
