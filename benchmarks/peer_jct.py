"""Job completion times of one workload under other schedulers and under tranche, one after the other on this machine.

``python benchmarks/peer_jct.py`` (``make bench-peers``) takes about half an hour, after Kueue and scheduler-plugins
have been built once. The jobs are those of live_jct.py: 120 gangs of one-GPU pods on 8 simulated nodes of 4 GPUs. Under
the others, each gang is an Indexed batch/v1 Job, submitted at its time on a fresh cluster; it is complete when its last
pod has ended, as one watch sees it. tranche's figure is that of live_jct.py, which reads the completion times from the
statuses. The settings are in ``benchmarks/peers``; corrections are welcome.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import live_jct
from job_logs import log_path
from peers.coscheduling import coscheduling
from peers.kueue import kueue
from peers.pod_times import PodTimes, quantile, until
from peers.stock import default_scheduler
from peers.system import Objects, System
from tranche import __version__
from tranche.kube.client.client import ApiClient
from tranche_testcluster import Cluster

WARM_UP_SECONDS, LIMIT_SECONDS = 60.0, 480.0
PAUSE_SECONDS = 2.0
OURS = "tranche"
SYSTEMS = {
    "default": default_scheduler,
    "kueue-strict": lambda: kueue("StrictFIFO"),
    "kueue-best-effort": lambda: kueue("BestEffortFIFO"),
    "coscheduling": coscheduling,
}


@dataclass(frozen=True)
class Row:
    """Completion times under one system."""

    title: str
    settings: str
    jct_seconds: list[float]
    unfinished: int

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        figures = [fmean(self.jct_seconds), *(quantile(self.jct_seconds, share) for share in (0.5, 0.99))]
        return self.title, *(f"{value:.1f}" for value in figures), str(self.unfinished), self.settings


HEAD = ("system", "average JCT, s", "median", "p99", "unfinished", "settings")


async def drive(cluster: Cluster, system: System, gangs: list[live_jct.Gang]) -> Row:
    """Submit all gangs at their times and wait until their pods have ended."""
    async with ApiClient.connect(str(cluster.kubeconfig)) as client:
        watch = PodTimes(client)
        following = asyncio.create_task(watch.run())
        try:
            await _submit(client, system.job("warm-up", 4, 0.5))
            if not await until(watch, lambda: watch.ended >= 4, WARM_UP_SECONDS):
                raise SystemExit(f"{system.title}: the first job did not run; see {cluster.directory / 'logs'}")
            await asyncio.sleep(PAUSE_SECONDS)
            begin = time.monotonic()
            pods = 4 + sum(gang.members for gang in gangs)
            await asyncio.gather(*(_submit_at(client, begin, gang, system) for gang in gangs))
            await until(watch, lambda: watch.ended >= pods, LIMIT_SECONDS)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    ends = _ends(watch, begin, gangs)
    jct = [ends[gang.name] - gang.arrival_seconds for gang in gangs if gang.name in ends]
    return Row(system.title, system.settings, jct, len(gangs) - len(ends))


async def _submit(client: ApiClient, objects: Objects) -> None:
    for path, body in objects:
        await client.request("POST", path, body=body)


async def _submit_at(client: ApiClient, begin: float, gang: live_jct.Gang, system: System) -> None:
    await asyncio.sleep(max(0.0, begin + gang.arrival_seconds - time.monotonic()))
    await _submit(client, system.job(gang.name, gang.members, gang.seconds))


def _ends(watch: PodTimes, begin: float, gangs: list[live_jct.Gang]) -> Mapping[str, float]:
    """Return the end of each gang all of whose pods succeeded, in seconds after the start."""
    ends: dict[str, list[float]] = {}
    for pod in watch.pods.values():
        if pod.ended is not None and not pod.failed:
            ends.setdefault(pod.job, []).append(pod.ended - begin)
    return {gang.name: max(ends[gang.name]) for gang in gangs if len(ends.get(gang.name, ())) == gang.members}


def measure(system: System, gangs: list[live_jct.Gang], directory: Path) -> Row:
    """Measure a system on a cluster of its own."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(directory))
        cluster.add_site("pool", nodes=live_jct.NODES, gpus=live_jct.GPUS)
        stack.enter_context(system.start(cluster, live_jct.NODES * live_jct.GPUS))
        return asyncio.run(drive(cluster, system, gangs))


def measure_ours(gangs: list[live_jct.Gang], directory: Path) -> Row:
    """Measure tranche."""
    outcome = live_jct.measure(gangs, "chunk", 1, directory)
    settings = "TrainingJobs, defaults, durations declared, preemption from checkpoints"
    return Row(f"tranche {__version__}", settings, list(outcome.jct_seconds), len(gangs) - len(outcome.completed))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS, OURS], default=[*SYSTEMS, OURS])
    parser.add_argument("--jobs", type=int, default=live_jct.ROWS, help="number of gangs, from the first")
    parser.add_argument("--directory", type=Path, help="folder for logs, which is kept")
    options = parser.parse_args()
    gangs = live_jct.load(log_path(live_jct.LOG), options.jobs)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.systems:
            folder = (options.directory or Path(scratch)) / name
            row = measure_ours(gangs, folder) if name == OURS else measure(SYSTEMS[name](), gangs, folder)
            print(" ".join(row.cells()), file=sys.stderr, flush=True)
            rows.append(row)
    for cells in (HEAD, (":--", "--:", "--:", "--:", "--:", ":--"), *(row.cells() for row in rows)):
        print(f"| {' | '.join(cells)} |")
    sys.exit(any(row.unfinished for row in rows))


if __name__ == "__main__":
    main()
