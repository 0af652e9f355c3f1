"""Time of filter and prioritize for kube-scheduler: over HTTP keep-alive, with another process answering.

``python benchmarks/extender_filter.py`` prints p50, p99 and the largest time in milliseconds for 3 to 5,000 node names,
with the watches of a large cluster in the answering process. Bars: p99 10 ms, idle 1 ms.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import resource
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from tranche.extender.app import create_app
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.client.reflector import Stats
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.metrics.scheduler import Metrics
from tranche.runtime.http_server import serve

T = TypeVar("T")
GPU = "nvidia.com/gpu"
NAMES = (3, 100, 500, 1000, 2000, 5000)
SITES = 50


class Still(Generic[T]):
    """Watch without events."""

    def __init__(self, store: dict[str, T]) -> None:
        self.store = store
        self.stats = Stats()
        self.age = 0.0

    def subscribe(self, callback: Callable[[str, T | None, T | None], None]) -> None:
        """Send the existing objects to the callback."""
        for key, item in self.store.items():
            callback(key, None, item)


class Watches:
    """Watches of a cluster with 8 GPUs a node; every tenth job has windows, which fill half of the nodes."""

    def __init__(self, nodes: int, pods: int, jobs: int) -> None:
        self.nodes = Still({f"n{i}": self._node(i) for i in range(nodes)})
        self.pods = Still({f"ns/s{i}": self._pod(i, nodes) for i in range(pods)})
        self.sites = Still({f"site-{i}": self._site(i) for i in range(SITES)})
        self.jobs = Still({f"ns/j{i}": self._job(i, nodes) for i in range(jobs)})

    def _node(self, number: int) -> NodeObject:
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"}
        metadata = {"name": f"n{number}", "labels": {"site": f"site-{number % SITES}", "kubernetes.io/os": "linux"}}
        return msgspec.convert({"metadata": metadata, "status": {"allocatable": offered}}, NodeObject)

    def _site(self, number: int) -> SiteObject:
        name = f"site-{number}"
        return SiteObject.model_validate({"metadata": {"name": name}, "spec": {"nodeSelector": {"site": name}}})

    def _pod(self, number: int, nodes: int) -> Pod:
        container = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
        metadata = {"name": f"s{number}", "namespace": "ns", "uid": f"{number:036}", "labels": {"app": f"a{number}"}}
        spec = {"nodeName": f"n{number % nodes}", "containers": [container]}
        return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))

    def _job(self, number: int, nodes: int) -> TrainingJob:
        width = 5 * nodes // 10_000 or 1
        windows = [
            {
                "index": i,
                "attempt": i,
                "site": "site-0",
                "node": f"n{(number + i * 7) % (nodes // 2)}",
                "fallbacks": ["n1", "n2", "n3"],
                "chunks": [i],
            }
            for i in range(width if number % 10 == 0 else 0)
        ]
        plan = {"term": 1, "revision": 1, "observedGeneration": 1, "workers": windows, "homes": {"site-0": "0-9"}}
        template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}
        spec = {"data": {"chunks": 115}, "workers": {"maxReplicas": 115, "template": template}}
        metadata = {"name": f"j{number}", "namespace": "ns", "uid": f"uid-{number}"}
        return TrainingJob.model_validate({"metadata": metadata, "spec": spec, "status": {"plan": plan}})


def answer(sizes: tuple[int, int, int], channel: Any) -> None:
    """Run the answering process: send port, MiB and seconds of the index, then serve."""
    watches = Watches(*sizes)
    began = time.perf_counter()
    app = create_app(watches, Metrics(), list)
    index_seconds = time.perf_counter() - began
    gc.collect()
    gc.freeze()
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    def listening(port: int) -> None:
        channel.send((port, mib, index_seconds))

    asyncio.run(serve(app, "127.0.0.1", 0, listening=listening))


def body(kind: str, names: int) -> bytes:
    """Return a request as kube-scheduler sends it.

    Args:
        kind: planned (n0, the node of job 0, is offered), fallback (it is not) or stranger (no job's pod).
        names: Number of nodes that are offered.
    """
    offered = (
        [f"n{i}" for i in range(names + 1)][:names] if kind != "fallback" else [f"n{i}" for i in range(1, names + 1)]
    )
    labels = {
        "tranche.dev/job": "j0",
        "tranche.dev/role": "worker",
        "tranche.dev/index": "0",
        "tranche.dev/attempt": "0",
    }
    metadata: dict[str, Any] = {"name": "j0-worker-0-0", "namespace": "ns", "uid": "u"}
    if kind != "stranger":
        owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "j0", "controller": True}
        metadata |= {"labels": labels, "annotations": {"tranche.dev/plan": "1.1"}, "ownerReferences": [owner]}
    container = {"name": "main", "resources": {"requests": {GPU: "1", "cpu": "1"}}}
    pod = {"metadata": metadata, "spec": {"containers": [container], "priority": -10}, "status": {"phase": "Pending"}}
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": offered}, separators=(",", ":")).encode()


def measure(port: int, verb: str, content: bytes, rounds: int) -> list[float]:
    """Return the milliseconds of each request over one connection, after a warm-up."""
    head = f"POST /{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    times: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(rounds + 20):
            began = time.perf_counter()
            connection.sendall(head + content)
            receive(connection)
            times.append(1000 * (time.perf_counter() - began))
    return times[20:]


def receive(connection: socket.socket) -> None:
    """Read one whole answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 18)
    head, _, rest = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(
        next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1]
    )
    bytes_left = length - len(rest)
    while bytes_left:
        bytes_left -= len(connection.recv(min(bytes_left, 1 << 18)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    near, far = multiprocessing.Pipe()
    sizes = (options.nodes, options.pods, options.jobs)
    process = multiprocessing.get_context("spawn").Process(target=answer, args=(sizes, far), daemon=True)
    process.start()
    port, mib, index = near.recv()
    print(f"{options.nodes} nodes, {options.pods} pods, {options.jobs} jobs: {mib} MiB, index built in {index:.2f} s")
    print(f"{'verb':<11}{'pod':<10}{'names':>6}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    for verb, kind in (
        ("filter", "planned"),
        ("filter", "fallback"),
        ("filter", "stranger"),
        ("prioritize", "planned"),
    ):
        for names in NAMES:
            times = measure(port, verb, body(kind, names), options.rounds)
            p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
            print(f"{verb:<11}{kind:<10}{names:>6}{p50:>9.2f}{p99:>9.2f}{max(times):>9.2f}")
    process.kill()


if __name__ == "__main__":
    main()
