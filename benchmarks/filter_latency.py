"""Waiting time of kube-scheduler for the filter while jobs arrive, running jobs report, and idle connections come.

``python benchmarks/filter_latency.py`` runs `tranche extender`, `tranche planner` and `tranche api` as processes, like
the chart, against a stand-in for the API server (api_stand_in.py) that accepts every status and returns it to the
watches. 5,000 nodes of 8 GPUs in 50 sites, 50,000 pods, 1,000 running jobs. Over HTTP come filter calls with 5,000
names: first alone (idle), then beside 5 arrivals a second of jobs of 115 chunks and 676 reports a second, then also
beside 10,000 idle connections to the report API, which are opened again when they are closed. It prints p50, p99 and
the largest time, the served reports, the longest time without a renewal of the Lease, and the memory of the three
processes (RSS, and PSS, which counts shared pages in parts), with this cluster and at the end; and whether the bounds
of ranges.toml are kept. The stand-in creates no pods, so the windows of all arrivals stay reserved until the end, which
is the worst case for the filter, and adds some 25,000 windows to the memory at the end.
"""

import argparse
import json
import multiprocessing
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import api_stand_in
import ranges
from extender_filter import body, measure
from tranche.planner_api.messages import KEY_VARIABLE
from tranche_testcluster import free_port

NODES, SITES, RUNNING, PODS = 5000, 50, 1000, 50_000
NAMES = 5000
CONNECTIONS = 16
ADDRESSES = 100
"""Source addresses of the idle connections, 127.0.1.x."""
READY_SECONDS = 300.0


def send(port: int, first: int, rate: float, until: float, statuses: list[int]) -> None:
    """Send `rate` reports a second over one connection, of one job after the other."""
    http = HTTPConnection("127.0.0.1", port, timeout=15)
    due, number = time.monotonic(), 0
    while time.monotonic() < until:
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        name = f"j{(first + number * CONNECTIONS) % RUNNING}"
        number += 1
        batches = {"0": min(999, 10 + number)}
        content = json.dumps({"attempt": 1, "applied": batches, "durable": batches, "batchSeconds": 0.6})
        try:
            http.request(
                "POST", f"/v1/jobs/ns/{name}/progress", content, {"Authorization": f"Bearer {name}-worker-0-1"}
            )
            reply = http.getresponse()
            reply.read()
            statuses.append(reply.status)
        except (OSError, HTTPException):
            http.close()
            statuses.append(0)


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
    pipe.send((len(statuses) / seconds, {status: statuses.count(status) for status in sorted(set(statuses))}))


def idle(port: int, count: int, pipe: Connection) -> None:
    """Run the process that holds idle connections, and opens them again when they are closed, until killed."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
    selector, opened = selectors.DefaultSelector(), 0

    def open_one(number: int) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((f"127.0.1.{1 + number % ADDRESSES}", 0))
        connection.connect_ex(("127.0.0.1", port))
        selector.register(connection, selectors.EVENT_READ, number)

    for number in range(count):
        open_one(number)
        opened += 1
    pipe.send(opened)
    while True:
        for key, _ in selector.select(0.1):
            selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
            open_one(key.data)
        time.sleep(0.05)


def filter_milliseconds(port: int, seconds: float) -> list[float]:
    """Return the milliseconds of filter calls, some fifty a second."""
    content, times = body("stranger", NAMES), list[float]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        times += measure(port, "filter", content, 10)
        time.sleep(0.2)
    return times


def print_times(title: str, times: list[float]) -> tuple[float, float]:
    """Print the times, and return p50 and p99."""
    middle, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    print(f"{title}: {len(times)} calls, p50 {middle:.2f} ms, p99 {p99:.2f} ms, max {max(times):.2f} ms")
    return middle, p99


def memory(pid: int) -> tuple[float, float]:
    """Return RSS and PSS of a process in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    megabytes = {line.split(":")[0]: int(line.split()[1]) / 1000 * 1.024 for line in lines[1:]}
    return megabytes["Rss"], megabytes["Pss"]


def memory_of_all(scheduler: "Scheduler") -> float:
    """Print the memory of the three processes, and return the sum of their PSS in MB."""
    used = {name: memory(process.pid) for name, process in scheduler.processes.items()}
    for name, (rss, pss) in used.items():
        print(f"  memory of {name}: RSS {rss:.0f} MB, PSS {pss:.0f} MB")
    return sum(pss for _, pss in used.values())


