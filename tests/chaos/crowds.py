"""Many small jobs at once, for faults that need a pod on every node or workers that can be evicted."""

from typing import Any

from chaos.labs import SITES, Lab
from chaos.workloads import fault_job

GPUS = sum(nodes * gpus for nodes, gpus in SITES.values())
START_SECONDS = 12.0


def submit_crowd(lab: Lab, name: str, jobs: int, seconds: float, **spec: Any) -> None:
    """Submit jobs of one GPU that must succeed; other faults do not affect them."""
    for number in range(jobs):
        one = f"{name}-{number}"
        lab.fault_jobs.add(one)
        lab.submit(one, fault_job(one, seconds=seconds, high=False, **spec), "Succeeded")


def occupy(lab: Lab, name: str, seconds: float) -> None:
    """Occupy every GPU with a worker that may be evicted, and wait at most `START_SECONDS` until all of them run."""
    submit_crowd(lab, name, GPUS, seconds)
    lab.until(lambda: sum(one["status"]["phase"] == "Running" for one in lab.pods("worker")) >= GPUS, START_SECONDS)
