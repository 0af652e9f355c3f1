"""CPU time, memory, API requests and etcd bytes that tranche needs, by number of nodes, jobs and chunks.

``python benchmarks/sizing.py --sizes 10:10:4 100:100:20`` starts, for each size NODES:JOBS:CHUNKS, a control plane of
its own with simulated nodes of 8 GPUs and tranche as local processes, creates all jobs at once, each with this number
of chunks, and waits until all have succeeded. It prints, for each size:

* the seconds from the first creation to the last success;
* for each process of tranche and of the control plane, the CPU seconds in that time, and the largest resident memory
  since its start (VmHWM);
* the requests that the API server answered in that time, of all clients, by verb, without watches;
* the bytes of a TrainingJob in etcd: of the largest one at any look, and on average after the end.

The control plane collects garbage as in a cluster (GOGC=100), unlike that of the tests. All processes share the
machine, and the simulated kubelets send no reports, so the figures are for planning and not for a comparison of
machines. The output is a table in Markdown, or with ``--json`` JSON.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from peers.ours import JOBS, tranche
from peers.system import create
from peers.usage import cpu_of, descendants, difference, peak_bytes, requests_of
from tranche_testcluster import Cluster
from tranche_testcluster.annotations import BATCH_SECONDS
from tranche_testcluster.site import GPU

GPUS = 8
"""GPUs of a node."""
DEFAULT_SIZES = ("10:10:4", "100:100:20", "100:1000:20", "1000:100:200")
BATCHES, BATCH = 10, 0.5
"""Mini-batches of a chunk, and the seconds of one: long enough that several windows are open at a look."""
WORKERS = 20
"""Most workers of a job."""
LOOK_SECONDS = 2.0
LIMIT_SECONDS = 3600.0
CALM_LOAD = 1.0
"""Load of the machine above which a result says little, because other processes used its cores."""
PARTS = ("planner", "extender", "api")
"""Commands of the processes that `tranche scheduler` starts."""


class SizingError(Exception):
    """A size cannot be measured; the message says why."""


@dataclass(frozen=True)
class Size:
    """Load of one measurement."""

    nodes: int
    jobs: int
    chunks: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read NODES:JOBS:CHUNKS.

        Raises:
            argparse.ArgumentTypeError: it is not three positive integers.
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise argparse.ArgumentTypeError(f"{text!r} is not NODES:JOBS:CHUNKS, such as 100:100:20")
        return cls(*map(int, parts))


@dataclass(frozen=True)
class Result:
    """Figures of one size."""

    size: Size
    load: float
    """Load of the machine before the measurement."""
    seconds: float
    cpu_seconds: dict[str, float]
    peak_bytes: dict[str, int]
    requests: dict[str, float]
    """Requests by verb."""
    largest_job_bytes: int
    ended_job_bytes: float


def training_job(number: int, size: Size) -> dict[str, Any]:
    """Return a TrainingJob with chunks, whose simulated workers train as declared."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi", GPU: "1"}, "limits": {GPU: "1"}}
    container = {"name": "train", "image": "registry.example/train:1", "resources": resources}
    return {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"job-{number}", "namespace": "default"},
        "spec": {
            "data": {"chunks": size.chunks, "batchesPerChunk": BATCHES},
            "model": {"stepTime": f"{1000 * BATCH:g}ms"},
            "runPolicy": {"cleanPodPolicy": "All"},
            "workers": {
                "maxReplicas": min(size.chunks, WORKERS),
                "template": {
                    "metadata": {"annotations": {BATCH_SECONDS: f"{BATCH:g}"}},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
                },
            },
        },
    }


