"""Cost of the web page and of Prometheus for the scheduler: answers over 5,000 nodes × 8 GPUs and 10,000 jobs.

Both share the event loop of their process with other requests: such a request waits for the part of an answer between
two of its pauses. That part and the whole answer are measured in CPU time, so that other processes do not count.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import ranges

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.extender_objects import window
from support.page_visitor import PEOPLE, Visited
from tranche.extender.app import create_app
from tranche.live.planner_metrics import REASONS
from tranche.metrics.scheduler import Metrics

NODES, JOBS, SITES, NAMESPACES = 5_000, 10_000, 10, 50
SCRAPE = "/metrics"
PATHS = {
    "overview": ("admin", "/v1/overview"),
    "overview, one namespace": ("admin", "/v1/overview?namespace=ns-7"),
    "overview, a search": ("admin", "/v1/overview?find=job-99"),
    "overview, a team's": ("team", "/v1/overview"),
    "overview, 1,000 jobs of a group": ("admin", "/v1/overview?limit=1000"),
    "timeline of one site, 16 nodes": ("admin", "/v1/timeline/site-3"),
    "timeline of one site, 100 nodes": ("admin", "/v1/timeline/site-3?limit=100"),
    "timeline of one site, a team's": ("team", "/v1/timeline/site-3"),
    "jobs, 1,000 of them": ("admin", "/v1/jobs?limit=1000"),
    "one job": ("admin", "/v1/jobs/ns-7/job-7"),
    "scrape of /metrics": ("", SCRAPE),
}


class Bench:
    """Applications of the page and of the probes, over the same stores."""

    def __init__(self, jobs: int) -> None:
        """Create the stores: every fourth job runs with 16 windows, the others wait."""
        self.page = Visited()
        self.metrics = Metrics()
        stores = self.page.stores
        self.probes = create_app(stores, self.metrics, list, view=stores.view)
        for site in range(SITES):
            stores.add_site(f"site-{site}", zone=f"z{site}")
        for node in range(NODES):
            stores.add_node(f"n{node}", gpus=8, zone=f"z{node % SITES}")
        now = datetime.now(UTC)
        start, end = now.isoformat(), (now + timedelta(hours=1)).isoformat()
        for number in range(jobs):
            runs = number < jobs // 4
            places = [(16 * number + index) % NODES for index in range(16)] if runs else []
            windows = [
                window(index, index + 1, f"n{node}", site=f"site-{node % SITES}", start=start, end=end)
                for index, node in enumerate(places)
            ]
            phase, namespace = "Running" if runs else "Waiting", f"ns-{number % NAMESPACES}"
            stores.add_job(f"job-{number}", *windows, phase=phase, namespace=namespace, creationTimestamp=start)
        waits = {f"ns-{number % NAMESPACES}/job-{number}": REASONS[0] for number in range(jobs // 4, jobs)}
        self.metrics.set_waits(waits, REASONS)
        for number in range(NAMESPACES):
            self.metrics.add_namespace(f"ns-{number}")
        PEOPLE["team"] = {"list trainingjobs ns-7", "list trainingjobs ns-8"}

    async def ask(self, user: str, path: str) -> int:
        """Return the bytes of the answer."""
        path, _, query = path.partition("?")
        headers = [(b"tranche-token", user.encode())] if user else []
        scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http"}
        scope |= {"path": path, "raw_path": path.encode(), "query_string": query.encode(), "headers": headers}
        messages: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            messages.append(message)

        await (self.probes if path == SCRAPE else self.page.app)(scope, receive, send)
        assert messages[0]["status"] == 200, messages
        return sum(len(message.get("body", b"")) for message in messages)

    async def measure(self, user: str, path: str) -> tuple[float, float, int]:
        """Return CPU ms of one answer, of its longest part between two turns of the loop, and its bytes."""
        answer = asyncio.ensure_future(self.ask(user, path))
        longest, began = 0.0, time.thread_time()
        while not answer.done():
            turn = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - turn)
        return 1000 * (time.thread_time() - began), 1000 * longest, await answer


async def run(jobs: int, rounds: int) -> None:
    """Measure and print."""
    bench = Bench(jobs)
    gc.collect()
    gc.freeze()  # as the scheduler does every ten seconds
    print(f"{NODES} nodes × 8 GPUs at {SITES} sites, {jobs} jobs in {NAMESPACES} namespaces, 16 windows each fourth")
    print(f"{'CPU time':34} {'median ms':>10} {'at once: median':>16} {'most':>7} {'bytes':>9}")
    page = scrape = 0.0
    for title, (user, path) in PATHS.items():
        await bench.measure(user, path)
        costs = []
        for _ in range(rounds):
            bench.page.now += 2.0  # values that are cached for a moment are calculated again each time
            costs.append(await bench.measure(user, path))
        whole, longest = (statistics.median(times[part] for times in costs) for part in (0, 1))
        most = max(times[1] for times in costs)
        print(f"{title:34} {whole:10.1f} {longest:16.1f} {most:7.1f} {costs[-1][2]:9}")
        page, scrape = (page, longest) if path == SCRAPE else (max(page, longest), scrape)
    ranges.all_kept({"page, an answer at once, CPU ms": page, "metrics, a scrape at once, CPU ms": scrape})


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"number of jobs ({JOBS})")
    parser.add_argument("--rounds", type=int, default=40, help="repetitions of each request (40)")
    options = parser.parse_args()
    asyncio.run(run(options.jobs, options.rounds))


if __name__ == "__main__":
    main()
