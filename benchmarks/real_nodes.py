"""Delays and completion times on real kubelets, beside simulated nodes and beside the simulator: ten gangs on each.

``python benchmarks/real_nodes.py`` takes about five minutes and needs Linux, root and Debian, as ``make e2e`` does. A
third run has simulated nodes whose pods start and end with the delays of the real ones, by their annotations. The
gangs have 1 or 2 members of one GPU each, on two nodes of two GPUs; arrivals and durations are drawn. The planner, the
extender and the operator are processes, and every member is a container (or a pod that kwok plays): it sleeps for its
duration, and after SIGTERM it saves for 0.1 s what it has done. The simulated figures are the production planner on the
same jobs in virtual time, with the delays that the run above them measured.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from tranche.demo.cluster_snapshot import Snapshot
from tranche.demo.job_timeline import JobTimeline
from tranche.demo.local_stack import Stack, apply_manifests
from tranche.demo.submission import journal_of, outcome_of, replay
from tranche.demo.summary import Outcome, simulate_outcome
from tranche.simulation.engine.control_plane_delays import Delays
from tranche_testcluster import Cluster
from tranche_testcluster.annotations import RELEASE_SECONDS, START_SECONDS
from tranche_testcluster.node import cluster_dns, unavailable

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "worker" / "examples")]

from support import product_images  # noqa: E402 - the nodes of the tests
from support.real_lab import WORKER_IMAGE, real_lab  # noqa: E402

GANGS, NODES, GPUS = 10, 2, 2
SPREAD_SECONDS, SHORTEST_SECONDS, LONGEST_SECONDS = 30.0, 2.0, 20.0
SAVE_SECONDS = 0.1
LIMIT_SECONDS = 300.0
LIMIT_SHARE = 0.05
"""Most by which the median JCT on kubelets may differ from that of the simulation and of kwok, both with its delays."""
PROGRAM = f"""
import signal, sys, time
begin, done, file = time.monotonic(), 0.0, None
def save(*_):
    trained = done + time.monotonic() - begin
    time.sleep({SAVE_SECONDS})
    if file:
        file.write_text(str(trained))
    sys.exit(143)
signal.signal(signal.SIGTERM, save)  # first, since the first process of a container ignores signals without a handler
from tranche_worker import assignment
mine, seconds = assignment(), float(sys.argv[1])
file = mine.checkpoint_directory / f"member-{{mine.index}}"
done = float(file.read_text()) if file.exists() else 0.0
time.sleep(max(0.0, seconds - done - (time.monotonic() - begin)))
"""


@dataclass(frozen=True, slots=True)
class Gang:
    """Job of the workload."""

    name: str
    arrival_seconds: float
    members: int
    seconds: float
    checkpoints: Path
    delays: Mapping[str, float] = field(default_factory=dict)
    """Annotations of the simulated nodes: seconds by name."""

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Return the manifest that its user applies."""
        annotations = {
            "kwok.tranche.dev/batch-seconds": f"{self.seconds:.6f}",
            "kwok.tranche.dev/checkpoint-batches": "0.001",
            "kwok.tranche.dev/checkpoint-seconds": f"{SAVE_SECONDS:g}",
            **{name: f"{seconds:.3f}" for name, seconds in self.delays.items()},
        }
        requests = {"cpu": "50m", "memory": "64Mi", "nvidia.com/gpu": "1"}
        container = {
            "name": "train",
            "image": WORKER_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["python", "-c", PROGRAM, f"{self.seconds:g}"],
            "resources": {"requests": requests, "limits": {"nvidia.com/gpu": "1"}},
        }
        template = {
            "metadata": {"annotations": annotations},
            # The trainer is not the first process then, so that SIGTERM ends it before it has a handler, too.
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, "shareProcessNamespace": True},
        }
        volume = {"hostPath": {"path": str(self.checkpoints), "type": "Directory"}}
        return {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "workers": {"maxReplicas": self.members, "template": template},
                "estimatedDuration": f"{1000 * self.seconds:.3f}ms",
                "checkpoint": {"volume": volume, "scope": "Cluster"},
            },
        }


def draw(seed: int, checkpoints: Path, delays: Mapping[str, float]) -> list[Gang]:
    """Return the workload, in order of arrival."""
    rng = random.Random(seed)
    arrivals = sorted(rng.uniform(0.0, SPREAD_SECONDS) for _ in range(GANGS))
    return [
        Gang(
            f"gang-{number}",
            arrival,
            rng.randint(1, 2),
            round(rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS), 3),
            checkpoints,
            delays,
        )
        for number, arrival in enumerate(arrivals)
    ]


def measure(cluster: Cluster, gangs: list[Gang], policy: str) -> Outcome:
    """Run all jobs on a cluster with nodes."""
    apply_manifests(cluster)

    def show(_seconds: float, _snapshot: Snapshot) -> None:
        """Print nothing: the machine has two cores."""

    options = ["--seed", "1", "--journal", str(journal_of(cluster))]
    with Stack(cluster, policy, scheduler_options=options) as ours:
        snapshot, submitted = replay(cluster, ours, gangs, LIMIT_SECONDS, show)
        training_seconds = {f"default/{gang.name}": gang.seconds for gang in gangs}
        return outcome_of(cluster, snapshot, submitted, SAVE_SECONDS, training_seconds=training_seconds)


