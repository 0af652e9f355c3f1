"""Waiting time of kube-scheduler for the filter while jobs arrive and running jobs report.

``python benchmarks/filter_latency.py`` runs the scheduler's own parts on one event loop, in a process of their own, as
``tranche scheduler`` does: controller, planner, writer of statuses, extender and report API. The API server is
simulated there: it accepts every status at once and returns it as a watch would, and accepts every token. 5,000 nodes
of 8 GPUs in 50 sites, 1,000 running jobs. From outside, over HTTP, come filter calls with 5,000 names, first alone
(idle), then beside 5 arrivals a second of jobs of 115 chunks and 1,000 reports a second. It prints p50, p99 and the
largest time, the requests that were served, and the longest pause of the loop; and whether the bounds of ranges.toml
are kept, which they are not yet.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import threading
import time
from datetime import UTC, datetime
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from typing import Any

import msgspec

import ranges
from extender_filter import body, measure
from tranche.auth.pod_token import TokenReviewer
from tranche.extender.app import create_app
from tranche.kube.api.names import REPORT_AUDIENCE
from tranche.live import Controller
from tranche.live.informers import Informers
from tranche.metrics.scheduler import Metrics
from tranche.planner import Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.runtime.gc_tuning import freeze_periodically
from tranche.runtime.http_server import serve
from tranche.worker_api.app import create_report_app

NODES, SITES, GPUS, RUNNING, CHUNKS = 5000, 50, 8, 1000, 115
NAMES = 5000
CONNECTIONS = 4
GPU = "nvidia.com/gpu"
TEMPLATE = {"spec": {"containers": [{"name": "t", "resources": {"requests": {GPU: "1", "cpu": "1"}}}]}}


class Api:
    """Stand-in for the API server, in the same process."""

    def __init__(self) -> None:
        self.watches: Informers
        self.written = 0

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        """Review a token: its text is the name of the pod, which is its UID as well."""
        name = body["spec"]["token"]
        extra = {f"authentication.kubernetes.io/pod-{what}": [name] for what in ("name", "uid")}
        user = {"username": "system:serviceaccount:ns:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": [REPORT_AUDIENCE], "user": user}}

    async def apply(self, path: str, body: dict[str, Any], manager: str) -> dict[str, Any]:
        """Accept a status, and send it to the watch."""
        await asyncio.sleep(0.002)
        if "/trainingjobs/" in path:
            known = self.watches.jobs.store[f"ns/{path.split('/')[-2]}"]
            status = {**known.model_dump(by_alias=True, exclude_none=True, mode="json")["status"], **body["status"]}
            self.tell(job(known.metadata.name, known.metadata.creation_timestamp.timestamp(), status))  # type: ignore[union-attr]
        self.written += 1
        return {}

    def tell(self, found: dict[str, Any]) -> None:
        """Put an object into its watch."""
        kind = {"TrainingJob": "jobs", "Pod": "pods", "Node": "nodes", "Site": "sites"}[found["kind"]]
        self.watches.by_kind(kind)._put(msgspec.json.encode(found))


def job(name: str, created: float, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a job of 115 chunks of ten minutes; with a window on a node of its own if it runs."""
    at = datetime.fromtimestamp(created, UTC).isoformat()
    return {
        "kind": "TrainingJob",
        "apiVersion": "tranche.dev/v1alpha1",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": at, "generation": 1},
        "spec": {
            "data": {"chunks": CHUNKS, "batchesPerChunk": 1000},
            "model": {"stepTime": "600ms"},
            "workers": {"maxReplicas": CHUNKS if name.startswith("new") else 1, "template": TEMPLATE},
        },
        "status": status or {},
    }


def objects(now: float) -> list[dict[str, Any]]:
    """Return the cluster: sites, nodes, running jobs and their pods."""
    found: list[dict[str, Any]] = []
    for site in range(SITES):
        spec = {"nodeSelector": {"site": f"site-{site}"}}
        found.append({"kind": "Site", "metadata": {"name": f"site-{site}", "uid": f"s{site}"}, "spec": spec})
    for number in range(NODES):
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(GPUS)}
        metadata = {"name": f"n{number}", "uid": f"n{number}", "labels": {"site": f"site-{number % SITES}"}}
        status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        found.append({"kind": "Node", "metadata": metadata, "status": status})
    for number in range(RUNNING):
        name, node = f"j{number}", f"n{number}"
        window = {"index": 0, "attempt": 1, "site": f"site-{number % SITES}", "node": node, "chunks": [0]}
        plan = {"term": 1, "revision": 1, "observedGeneration": 1, "attempts": 1, "workers": [window]}
        found.append(job(name, now - 600.0, {"plan": plan, "phase": "Running"}))
        found.append(pod(name, node, now))
    return found


def pod(name: str, node: str, now: float) -> dict[str, Any]:
    """Return the worker of a running job."""
    labels = {"job": name, "role": "worker", "index": "0", "attempt": "1"}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": f"uid-{name}", "controller": True}
    started = {"running": {"startedAt": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    metadata = {"name": f"{name}-worker-0-1", "namespace": "ns", "uid": f"{name}-worker-0-1"}
    return {
        "kind": "Pod",
        "metadata": {
            **metadata,
            "labels": {f"tranche.dev/{key}": value for key, value in labels.items()},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, **TEMPLATE["spec"]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "t", "state": started}]},
    }


