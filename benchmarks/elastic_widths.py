"""Elastic jobs that may use more GPUs than in the log, compared with gangs, both under SRSF.

``python benchmarks/elastic_widths.py`` prints average JCTs in seconds and ratios to them. A job is cut into a given
number of chunks per GPU, each on one GPU; "as logged" runs at most as many chunks at once as the log says GPUs, "all at
once" runs all of them. Speed grows linearly with the GPUs up to that number, which no log confirms.
"""

from collections.abc import Sequence
from dataclasses import replace

from job_logs import log_rows
from tranche.model import Job
from tranche.simulation.cluster_spec import pool
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.from_log import elastic_jobs, gang_jobs

LOGS = {"elasticflow_cluster01": 64, "elasticflow_cluster06": 128, "helios_venus_vcvGl": 160}
CHUNKS = (1, 2, 4)


def average(jobs: Sequence[Job], gpus: int) -> float:
    """Return the average JCT in seconds."""
    cluster = pool(gpus)
    return run(Scenario(tuple(jobs), cluster.nodes, cluster.sites, "srsf")).average_jct_seconds


def main() -> None:
    """Measure and print a Markdown table."""
    print("| log | gang | workers at once | " + " | ".join(f"{n} chunks a GPU" for n in CHUNKS) + " |")
    print("|:--|--:|:--|" + "--:|" * len(CHUNKS))
    for log, gpus in LOGS.items():
        rows = log_rows(log)
        gang = average(gang_jobs(rows, pool(gpus).nodes), gpus)
        for name, spread in (("as logged", False), ("all at once", True)):
            cells = []
            for chunks in CHUNKS:
                jobs = elastic_jobs(rows, chunks)
                jobs = [replace(job, max_workers=job.chunks) for job in jobs] if spread else jobs
                cells.append(f"× {average(jobs, gpus) / gang:.3f}")
            print(f"| {log} @{gpus} | {gang:,.1f} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