def measure(size: Size, directory: Path) -> Result:
    """Measure one size on a cluster of its own.

    Raises:
        SizingError: not all jobs have succeeded in time.
    """
    load, system = os.getloadavg()[0], tranche()
    with Cluster(directory / "-".join(map(str, dataclasses.astuple(size)))) as cluster:
        cluster.add_site("pool", nodes=size.nodes, gpus=GPUS)
        with system.start(cluster, size.nodes * GPUS) as started:
            pids = named(started)
            cpu, requests, begin = cpu_of(cluster, pids), requests_of(cluster), time.monotonic()
            for number in range(size.jobs):
                create(cluster, JOBS, training_job(number, size))
            largest = until_succeeded(cluster, size, begin)
            seconds = time.monotonic() - begin
            used = difference(cpu, cpu_of(cluster, pids))
            verbs: Counter[str] = Counter()
            for request, count in difference(requests, requests_of(cluster)).items():
                verbs[request.partition(" ")[0]] += round(count)
            ended = cluster.stored_bytes("tranche.dev/trainingjobs")
            memory = {name: peak_bytes(pid) for name, pid in (pids | control_plane(cluster)).items()}
    used.pop("benchmark", None)
    return Result(
        size, load, seconds, used, memory, dict(verbs.most_common()), max(largest, *ended.values()),
        sum(ended.values()) / len(ended),
    )  # fmt: skip


def named(started: Mapping[str, int]) -> dict[str, int]:
    """Return the processes of tranche by name, with the three that the scheduler starts apart."""
    by_name = dict(started)
    for name, pid in started.items():
        for child, command in descendants(pid).items():
            part = next((word for word in command if word in PARTS), None)
            if part is not None:
                by_name[f"{name}: {part}"] = child
    return by_name


def control_plane(cluster: Cluster) -> dict[str, int]:
    """Return the processes whose memory depends on the load too."""
    return {name: cluster.pid(name) for name in ("etcd", "kube-apiserver")}


def until_succeeded(cluster: Cluster, size: Size, begin: float) -> int:
    """Wait until all jobs have succeeded; return the bytes of the largest one that was seen in etcd.

    Raises:
        SizingError: not all jobs have succeeded in time.
    """
    largest = 0
    while True:
        largest = max(largest, *cluster.stored_bytes("tranche.dev/trainingjobs").values())
        items = cluster.request("GET", JOBS)[1]["items"]
        phases = Counter(item.get("status", {}).get("phase", "Waiting") for item in items)
        if phases["Succeeded"] == size.jobs:
            return largest
        if phases["Failed"] or time.monotonic() - begin > LIMIT_SECONDS:
            raise SizingError(f"after {time.monotonic() - begin:.0f} s, the jobs are {dict(phases)}")
        time.sleep(LOOK_SECONDS)


def table(results: Sequence[Result]) -> str:
    """Return the figures as a table in Markdown, a row for each size."""
    processes = list(dict.fromkeys(name for result in results for name in result.peak_bytes))
    verbs = list(dict.fromkeys(verb for result in results for verb in result.requests))
    head = ["nodes", "jobs", "chunks", "s", *(f"{name}, CPU s; MiB" for name in processes), *verbs]
    rows = [[*head, "largest job, bytes", "ended job, bytes"]]
    rows.append(["--:"] * len(rows[0]))
    for result in results:
        used = [f"{result.cpu_seconds.get(name, 0.0):.1f}; {result.peak_bytes[name] / 2**20:.0f}" for name in processes]
        requests = [f"{result.requests.get(verb, 0):,.0f}" for verb in verbs]
        sizes = [f"{result.largest_job_bytes:,}", f"{result.ended_job_bytes:,.0f}"]
        rows.append([*map(str, dataclasses.astuple(result.size)), f"{result.seconds:.1f}", *used, *requests, *sizes])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [Size.parse(text) for text in DEFAULT_SIZES]
    parser.add_argument("--sizes", nargs="+", type=Size.parse, default=sizes, metavar="NODES:JOBS:CHUNKS")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    os.environ.setdefault("GOGC", "100")
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            try:
                results.append(measure(size, Path(scratch)))
            except SizingError as error:
                sys.exit(f"{size}: {error}")
            print(f"{size}: {results[-1].seconds:.1f} s, load before {results[-1].load:.1f}", file=sys.stderr)
    print(json.dumps([dataclasses.asdict(result) for result in results], indent=2) if options.json else table(results))
    if max(result.load for result in results) > CALM_LOAD:
        print(f"The machine was busy (load above {CALM_LOAD:g}): its times say little.", file=sys.stderr)


if __name__ == "__main__":
    main()
