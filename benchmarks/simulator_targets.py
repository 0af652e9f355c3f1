"""Simulator against the exact targets of data/traces/README.md: average JCT, CPU, memory and speed of each run.

``python benchmarks/simulator_targets.py`` runs six logs under four policies, each in a process of its own (about three
minutes of CPU), and exits with 1 if a printed digit differs or a bound of ranges.toml is broken. Take some with
``--traces helios_venus_vcvGl philly`` and ``--policies srsf``.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import ranges
from job_logs import log_path

POLICIES = ("fifo", "fifo-skip", "srtf", "srsf")
TARGETS = {
    "elasticflow_cluster01": (64, (144176.1, 95128.6, 22594.0, 22159.1)),
    "elasticflow_cluster02": (128, (174038.2, 49377.1, 24894.0, 24672.4)),
    "elasticflow_cluster04": (512, (148315.7, 61248.8, 23730.2, 22438.9)),
    "elasticflow_cluster06": (128, (81210.8, 42455.1, 29500.9, 29251.9)),
    "helios_venus_vcvGl": (160, (18489.5, 4826.4, 4722.9, 4722.8)),
    "philly": (512, (488906.4, 131175.6, 17375.4, 15358.9)),
}
"""GPUs, and the average JCT in seconds under each of `POLICIES` (README of the traces)."""


def measure(trace: str, policy: str) -> dict[str, Any]:
    """Simulate once in this process: average JCT, CPU seconds (reading included, imports not), MiB and decisions."""
    from tranche.simulation.cluster_spec import pool
    from tranche.simulation.job_log import read_trace
    from tranche.simulation.scenario import Scenario, run
    from tranche.simulation.workload.from_log import gang_jobs

    began = time.process_time()
    cluster = pool(TARGETS[trace][0])
    jobs = tuple(gang_jobs(read_trace(log_path(trace)).rows, cluster.nodes))
    result = run(Scenario(jobs, cluster.nodes, cluster.sites, policy))
    return {
        "average": result.average_jct_seconds,
        "unfinished": len(result.unfinished),
        "jobs": len(result.jobs),
        "cpu": time.process_time() - began,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "events": result.events,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="NAME")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--one", action="store_true", help="print one run as JSON, without a process of its own")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.traces[0], options.policies[0])))
        return
    differing = False
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'log @ GPUs':<27}{'policy':<11}{'target':>10}{'ours':>10}{'CPU s':>8}{'MiB':>6}{'decisions/s':>13}")
    for trace in options.traces:
        gpus, targets = TARGETS[trace]
        for policy in options.policies:
            words = [sys.executable, __file__, "--one", "--traces", trace, "--policies", policy]
            result = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
            runs[trace, policy] = result
            target = targets[POLICIES.index(policy)]
            wrong = round(result["average"], 1) != target or result["unfinished"] > 0
            differing |= wrong
            print(
                f"{f'{trace} @{gpus}':<27}{policy:<11}{target:>10.1f}{result['average']:>10.1f}{result['cpu']:>8.2f}"
                f"{result['mib']:>6.0f}{result['events'] / result['cpu']:>13,.0f}{'  DIFFERS' if wrong else ''}",
                flush=True,
            )
    figures = {
        f"CPU s, {trace} srsf": runs[trace, policy]["cpu"] for trace, policy in BOUNDED if (trace, policy) in runs
    }
    figures["MiB, any trace"] = max(result["mib"] for result in runs.values())
    kept = ranges.all_kept(figures)
    sys.exit(differing or not kept)


BOUNDED = (("elasticflow_cluster04", "srsf"), ("philly", "srsf"))

if __name__ == "__main__":
    main()
