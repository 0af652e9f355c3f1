"""Many small jobs at once, for faults that need pods on every node, or workers that could be evicted."""

from typing import Any

from chaos.labs import SITES, Lab
from chaos.workloads import eager

GPUS = sum(nodes * gpus for nodes, gpus in SITES.values())
START_SECONDS = 12.0


def submit_crowd(lab: Lab, name: str, jobs: int, seconds: float, **spec: Any) -> None:
    """Submit jobs of one GPU, which other faults leave alone and which have to succeed."""
    for number in range(jobs):
        one = f"{name}-{number}"
        lab.apart.add(one)
        lab.submit(one, eager(one, seconds=seconds, high=False, **spec), "Succeeded")


def occupy(lab: Lab, name: str, seconds: float) -> None:
    """Have a worker that may be evicted on every GPU, for as long as a job takes; wait a while until they run."""
    submit_crowd(lab, name, GPUS, seconds)
    lab.until(lambda: sum(one["status"]["phase"] == "Running" for one in lab.pods("worker")) >= GPUS, START_SECONDS)