class Server:
    """Process that answers."""

    def __init__(self, pipe: Connection, policy: str) -> None:
        self.pipe = pipe
        self.api = Api()
        self.watches = self.api.watches = Informers(self.api)  # type: ignore[arg-type]
        self.planner = Planner(get_policy(policy), PlannerSettings())
        self.metrics = Metrics()
        self.arrived = 0
        self.arrivals_per_second = 0.0
        self.longest = 0.0

    async def run(self) -> None:
        """Serve until killed."""
        for found in objects(time.time()):
            self.api.tell(found)
        self.controller = Controller(self.api, self.watches, self.planner, self.metrics)  # type: ignore[arg-type]
        self.controller.term = 2
        self.controller.restore()
        stores = self.watches.pods.store, self.watches.jobs.store
        inbox = self.controller.reports
        reports = create_report_app(
            *stores, inbox, self.controller.renewals, TokenReviewer(self.api), self.metrics
        )  # fmt: skip
        app = create_app(self.watches, self.metrics, list, GPU)
        ports: list[int] = []
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.writer.run())
            group.create_task(self.controller._plan())
            for served in (app, reports):
                group.create_task(serve(served, "127.0.0.1", 0, listening=ports.append))
                while not ports or (served is reports and len(ports) < 2):
                    await asyncio.sleep(0.01)
            group.create_task(freeze_periodically(asyncio.sleep(0)))
            group.create_task(self._arrive())
            group.create_task(self._watch_loop())
            self.pipe.send(ports)
            threading.Thread(target=self._obey, daemon=True).start()

    def _obey(self) -> None:
        while True:
            self.arrivals_per_second = float(self.pipe.recv())
            self.pipe.send((self.arrived, self.api.written, self.longest, time.process_time()))
            self.longest = 0.0

    async def _arrive(self) -> None:
        due = time.monotonic()
        while True:
            rate = self.arrivals_per_second
            due = due + 1 / rate if rate else time.monotonic() + 0.2
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if rate:
                self.api.tell(job(f"new-{self.arrived}", time.time()))
                self.arrived += 1

    async def _watch_loop(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.monotonic() - began - 0.001)


def answer(pipe: Connection, policy: str) -> None:
    """Run the answering process."""
    asyncio.run(Server(pipe, policy).run())


def send(port: int, first: int, rate: float, until: float, statuses: list[int]) -> None:
    """Send `rate` reports a second over one connection, of one job after the other."""
    http = HTTPConnection("127.0.0.1", port)
    due, number = time.monotonic(), 0
    while time.monotonic() < until:
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        name = f"j{(first + number * CONNECTIONS) % RUNNING}"
        number += 1
        told = {"0": min(999, 10 + number)}
        content = json.dumps({"attempt": 1, "applied": told, "durable": told, "batchSeconds": 0.6})
        http.request("POST", f"/v1/jobs/ns/{name}/progress", content, {"Authorization": f"Bearer {name}-worker-0-1"})
        reply = http.getresponse()
        reply.read()
        statuses.append(reply.status)


def report(port: int, rate: float, seconds: float, pipe: Connection) -> None:
    """Run the process that sends reports."""
    statuses: list[int] = []
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=send, args=(port, first, rate / CONNECTIONS, until, statuses))
        for first in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send((len(statuses) / seconds, sorted(set(statuses))))


def asked(port: int, seconds: float) -> list[float]:
    """Return the milliseconds of filter calls, some fifty a second."""
    content, times = body("stranger", NAMES), list[float]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        times += measure(port, "filter", content, 10)
        time.sleep(0.2)
    return times


def told(what: str, times: list[float]) -> float:
    """Print the times, and return p99."""
    p99 = statistics.quantiles(times, n=100)[98]
    print(
        f"{what}: {len(times)} calls, p50 {statistics.median(times):.2f} ms, p99 {p99:.2f} ms, max {max(times):.2f} ms"
    )
    return p99


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each part (20)")
    parser.add_argument("--reports", type=float, default=1000.0, help="reports a second (1000)")
    parser.add_argument("--arrivals", type=float, default=5.0, help="arrivals a second (5)")
    parser.add_argument("--policy", default="chunk")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=answer, args=(theirs, options.policy), daemon=True)
    process.start()
    port, report_port = ours.recv()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    idle = told("idle", asked(port, options.seconds))
    ours.send(options.arrivals)
    before = ours.recv()
    near, far = context.Pipe()
    sender = context.Process(target=report, args=(report_port, options.reports, options.seconds + 1, far), daemon=True)
    sender.start()
    time.sleep(1.0)
    busy = told("busy", asked(port, options.seconds))
    rate, statuses = near.recv()
    ours.send(0.0)
    after = ours.recv()
    process.kill()
    arrived, written, longest, cpu = (
        b - a if n != 2 else b for n, (a, b) in enumerate(zip(before, after, strict=True))
    )
    share = cpu / (options.seconds + 1)
    print(f"{rate:.0f} reports/s answered {statuses}, {arrived} arrivals, {written} statuses written")
    print(f"the loop stood still for {1000 * longest:.0f} ms at most and used {100 * share:.0f} % of a core")
    print(f"load {os.getloadavg()[0]:.1f}")
    figures = {"filter of 5,000 names, p99 ms, idle": idle, "filter of 5,000 names, p99 ms, beside reports": busy}
    ranges.all_kept(figures)  # printed; no failure while the bars are missed: docs/reference/results.md


if __name__ == "__main__":
    main()
