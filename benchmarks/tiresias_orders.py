"""Tiresias under each order within a queue, against the figures of its authors' simulator (data/traces/README.md).

``python benchmarks/tiresias_orders.py`` prints the average JCT in seconds and the gap; about a minute of CPU.
"""

import argparse
from typing import get_args

from job_logs import log_rows
from tranche.policies.queue.tiresias import Order
from tranche.simulation.cluster_spec import pool
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import gang_jobs

TARGETS = {
    "elasticflow_cluster06": (128, 38548.4),
    "elasticflow_cluster04": (512, 28179.2),
    "helios_venus_vcvGl": (160, 5717.9),
}


def average(trace: str, gpus: int, policy: str) -> float:
    """Return the average JCT in seconds."""
    cluster = pool(gpus)
    jobs = tuple(gang_jobs(log_rows(trace), cluster.nodes))
    return run(Scenario(jobs, cluster.nodes, cluster.sites, policy)).average_jct_seconds


def main() -> None:
    """Measure and print, as a table of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", nargs="+", choices=get_args(Order), default=get_args(Order), metavar="ORDER")
    parser.add_argument("--promote", type=float, default=0.0, help="PROMOTEKNOB; 0: never, as in the figures")
    options = parser.parse_args()
    logs = [f"{trace} @{gpus}" for trace, (gpus, _) in TARGETS.items()]
    print(f"| order within a queue | {' | '.join(f'{log} | gap' for log in logs)} |")
    print(f"|:--|{'--:|--:|' * len(logs)}")
    print(f"| *authors' simulator* | {' | '.join(f'{target:,.1f} | ' for _, target in TARGETS.values())} |", flush=True)
    for order in options.orders:
        policy = f"tiresias:order={order}:promote={options.promote}"
        cells = []
        for trace, (gpus, target) in TARGETS.items():
            measured = average(trace, gpus, policy)
            cells.append(f"{measured:,.1f} | {100 * (measured / target - 1):+.1f} %")
        print(f"| {order} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
