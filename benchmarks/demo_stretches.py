"""Gain of the demo's policy over FIFO on other parts of the same log, simulated with the production planner.

The demo shows one part of 40 jobs; this shows the result for other parts. It reads data/traces.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median

from job_logs import log_path
from tranche.demo import workload
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job
from tranche.model import Link, Node, Resources, Site
from tranche.policies import get_policy
from tranche.simulation import SimulationResult, TraceRow, read_trace, simulate

JOBS, SPAN_SECONDS, START_SECONDS = 40, 75.0, 0.4
SITES = [*(site for site in workload.SITES if not site.unlimited), workload.DemoSite("cloud", "Cloud", 2, 4)]
"""Sites with a limited cloud of eight GPUs in place of the demo's, so that jobs queue."""


def run(rows: list[TraceRow], policy: str, seed: int) -> SimulationResult:
    first = rows[0].submit_seconds
    compression = workload.Compression(divisor=(rows[-1].submit_seconds - first) / SPAN_SECONDS)
    jobs = []
    for row in rows:
        shifted = TraceRow(row.job_id, row.submit_seconds - first, row.gpus, row.duration_seconds)
        drawn = workload.draw(shifted, seed, compression, gangs=False)
        body = drawn.manifest("demo")
        job = to_job(TrainingJob.model_validate(body))
        jobs.append(replace(job, uid=drawn.name, submitted=drawn.arrival_seconds))
    names = [site.name for site in SITES]
    sites = [Site(name, links={o: Link(500e6, 0.02) for o in names if o != name}) for name in names]
    nodes = [
        Node(f"{site.name}-{i}", site.name, Resources(32_000, 128 * 2**30, site.gpus, 110))
        for site in SITES
        for i in range(site.nodes)
    ]
    return simulate(jobs, nodes, sites, get_policy(policy), restart_seconds=START_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=log_path("elasticflow_cluster06"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = list(read_trace(options.trace).rows)
    ratios = []
    print(f"average JCT in seconds, {JOBS} jobs each, seed {options.seed}\nfirst row   fifo  chunk-faithful  ratio")
    for first in range(0, len(rows) - JOBS, 50):
        part = rows[first : first + JOBS]
        fifo, ours = (run(part, name, options.seed).average_jct_seconds for name in ("fifo", "chunk-faithful"))
        ratios.append(ours / fifo)
        print(f"{first:9d} {fifo:6.1f} {ours:15.1f} {ours / fifo:6.2f}", flush=True)
    print(f"ratio: median {median(ratios):.2f}, least {min(ratios):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
