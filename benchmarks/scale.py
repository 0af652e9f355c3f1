"""Rate at which a burst of jobs starts on a real control plane: bare pods, Kueue and tranche, one after the other.

``python benchmarks/scale.py`` (``make bench-scale``) takes about four minutes, after Kueue has been built once. For
each system, on a cluster of its own with simulated nodes: one job, which shows that the system is ready, a gang of 512
one-GPU pods, and, when it has ended, 1,600 one-GPU jobs that are submitted at once and all fit. The rate is the number
of jobs over the seconds from the first request until the last pod is Running, as one watch sees it. All processes of a
system, the control plane, the simulated kubelets and this benchmark share the machine, so the CPU seconds say where the
time goes. Bare pods show what the control plane needs for a start without a queue and without jobs.

Exits with 1 if a bound of ranges.toml is broken.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from peers.kueue import kueue
from peers.ours import tranche
from peers.pod_times import PODS, PodTimes, quantile, until
from peers.stock import bare_pods
from peers.system import System
from peers.usage import cpu_of, difference, requests_of
from ranges import all_kept
from tranche.kube.client.client import ApiClient
from tranche_testcluster import Cluster

JOBS, GANG, NODES, GPUS = 1600, 512, 200, 8
SUBMITTERS = 16
"""Requests of the benchmark at the same time."""
GANG_SECONDS, LONG_SECONDS = 30.0, 3600.0
LIMIT_SECONDS = 300.0
QUIET_SECONDS = 5.0
"""Pause before each measurement, for what the systems do after a start or an end."""
CALM_LOAD = 1.0
"""Load of the machine above which a result says little, because other processes used its cores."""


@dataclass(frozen=True)
class Burst:
    """Measurements of jobs that were submitted at once."""

    seconds: float
    """From the first request until the last pod was Running."""
    submitted_seconds: float
    """From the first request until the last was answered."""
    stages: dict[str, list[float]]
    """Seconds until each pod was created, bound and Running, each sorted."""
    cpu: dict[str, float]
    requests: dict[str, float]

    @property
    def starts(self) -> list[float]:
        """Seconds until each pod was Running, sorted."""
        return self.stages["Running"]


@dataclass
class Result:
    """Measurements of one system."""

    title: str
    load: float
    gang: Burst | None = None
    jobs: Burst | None = None
    notes: list[str] = field(default_factory=list)


async def burst(
    client: ApiClient,
    watch: PodTimes,
    objects: list[list[tuple[str, bytes]]],
    pods: int,
    usage: Callable[[], tuple[Mapping[str, float], Mapping[str, float]]],
) -> Burst:
    """Submit jobs, each a list of objects, and wait until this number of new pods is Running."""
    old_pods = set(watch.pods)
    pending = list(reversed(objects))
    cpu, requests = usage()

    async def submit() -> None:
        while pending:
            for path, body in pending.pop():
                await client.request("POST", path, body=body)

    before, begin = watch.started, time.monotonic()
    await asyncio.gather(*(submit() for _ in range(SUBMITTERS)))
    submitted = time.monotonic() - begin
    await until(watch, lambda: watch.started - before >= pods, LIMIT_SECONDS)
    cpu_after, requests_after = usage()
    new = [times for name, times in watch.pods.items() if name not in old_pods]
    stages = {
        "created": sorted(times.created - begin for times in new),
        "bound": sorted(times.bound - begin for times in new if times.bound is not None),
        "Running": sorted(times.running - begin for times in new if times.running is not None),
    }
    return Burst(
        stages["Running"][-1] if stages["Running"] else float("nan"),
        submitted,
        stages,
        difference(cpu, cpu_after),
        difference(requests, requests_after),
    )


async def drive(cluster: Cluster, system: System, processes: Mapping[str, int], options: argparse.Namespace) -> Result:
    """Measure a system that runs."""
    result = Result(system.title, os.getloadavg()[0])

    def usage() -> tuple[Mapping[str, float], Mapping[str, float]]:
        return cpu_of(cluster, processes), requests_of(cluster)

    def encoded(name: str, pods: int, seconds: float) -> list[tuple[str, bytes]]:
        return [(path, msgspec.json.encode(body)) for path, body in system.job(name, pods, seconds)]

    async with ApiClient.connect(str(cluster.kubeconfig)) as client:
        watch = PodTimes(client)
        following = asyncio.create_task(watch.run())
        try:
            await burst(client, watch, [encoded("warm-up", 1, 1.0)], 1, usage)
            await until(watch, lambda: watch.ended >= 1, LIMIT_SECONDS)
            await asyncio.sleep(QUIET_SECONDS)
            if options.gang:
                gang = encoded("gang", options.gang, GANG_SECONDS)
                result.gang = await burst(client, watch, [gang], options.gang, usage)
                if not await until(watch, lambda: watch.ended > options.gang, LIMIT_SECONDS):
                    result.notes.append("the gang did not end")
                if (path := system.job("gang", 1, 0.0)[-1][0]) != PODS:
                    await client.request("DELETE", f"{path}/gang")
                await client.request("DELETE", PODS)
                await until(watch, lambda: not watch.alive, LIMIT_SECONDS)
                await asyncio.sleep(QUIET_SECONDS)
            if options.jobs:
                jobs = [encoded(f"job-{number}", 1, LONG_SECONDS) for number in range(options.jobs)]
                result.jobs = await burst(client, watch, jobs, options.jobs, usage)
            await asyncio.sleep(options.linger)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return result


def measure(system: System, options: argparse.Namespace, directory: Path) -> Result:
    """Measure a system on a cluster of its own."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(directory / system.title.replace(" ", "-")))
        cluster.add_site("pool", nodes=options.nodes, gpus=options.gpus)
        processes = stack.enter_context(system.start(cluster, options.nodes * options.gpus))
        return asyncio.run(drive(cluster, system, processes, options))