def await_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until an address answers with 200.

    Raises:
        RuntimeError: the process ended, or it takes too long.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{url} does not answer") from None
            time.sleep(0.2)


class Scheduler:
    """The three processes."""

    def __init__(self, kubeconfig: Path, policy: str) -> None:
        self.ports = {name: free_port() for name in ("extender", "planner", "report", "probes")}
        common = [f"--kubeconfig={kubeconfig}", "--log-level=warning"]
        parts: dict[str, list[str]] = {
            "extender": [f"--port={self.ports['extender']}"],
            "planner": [f"--planner-port={self.ports['planner']}", f"--policy={policy}"],
            "api": [
                f"--report-port={self.ports['report']}",
                f"--page-port={free_port()}",
                f"--metrics-port={self.ports['probes']}",
            ],
        }
        environment = {**os.environ, KEY_VARIABLE: "benchmark"}
        self.processes = {
            name: subprocess.Popen([sys.executable, "-m", "tranche", name, *common, *words], env=environment)
            for name, words in parts.items()
        }

    def await_ready(self) -> None:
        """Wait until all watches are synced and the planner has accepted a report."""
        for name, port in (("extender", "extender"), ("planner", "planner"), ("api", "probes")):
            await_ready(f"http://127.0.0.1:{self.ports[port]}/readyz", self.processes[name])
        deadline = time.monotonic() + READY_SECONDS
        statuses = list[int]()
        while 204 not in statuses[-1:]:
            assert time.monotonic() < deadline, statuses[-1:]
            send(self.ports["report"], 0, 5.0, time.monotonic() + 0.5, statuses)

    def stop(self) -> None:
        """Stop the processes."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(20)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each part (20)")
    parser.add_argument("--reports", type=float, default=676.0, help="reports a second (676)")
    parser.add_argument("--arrivals", type=float, default=5.0, help="arrivals a second (5)")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections of the third part (10000)")
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--policy", default="chunk")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with ExitStack() as stack:
        size = (NODES, SITES, RUNNING, options.pods)
        stand_in = context.Process(target=api_stand_in.serve, args=(theirs, *size), daemon=True)
        stand_in.start()
        stack.callback(stand_in.kill)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(api_stand_in.kubeconfig(ours.recv()))
        scheduler = Scheduler(kubeconfig, options.policy)
        stack.callback(scheduler.stop)
        scheduler.await_ready()
        _measure(scheduler, ours, options)


def _measure(scheduler: Scheduler, pipe: Any, options: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    port, report_port = scheduler.ports["extender"], scheduler.ports["report"]
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    figures = {}
    figures["filter of 5,000 names, p99 ms, idle"] = print_times("idle", filter_milliseconds(port, options.seconds))[1]
    figures["memory of extender, planner and API, PSS, MB"] = memory_of_all(scheduler)
    for title, connections in (("beside reports", 0), (f"beside {options.idle} idle connections", options.idle)):
        pipe.send(options.arrivals)
        before = pipe.recv()
        near, far = context.Pipe()
        holder = None
        if connections:
            holder = context.Process(target=idle, args=(report_port, connections, far), daemon=True)
            holder.start()
            print(f"{near.recv()} connections opened")
        arguments = (report_port, options.reports, options.seconds + 1, far)
        sender = context.Process(target=report, args=arguments, daemon=True)
        sender.start()
        time.sleep(1.0)
        middle, p99 = print_times(title, filter_milliseconds(port, options.seconds))
        rate, statuses = near.recv()
        pipe.send(0.0)
        after = pipe.recv()
        if holder is not None:
            holder.kill()
        arrived, written, reviews = (b - a for a, b in zip(before[:3], after[:3], strict=True))
        print(f"  {rate:.0f} reports/s answered {statuses}, {arrived} arrivals, {written} statuses, {reviews} reviews")
        print(f"  longest time without a renewal of the Lease: {after[3]:.1f} s; load {os.getloadavg()[0]:.1f}")
        if not connections:
            figures["filter of 5,000 names, p50 ms, beside reports"] = middle
            figures["filter of 5,000 names, p99 ms, beside reports"] = p99
        else:
            figures["filter of 5,000 names, p99 ms, beside idle connections"] = p99
            figures["Lease, longest time without renewal beside idle connections, s"] = after[3]
    memory_of_all(scheduler)
    ranges.all_kept(figures)


if __name__ == "__main__":
    main()
