"""Number of progress reports a second that the scheduler can accept, and their cost for the planner.

``python benchmarks/report_rate.py`` starts the report API in a process of its own (real HTTP, reviews of tokens
cached, as all but one in five minutes are) and sends reports of 1,000 jobs over eight connections; it prints
reports a second and the server's CPU time per report. Then the planner counts one report of each of 1,000 running
jobs of 20 chunks, with 10,000 jobs waiting, in turns of the loop of at most 25 reports, and prints the CPU time of a
turn, for which kube-scheduler may wait. It exits with 1 if a bound of ranges.toml is missed.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ranges
from tranche.auth.pod_token import TokenReviewer
from tranche.kube.api.names import REPORT_AUDIENCE
from tranche.live.planner_inbox import AT_ONCE, ReportInbox
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkGrant, ChunkRequest, Job, PodShape, Report, Resources
from tranche.planner import JobSubmitted, NodeChanged, Planner, SiteChanged, WorkerStarted
from tranche.planner_api.receiver import PlannerReceiver
from tranche.policies import get_policy
from tranche.runtime.http_server import serve
from tranche.simulation.cluster_spec import pool
from tranche.worker_api.app import create_report_app

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.extender_objects import Stores, window, worker

JOBS, CHUNKS, WAITING = 1000, 20, 10_000
CONNECTIONS = 8
BATCHES = 1000


class Reviews:
    """Stand-in for the API server: a token names its pod."""

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        """Accept any token."""
        name = body["spec"]["token"]
        extra = {"authentication.kubernetes.io/pod-name": [name], "authentication.kubernetes.io/pod-uid": [name]}
        user = {"username": "system:serviceaccount:ns:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": [REPORT_AUDIENCE], "user": user}}


class Sink:
    """Takes everything."""

    leading = True

    def __init__(self) -> None:
        self.taken = 0

    def take(self, report: Report) -> bool:
        """Count the report."""
        self.taken += 1
        return True

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return no chunks."""
        return None


def serve_reports(pipe: Connection) -> None:
    """Run the server's process: send its port, then its CPU seconds on each request."""
    stores = Stores()
    for number in range(JOBS):
        stores.add_job(f"j{number}", servers=[window(0, 1, "n")])
        pod = worker(f"j{number}", 0, 1, "n", role="ps")
        stores.add_pod(worker(f"j{number}", 0, 1, "n", role="ps", uid=pod.metadata.name))
    inbox, reviewer = Sink(), TokenReviewer(Reviews())
    app = create_report_app(
        stores.pods.store,
        stores.jobs.store,
        PlannerReceiver(inbox, inbox),
        reviewer,
        Metrics(),
        lambda: 10 * time.monotonic(),
    )

    def answer(port: int) -> None:
        pipe.send(port)
        threading.Thread(target=tell, daemon=True).start()

    def tell() -> None:
        while pipe.recv():
            pipe.send(time.process_time())

    asyncio.run(serve(app, "127.0.0.1", 0, listening=answer))


def send(port: int, first: int, count: int, statuses: list[int]) -> None:
    """Send `count` reports over one connection."""
    http = HTTPConnection("127.0.0.1", port)
    vector = {str(chunk): 500 for chunk in range(CHUNKS)}
    body = json.dumps({"attempt": 1, "applied": vector, "durable": vector, "batchSeconds": 0.5})
    for number in range(count):
        job = (first + number * CONNECTIONS) % JOBS
        http.request("POST", f"/v1/jobs/ns/j{job}/progress", body, {"Authorization": f"Bearer j{job}-ps-0-1"})
        answer = http.getresponse()
        answer.read()
        statuses.append(answer.status)


def measure_api(reports: int) -> tuple[float, float]:
    """Return reports a second, and the server's CPU milliseconds for one."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_reports, args=(theirs,), daemon=True)
    process.start()
    port, statuses = ours.recv(), list[int]()
    rounds = []
    for count in (JOBS, reports):  # the first round fills the cache of reviews
        ours.send(True)
        cpu, began = ours.recv(), time.perf_counter()
        threads = [
            threading.Thread(target=send, args=(port, first, count // CONNECTIONS, statuses))
            for first in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        ours.send(True)
        rounds.append((count / seconds, 1000 * (ours.recv() - cpu) / count))
    process.terminate()
    process.join()
    assert set(statuses) == {204}, set(statuses)
    return rounds[-1]


def crowd() -> Planner:
    """Return a planner with 1,000 running jobs that report, and many that wait."""
    planner = Planner(get_policy("chunk"))
    cluster = pool(JOBS)
    for site in cluster.sites:
        planner.handle(SiteChanged(site), 0.0)
    for node in cluster.nodes:
        planner.handle(NodeChanged(node), 0.0)
    shape = PodShape(Resources(cpu=0, memory=0, gpus=1, pods=1))
    fields: dict[str, Any] = {"worker": shape, "batches_per_chunk": BATCHES, "step_seconds": 1.0}
    fields |= {"data_site": cluster.sites[0].name, "chunk_bytes": 1.0}
    for number in range(JOBS + WAITING):
        job = Job(
            key=f"ns/j{number}", uid=str(number), submitted=float(number), chunks=CHUNKS, max_workers=1,
            weight=1.0 if number < JOBS else 0.01, **fields,
        )  # fmt: skip
        planner.handle(JobSubmitted(job), float(number))
    now = float(JOBS + WAITING)
    for key, state in planner.cluster.jobs.items():
        for attempt in list(state.runs):
            planner.handle(WorkerStarted(key, attempt, now), now)
    return planner


def measure_planner(turns: int) -> list[float]:
    """Return the CPU milliseconds of `turns` turns that count one report of each of 1,000 jobs."""
    planner = crowd()
    now = float(JOBS + WAITING)
    inbox = ReportInbox(planner, lambda: now)
    running = [(key, min(state.runs)) for key, state in planner.cluster.jobs.items() if state.runs][:JOBS]
    assert len(running) == JOBS, f"{len(running)} jobs run"
    times = []
    for turn in range(1, turns + 1):
        now += 20.0
        for key, attempt in running:
            chunk = planner.cluster.jobs[key].runs[attempt].window.chunks[0]
            assert inbox.take(Report(key, attempt, {chunk: 18.0 * turn}, {chunk: 15.0 * turn}))
        while batch := inbox.drain():
            began = time.process_time()
            planner.handle_all(batch, now)
            times.append(1000 * (time.process_time() - began))
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=8000)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    rate, cost = measure_api(options.reports)
    print(f"report API: {rate:,.0f} reports/s, {cost:.3f} ms of the server's CPU a report")
    times = measure_planner(options.turns)
    median = statistics.median(times)
    print(f"planner: {AT_ONCE} reports in one turn: median {median:.1f} ms, most {max(times):.1f} ms of CPU")
    figures = {"report API, CPU ms a report": cost, "planner, 25 reports in one turn, median CPU ms": median}
    sys.exit(not ranges.all_kept(figures))


if __name__ == "__main__":
    main()
