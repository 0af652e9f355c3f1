"""Minute of tranche on a real control plane that Prometheus scrapes, with all events of the API server."""

import contextlib
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from support.full_stack import API, System, declare_site
from support.installed_cluster import installed_cluster
from support.object_history import History
from support.prometheus_server import Labels, Prometheus
from support.stopped_process import stopped
from support.waiting import WAIT_SECONDS, eventually
from tranche.demo.local_stack import KUBE_SCHEDULER, Stack
from tranche.demo.submission import journal_of
from tranche.live.journal_file import read_journal
from tranche_testcluster import Cluster

JOBS, PODS = f"{API}/trainingjobs", "/api/v1/pods"
GPUS = {"edge-a": 2, "edge-b": 4}
CHUNK_BYTES = 2**20
LINK_BITS = 8_000_000
TOO_LARGE = "impossible"

Scraped = dict[str, dict[Labels, float]]
"""Metrics of a process, by name of the series and labels."""
Versions = list[tuple[float, dict[str, Any]]]
"""Versions of an object, each with the moment of its beginning."""


@dataclass(frozen=True)
class Run:
    """Record of a run."""

    prometheus: Prometheus
    jobs: Mapping[str, Versions]
    """Versions of all jobs, by ``namespace/name``."""
    pods: Mapping[str, Versions]
    """Versions of all pods, by UID."""
    openings: Mapping[tuple[str, int], float]
    """When the planner opened each window, by job and attempt: the status says so later, by the time of its write."""
    began: float
    """Time before the first job, in seconds of the clock, as all other times."""
    ended: float
    """Time when every job but the too large one had ended, and Prometheus had seen it."""
    before: Mapping[str, Scraped]
    after: Mapping[str, Scraped]
    """Metrics of both processes then, by process."""
    memory: Mapping[str, int]
    """Memory of each process in bytes, from the kernel."""

    @property
    def span(self) -> int:
        """Return seconds that cover the whole run."""
        return int(self.ended - self.began) + 1


