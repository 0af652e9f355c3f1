"""Job completion times on a real control plane: the jobs on which other schedulers were measured, as gangs, live.

``python benchmarks/live_jct.py`` (``make bench-live``) takes about five minutes. 120 jobs of elasticflow_cluster06
(those of at most 16 GPUs, by submission, GPUs and duration, rows 1190 to 1309), all times divided by 2700, durations
clipped to 0.5 to 60 s, each a gang of one-GPU pods, on 8 simulated nodes of 4 GPUs, durations known. peer_jct.py runs
the same jobs under other schedulers.

A preempted gang resumes as one with a checkpoint volume does: each member's kubelet keeps the part of its run that it
had trained when its pod was deleted. The simulated figure is the production planner on the same jobs in virtual time,
with the delays of the control plane that this run measured. Exits with 1 if a bound of ranges.toml is broken.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from job_logs import log_path
from ranges import all_kept
from tranche.demo.cluster_snapshot import Snapshot
from tranche.demo.delay_measurement import Turnaround, turnarounds
from tranche.demo.local_stack import Stack, apply_manifests
from tranche.demo.submission import journal_of, outcome_of, replay
from tranche.demo.summary import Outcome, simulate_outcome
from tranche.simulation import TraceRow, read_trace
from tranche_testcluster import Cluster

LOG = "elasticflow_cluster06"
MAX_GPUS, FIRST_ROW, ROWS = 16, 1190, 120
DIVISOR, SHORTEST_SECONDS, LONGEST_SECONDS = 2700.0, 0.5, 60.0
NODES, GPUS = 8, 4
CHECKPOINT_SECONDS = 0.1
"""Time that a stopped member takes to save."""
CHECKPOINT_SHARE = 0.001
"""Granularity of a checkpoint: a batch is this part of a run."""
RESTART_SECONDS = 0.5
"""Declared cost of a start: about the time that the control plane needs on a machine of two cores."""
GRACE_SECONDS = 120.0
PRINT_SECONDS = 30.0
POLL_SECONDS = 5.0
"""Interval of polling, long because the benchmark shares two cores with the control plane."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Job of the workload."""

    name: str
    arrival_seconds: float
    members: int
    seconds: float

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Return the manifest that its user applies."""
        annotations = {
            "kwok.tranche.dev/batch-seconds": f"{self.seconds:.6f}",
            "kwok.tranche.dev/checkpoint-batches": f"{CHECKPOINT_SHARE:g}",
            "kwok.tranche.dev/checkpoint-seconds": f"{CHECKPOINT_SECONDS:g}",
        }
        requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
        resources = {"requests": requests, "limits": {"nvidia.com/gpu": "1"}}
        container = {"name": "train", "image": f"registry.example/{self.name}:1", "resources": resources}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
        }
        return {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "workers": {"maxReplicas": self.members, "template": template},
                "estimatedDuration": f"{1000 * self.seconds:.3f}ms",
                "preemption": {"restartOverhead": f"{1000 * RESTART_SECONDS:g}ms"},
            },
        }


def load(trace: Path, count: int) -> list[Gang]:
    """Return the first `count` jobs of the workload."""
    rows = [row for row in read_trace(trace).rows if row.gpus <= MAX_GPUS]
    chosen = sorted(rows, key=_order)[FIRST_ROW : FIRST_ROW + ROWS][:count]
    first = chosen[0].submit_seconds
    return [
        Gang(
            f"job-{row.job_id}",
            (row.submit_seconds - first) / DIVISOR,
            row.gpus,
            min(LONGEST_SECONDS, max(SHORTEST_SECONDS, row.duration_seconds / DIVISOR)),
        )
        for row in chosen
    ]


def _order(row: TraceRow) -> tuple[float, int, float]:
    return row.submit_seconds, row.gpus, row.duration_seconds


def measure(gangs: list[Gang], policy: str, seed: int, directory: Path | None) -> Outcome:
    """Run all jobs live."""
    work = sum(gang.members * gang.seconds for gang in gangs) / (NODES * GPUS)
    limit = gangs[-1].arrival_seconds + 3 * work + GRACE_SECONDS
    next_print = 0.0

    def show(seconds: float, snapshot: Snapshot) -> None:
        nonlocal next_print
        if seconds >= next_print:
            next_print = seconds + PRINT_SECONDS
            phases = ", ".join(f"{number} {phase}" for phase, number in sorted(snapshot.phases.items()))
            print(f"{seconds:6.0f} s, load {os.getloadavg()[0]:.1f}: {phases}", flush=True)

    with Cluster(directory) as cluster:
        apply_manifests(cluster)
        cluster.add_site("pool", nodes=NODES, gpus=GPUS)
        journal_of(cluster).unlink(missing_ok=True)
        options = ["--seed", str(seed), "--journal", str(journal_of(cluster))]
        with Stack(cluster, policy, scheduler_options=options) as ours:
            snapshot, submitted = replay(cluster, ours, gangs, limit, show, POLL_SECONDS)
            return outcome_of(cluster, snapshot, submitted, CHECKPOINT_SECONDS)


def report(outcome: Outcome, policy: str, seed: int) -> bool:
    """Print the measured beside the simulated figures; return True if all bounds are kept."""
    waits = turnarounds(outcome.timelines, {node.name: node.allocatable.gpus for node in outcome.nodes})
    print(f"\n{'':<44}{'average':>9}{'median':>9}{'p95':>9}{'preempted':>11}")
    preempted = sum(timeline.preemptions for timeline in outcome.timelines.values())
    live = _row(f"{policy}, live", outcome.jct_seconds, preempted)
    simulated = _simulated("with the measured delays", outcome, policy, seed)
    _simulated("without any", replace(outcome, delays=type(outcome.delays)(), report_seconds=0.0), policy, seed)
    _tell_turnarounds(waits)
    delays = outcome.delays
    print(
        f"delays: start {delays.start_seconds:.3f} s, notice {delays.notice_seconds:.3f} s, handover "
        f"{delays.handover_seconds:.3f} s, each other start or stop under way {delays.concurrency_seconds:.4f} s, "
        f"status {outcome.report_seconds:.3f} s"
    )
    again = median(wait.seconds for wait in waits)
    figures = {
        "live, average JCT, s": live,
        "live, GPUs in use again, median s": again,
        "live beside simulated, average JCT": abs(1 - live / simulated),
    }
    return all_kept(figures) and len(outcome.completed) == len(outcome.jobs)


def _simulated(variant: str, outcome: Outcome, policy: str, seed: int) -> float:
    jobs = simulate_outcome(outcome, policy, seed)[0].jobs
    times = [job.jct_seconds + outcome.report_seconds for job in jobs]
    return _row(f"{policy}, simulated {variant}", times, sum(job.preemptions for job in jobs))


def _row(name: str, times: list[float], preempted: int) -> float:
    cuts = quantiles(times, n=20, method="inclusive")
    print(f"{name:<44}{mean(times):8.1f}s{cuts[9]:8.1f}s{cuts[18]:8.1f}s{preempted:>11}")
    return mean(times)


def _tell_turnarounds(waits: list[Turnaround]) -> None:
    kinds = Counter(wait.handover for wait in waits)
    print(f"\nGPUs in use again: {kinds[False]} that became free, {kinds[True]} taken from preempted gangs; seconds")
    for name, values in (
        ("from a pod's end to training", [wait.seconds for wait in waits]),
        ("  until the plan names a successor", [wait.planning_seconds for wait in waits]),
        ("  from then (or the end) to training", [wait.starting_seconds for wait in waits]),
    ):
        cuts = quantiles(values, n=20, method="inclusive")
        print(f"{name:<44}median {cuts[9]:.3f}, p95 {cuts[18]:.3f}, most {max(values):.3f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="chunk")
    parser.add_argument("--seed", type=int, default=1, help="seed of the policy; the workload draws nothing")
    parser.add_argument(
        "--jobs", type=int, default=ROWS, help="number of jobs, from the first; the bounds apply to all of them"
    )
    parser.add_argument("--directory", type=Path, help="folder for logs and the journal, which is kept")
    options = parser.parse_args()
    gangs = load(log_path(LOG), options.jobs)
    members = sum(gang.members for gang in gangs)
    print(
        f"{len(gangs)} gangs of {members} pods on {NODES} nodes of {GPUS} GPUs, {options.policy}, seed {options.seed}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        outcome = measure(gangs, options.policy, options.seed, options.directory or Path(scratch))
    sys.exit(not report(outcome, options.policy, options.seed))


if __name__ == "__main__":
    main()
