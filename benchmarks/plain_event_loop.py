"""Plain event loop for SRSF on gangs, the yardstick of `simulator_speed.py`: one policy, no planner and no placement.

``python benchmarks/plain_event_loop.py LOG GPUS`` prints the average JCT in seconds. The rules are those of the targets
in data/traces/README.md: at each event, jobs in order of remaining GPU seconds get their GPUs if enough are free, and
the others wait.
"""

import csv
import sys
from bisect import insort
from heapq import merge
from math import inf
from typing import NamedTuple

INSTANT = 1e-6
"""Remaining seconds below which a job has ended."""


class Job(NamedTuple):
    """A job; jobs compare by rank: the fields in this order, of which the number decides at the latest."""

    gpu_seconds: float
    submitted: float
    number: int
    gpus: int
    seconds: float


def average_jct(path: str, gpus: int) -> float:
    """Return the average JCT in seconds of the jobs of a log."""
    with open(path, newline="") as file:
        rows = [
            (float(row["submit_time"]), int(row["num_gpu"]), float(row["duration"])) for row in csv.DictReader(file)
        ]
    jobs = [Job(seconds * width, at, number, width, seconds) for number, (at, width, seconds) in enumerate(rows)]
    arrivals = sorted(jobs, key=lambda job: (job.submitted, job.number), reverse=True)
    waiting: list[Job] = []
    running: list[Job] = []
    times, now = [], 0.0
    while arrivals or running:
        end = now + min((job.seconds for job in running), default=inf)
        before, now = now, min(end, arrivals[-1].submitted if arrivals else inf)
        trained, training = now - before, []
        for work, submitted, number, width, seconds in running:
            if seconds - trained <= INSTANT:
                times.append(now - submitted)
            else:
                training.append(Job(work - trained * width, submitted, number, width, seconds - trained))
        while arrivals and arrivals[-1].submitted <= now:
            insort(waiting, arrivals.pop())
        free, running, behind = gpus, [], []
        for job in merge(sorted(training), waiting):
            if job.gpus <= free:
                free -= job.gpus
                running.append(job)
            else:
                behind.append(job)
        waiting = behind
    return sum(times) / len(times)


if __name__ == "__main__":
    print(f"{average_jct(sys.argv[1], int(sys.argv[2])):.1f}")
