"""What the web page costs the scheduler: answers over 5,000 nodes × 8 GPUs and 10,000 jobs, all in this process.

The page shares the event loop with kube-scheduler's calls, so the longest answer is what such a call may have to wait.
"""

import gc
import statistics
import time
from datetime import UTC, datetime, timedelta

from extender_objects import window
from page_visitors import Visited

NODES, JOBS, RUNNING, SITES, ROUNDS = 5_000, 10_000, 2_500, 10, 40


def fill() -> Visited:
    """Every fourth job runs with 16 windows, the others wait."""
    app = Visited()
    for site in range(SITES):
        app.stores.add_site(f"site-{site}", zone=f"z{site}")
    for node in range(NODES):
        app.stores.add_node(f"n{node}", gpus=8, zone=f"z{node % SITES}")
    now = datetime.now(UTC)
    for number in range(JOBS):
        runs = number < RUNNING
        start, end = now.isoformat(), (now + timedelta(hours=1)).isoformat()
        places = [(16 * number + index) % NODES for index in range(16)] if runs else []
        windows = [
            window(index, index + 1, f"n{node}", site=f"site-{node % SITES}", start=start, end=end)
            for index, node in enumerate(places)
        ]
        app.stores.add_job(
            f"job-{number}", *windows, phase="Running" if runs else "Waiting", namespace=f"ns-{number % 50}"
        )
    return app


def main() -> None:
    app = fill()
    gc.collect()
    gc.freeze()  # as the scheduler does every ten seconds
    print(f"{NODES} nodes × 8 GPUs at {SITES} sites, {JOBS} jobs, {RUNNING} of them with 16 windows each")
    print(f"{'request':44} {'median ms':>10} {'longest ms':>10} {'bytes':>9}")
    paths = {
        "overview": "overview",
        "overview, one namespace": "overview?namespace=ns-7",
        "overview, a search": "overview?find=job-99",
        "timeline of one site, 16 nodes": "timeline/site-3",
        "timeline of one site, 100 nodes": "timeline/site-3?limit=100",
        "one job": "jobs/ns-7/job-7",
    }
    for what, path in paths.items():
        app.told(path)
        took, size = [], 0
        for _ in range(ROUNDS):
            app.now += 2.0  # what is remembered for a moment is worked out anew each time
            began = time.perf_counter()
            size = len(app.ask(path).content)
            took.append(1000 * (time.perf_counter() - began))
        print(f"{what:44} {statistics.median(took):10.1f} {max(took):10.1f} {size:9}")


if __name__ == "__main__":
    main()