@contextmanager
def simulated_nodes() -> Iterator[Cluster]:
    """Start a cluster whose nodes kwok simulates."""
    with Cluster() as cluster:
        cluster.add_site("edge", nodes=NODES, gpus=GPUS, cpu="2", memory="16Gi")
        yield cluster


@contextmanager
def real_nodes() -> Iterator[Cluster]:
    """Start a cluster with real nodes."""
    images = [cluster_dns.archive(), product_images.archive("worker")]
    with real_lab(
        {f"edge-{number}": {"site": "edge", "gpus": GPUS, "images": images} for number in range(NODES)}
    ) as lab:
        yield lab.cluster


def later(real: Delays, simulated: Delays) -> dict[str, float]:
    """Return by how much the pods of real nodes start and end later, as annotations of simulated nodes."""
    return {
        START_SECONDS: max(0.0, real.start_seconds - simulated.start_seconds),
        RELEASE_SECONDS: max(0.0, real.release_seconds - simulated.release_seconds),
    }


def print_windows(timelines: Mapping[str, JobTimeline]) -> None:
    """Print each window of a run: when it was opened, when its worker trained and ended, and how."""
    first = min(timeline.submitted for timeline in timelines.values())
    for key, timeline in timelines.items():
        print(f"{key}, submitted {timeline.submitted - first:.2f}")
        for worker in timeline.workers.values():
            moments = (worker.opened, worker.started, worker.ended)
            times = "".join(f"{'-' if at is None else f'{at - first:.2f}':>9}" for at in moments)
            print(f"  {worker.node:<10}{times}  {worker.outcome}")


def report(name: str, outcome: Outcome, policy: str, *, windows: bool) -> float:
    """Print delays and completion times of a run, measured and simulated; return the simulated median."""
    result, timelines = simulate_outcome(outcome, policy, 1)
    simulated = [job.jct_seconds + outcome.report_seconds for job in result.jobs]
    if windows:
        print(f"{name}: measured")
        print_windows(outcome.timelines)
        print(f"{name}: simulated with these delays")
        print_windows(timelines)
    delays, times = outcome.delays, outcome.jct_seconds
    cells = [
        f"{delays.start_seconds:.2f}",
        f"{delays.notice_seconds:.2f}",
        f"{delays.release_seconds:.2f}",
        f"{delays.handover_seconds:.2f}",
        f"{outcome.report_seconds:.2f}",
        str(outcome.preemptions),
        *(f"{value:.1f}" for value in (mean(times), median(times), mean(simulated), median(simulated))),
    ]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return median(simulated)


def main() -> int:
    """Measure, print, and compare the medians with the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="chunk")
    parser.add_argument("--seed", type=int, default=1, help="seed of arrivals, members and durations")
    parser.add_argument("--windows", action="store_true", help="print the windows of all jobs too")
    options = parser.parse_args()
    if reason := unavailable():
        print(f"skipped: {reason}")
        return 0
    head = f"{GANGS} gangs, {options.policy}, seed {options.seed}; seconds on"
    columns = (
        "start",
        "notice",
        "release",
        "handover",
        "status",
        "preemptions",
        "average JCT",
        "median",
        "simulated average",
        "median",
    )
    print(f"| {head} | {' | '.join(columns)} |\n| :-- |{' --: |' * len(columns)}")
    outcomes: dict[str, Outcome] = {}

    def run(name: str, nodes: Callable[[], AbstractContextManager[Cluster]], delays: Mapping[str, float]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)
            gangs = draw(options.seed, Path(folder), delays)
            with nodes() as cluster:
                outcomes[name] = measure(cluster, gangs, options.policy)
        return report(name, outcomes[name], options.policy, windows=options.windows)

    run("kwok", simulated_nodes, {})
    simulated = run("kubelet", real_nodes, {})
    extra = later(outcomes["kubelet"].delays, outcomes["kwok"].delays)
    run("kwok with delays", simulated_nodes, extra)
    real = median(outcomes["kubelet"].jct_seconds)
    ratios = {name: real / median(outcomes[name].jct_seconds) for name in ("kwok", "kwok with delays")}
    comparison = ", ".join(f"{ratio:.3f} of that on {name}" for name, ratio in ratios.items())
    annotated = ", ".join(f"{name.rpartition('/')[2]} {seconds:.2f}" for name, seconds in extra.items())
    print(f"\nMedian JCT on kubelets: {comparison} ({annotated}).")
    return int(max(abs(real / simulated - 1.0), abs(ratios["kwok with delays"] - 1.0)) > LIMIT_SHARE)


if __name__ == "__main__":
    sys.exit(main())