@contextlib.contextmanager
def run(program: Path) -> Iterator[Run]:
    """Run the workload, and keep Prometheus until the block is done."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(installed_cluster())
        cluster.add_site("edge-a", nodes=2, gpus=1)
        cluster.add_site("edge-b", nodes=1, gpus=4)
        _prepare(cluster)
        options = ["--estimate-seconds", "1", "--journal", str(journal_of(cluster))]
        tranche = stack.enter_context(Stack(cluster, scheduler_options=options))
        scheduler_ports = (tranche.port, tranche.planner_ports["scheduler"], tranche.api_ports["scheduler"])
        targets = {"tranche-scheduler": scheduler_ports, "tranche-operator": (tranche.health_port,)}
        addresses = {name: [f"127.0.0.1:{port}" for port in ports] for name, ports in targets.items()}
        prometheus = stack.enter_context(Prometheus(program, folder, addresses))
        system = System(cluster, tranche)
        _warm_up(system)
        prometheus.await_scrapes()
        began, before = time.time(), {name: scrape(*ports) for name, ports in targets.items()}
        prometheus.await_scrapes()
        with History(str(cluster.kubeconfig), JOBS, PODS) as history:
            _work(system, prometheus)
            prometheus.await_scrapes()
        memory = _memory({name: process.pid for name, process in tranche.processes.items()})
        after = {name: scrape(*ports) for name, ports in targets.items()}
        jobs: dict[str, Versions] = {}
        pods: dict[str, Versions] = {}
        for made in history.events[JOBS]:
            key = f"{made['metadata']['namespace']}/{made['metadata']['name']}"
            jobs.setdefault(key, []).append((made["clock"], made))
        for pod in history.events[PODS]:
            pods.setdefault(pod["metadata"]["uid"], []).append((pod["clock"], pod))
        facts = read_journal(journal_of(cluster))
        openings = {(fact.job, fact.attempt): fact.at for fact in facts if fact.kind == "opened"}
        yield Run(prometheus, jobs, pods, openings, began, time.time(), before, after, memory)


def scrape(*ports: int) -> Scraped:
    """Return the metrics of the processes on these ports; values of equal series are added."""
    found: Scraped = {}
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_SECONDS) as reply:
            text = reply.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series, key = found.setdefault(sample.name, {}), tuple(sorted(sample.labels.items()))
                series[key] = series.get(key, 0.0) + sample.value
    return found


def _prepare(cluster: Cluster) -> None:
    for name, other in (("edge-a", "edge-b"), ("edge-b", "edge-a")):
        links = [{"to": other, "bandwidth": "8M"}]
        declare_site(cluster, name, links=links)
    cluster.kubectl("create", "namespace", "vision")
    path = "/api/v1/namespaces/vision/serviceaccounts/default"
    eventually(lambda: cluster.request("GET", path)[0] == 200, "the namespace gets its ServiceAccount")


def _warm_up(system: System) -> None:
    """Run a job of each namespace, so that their series exist: on a loaded machine a few scrapes may fail."""
    for namespace in ("default", "vision"):
        system.submit("warm", seconds=0.2, namespace=namespace)
    system.until("warm", lambda: _over(system) == 2)
    for namespace in ("default", "vision"):
        system.cluster.request("DELETE", f"{API}/namespaces/{namespace}/trainingjobs/warm")
    system.until("all clear", lambda: not system.cluster.request("GET", PODS)[1]["items"])


def _work(system: System, prometheus: Prometheus) -> None:
    """Submit jobs that wait, copy data, are preempted, and one that fits nowhere."""
    container = {"name": "copy", "image": "copier:1", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    annotations = {"kwok.tranche.dev/run-seconds": "3"}
    staging = {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}}
    data = {"chunks": 5, "batchesPerChunk": 50, "chunkSize": "1Mi", "site": "edge-a", "staging": staging}
    with stopped(system.cluster.pid(KUBE_SCHEDULER)):  # so that scrapes see pods between planning and binding
        system.submit(TOO_LARGE, gpus=16, seconds=5.0)
        system.submit("copied", chunks=5, seconds=5.0, data=data)
        system.submit("long", chunks=2, seconds=14.0, zone="edge-a", namespace="vision", checkpoint_seconds=0.2)
        system.until("a worker is to be bound", lambda: system.cluster.request("GET", PODS)[1]["items"])
        prometheus.await_scrapes()
    _refused(system.stack.url)
    running = f"{PODS}?labelSelector=tranche.dev/job=long&fieldSelector=status.phase=Running"
    system.until("a worker to preempt", lambda: system.cluster.request("GET", running)[1]["items"])
    for number in range(10):
        time.sleep(1.5)
        namespace = ("default", "vision")[number % 2]
        zone = "edge-a" if number % 3 == 0 else None
        system.submit(f"job-{number}", chunks=2 + number % 3, seconds=2.0 + number % 4, zone=zone, namespace=namespace)
    system.until("all jobs over", lambda: _over(system) == 12)


def _over(system: System) -> int:
    items = system.cluster.request("GET", JOBS)[1]["items"]
    return sum(job.get("status", {}).get("phase") == "Succeeded" for job in items)


def _refused(url: str) -> None:
    """Send a request that the extender rejects."""
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(f"{url}/filter", b"nonsense"), timeout=WAIT_SECONDS)


def _memory(parents: Mapping[str, int]) -> dict[str, int]:
    """Return the memory of the operator and of the processes that the scheduler has started, by process."""
    pid = parents["scheduler"]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    words = {int(child): Path(f"/proc/{child}/cmdline").read_text().split("\0") for child in children}
    names: dict[str, int] = {
        name: child for child, line in words.items() for name in ("extender", "planner", "api") if name in line
    }
    names["operator"] = parents["operator"]
    return {name: _resident(process) for name, process in names.items()}


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