def show(result: Result, options: argparse.Namespace) -> None:
    """Print the measurements of one system."""
    print(f"\n{result.title} (load before {result.load:.1f})", *result.notes, sep="\n")
    if result.gang is not None:
        _show_burst(f"gang of {options.gang}", result.gang, options.gang, 1)
    if result.jobs is not None:
        _show_burst(f"{options.jobs} jobs", result.jobs, options.jobs, options.jobs)


def _show_burst(title: str, measured: Burst, pods: int, jobs: int) -> None:
    started = len(measured.starts)
    per_second = started / measured.seconds
    print(f"  {title}: {started} of {pods} pods Running after {measured.seconds:.1f} s ({per_second:.1f}/s)")
    print(f"    submitted in {measured.submitted_seconds:.1f} s; seconds until the pods were")
    for stage, times in measured.stages.items():
        quantiles = ", ".join(f"{share:.0%} {quantile(times, share):.1f}" for share in (0, 0.5, 0.9, 0.99))
        print(f"      {stage:8} {quantiles}")
    total = sum(measured.cpu.values())
    per = f", {1000 * total / jobs:.1f} ms a job" if jobs > 1 else ""
    shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in measured.cpu.items())
    print(f"    CPU {total:.1f} s{per}: {shares}")
    requests = [f"{name} {count:.0f}" for name, count in measured.requests.items() if count >= 0.02 * pods]
    print(f"    {sum(measured.requests.values()):.0f} requests: {', '.join(requests)}")


def rate(result: Result) -> float:
    """Return jobs per second; 0.0 if not all started."""
    jobs = result.jobs
    return len(jobs.starts) / jobs.seconds if jobs is not None and jobs.starts else 0.0


def cpu(result: Result) -> float:
    """Return the CPU seconds of all processes while the jobs started."""
    assert result.jobs is not None
    return sum(result.jobs.cpu.values())


def main() -> None:
    """Measure and print."""
    systems: dict[str, Callable[[], System]] = {
        "pods": bare_pods,
        "kueue": lambda: kueue("BestEffortFIFO"),
        "tranche": tranche,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS, help="one-GPU jobs (%(default)s; 0: none)")
    parser.add_argument("--gang", type=int, default=GANG, help="members of the gang (%(default)s; 0: none)")
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes (%(default)s)")
    parser.add_argument("--gpus", type=int, default=GPUS, help="GPUs of each node (%(default)s)")
    parser.add_argument("--systems", nargs="+", choices=systems, default=list(systems))
    parser.add_argument("--linger", type=float, default=0.0, help="seconds to wait at the end, to look at the cluster")
    parser.add_argument("--directory", type=Path, help="folder for logs, which is kept")
    options = parser.parse_args()
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.systems:
            results[name] = measure(systems[name](), options, options.directory or Path(scratch))
            show(results[name], options)
    if max(result.load for result in results.values()) > CALM_LOAD:
        print(f"\nThe machine was busy (load above {CALM_LOAD:g}) before a measurement: compare CPU seconds only.")
    if (options.jobs, options.gang, len(results)) != (JOBS, GANG, len(systems)):
        return
    ours, theirs = results["tranche"], results["kueue"]
    assert ours.gang is not None
    figures = {
        "scale, seconds a job of 1,600 at once": 1 / max(rate(ours), 1e-9),
        "scale, rate of Kueue / rate of tranche": rate(theirs) / max(rate(ours), 1e-9),
        "scale, seconds until a gang of 512 runs": ours.gang.seconds,
        "scale, CPU time of a job of tranche / of a bare pod": cpu(ours) / cpu(results["pods"]),
    }
    sys.exit(not all_kept(figures))


if __name__ == "__main__":
    main()
