"""tranche on a test cluster, with a fault proxy between the API server and each program."""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from chaos.checks.eviction import Bound
from chaos.checks.node_visit import Visits
from chaos.clocks import Clock, clock
from chaos.processes import Process
from support.full_stack import declare_site
from tranche.demo.local_stack import SYSTEM_NAMESPACE, Stack, apply_manifests
from tranche.planner_api.messages import KEY_VARIABLE
from tranche_testcluster import Cluster, FaultProxy, free_port
from tranche_testcluster.etcd.history import FLAGS

API = "/apis/tranche.dev/v1alpha1"
JOBS = f"{API}/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
SITES = {"edge-a": (2, 2), "edge-b": (1, 2), "cloud": (1, 4)}
"""Number of nodes, and of GPUs of each node, by site."""
LEASE_SECONDS = 8
EVICT_SECONDS = 3
"""Time after which Kubernetes deletes the pods of an unreachable node, instead of five minutes."""
VERDICT_SECONDS = 40.0
"""Time for which a pod may wait for a verdict of kube-scheduler, instead of 630 s."""
PATIENCE_SECONDS = 60.0
DESCRIPTORS = 512
"""File descriptors of each process of tranche: few, so that few idle connections exhaust them."""
REPORTS, PLANNER_API, PLANNER_METRICS, API_METRICS = "reports", "planner API", "planner metrics", "API metrics"
"""Names of `Lab.ports`."""
_FEW_DESCRIPTORS = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")


class Lab:
    """Cluster and processes that faults act on."""

    def __init__(
        self,
        cluster: Cluster,
        proxies: Mapping[str, FaultProxy],
        processes: Mapping[str, Process],
        clocks: Mapping[str, Clock | None],
        ports: Mapping[str, int],
    ) -> None:
        self.ports = ports
        """Ports of the first scheduler that other pods can reach in a cluster, by name of the server."""
        self.cluster, self.proxies, self.processes, self.clocks = cluster, proxies, processes, clocks
        self.reserved_nodes: set[str] = set()
        """Nodes that a fault has reserved for itself."""
        self.failed: dict[str, int] = {}
        """Number of pods that a fault has ended with a failure, by job."""
        self.expected: dict[str, str] = {}
        """Expected end of each job: Succeeded, Failed or gone (deleted)."""
        self.periodic: list[Callable[[], object]] = []
        """Functions of faults, to be called periodically while the faults last."""
        self.fault_jobs: set[str] = set()
        """Jobs that belong to one fault; other faults do not affect them."""
        self.bounds: list[Bound] = []
        """Limits of evictions, for `eviction.check_bounds`."""
        self.visits: list[Visits] = []
        """Limits of pods on nodes, for `node_visit.check_visits`."""

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Send a request as administrator, without a proxy; repeat it while the API server does not respond."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                status, answer = self.cluster.request(method, path, body, kind)
            except OSError:
                status, answer = 0, "no answer"
            if 200 <= status < 500 and status != 429:
                return status, answer
            assert time.monotonic() < deadline, f"{method} {path}: {status} {answer}"
            self.wait(0.2)

    def wait(self, seconds: float) -> None:
        """Wait; meanwhile, start ended processes again and call the periodic functions of faults."""
        until = time.monotonic() + seconds
        while True:
            for process in self.processes.values():
                process.keep_running()
            for call in tuple(self.periodic):
                call()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.2))

    def until(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until the function returns true; return whether it did within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not (answer := true()) and time.monotonic() < deadline:
            self.wait(0.25)
        return answer

    def submit(self, name: str, body: Mapping[str, Any], expected: str) -> bool:
        """Create a job with its expected end; return False if the API server refuses it as invalid or too large."""
        status, answer = self.ask("POST", JOBS, body)
        if status in (413, 422):
            return False
        assert status in (201, 409), answer
        self.expected[name] = expected
        return True

    def delete(self, name: str) -> None:
        self.ask("DELETE", f"{JOBS}/{name}")
        self.expected[name] = "gone"

    def revision(self) -> int:
        """Return the revision of the last write in the cluster, or a later one."""
        return int(self.ask("GET", f"{API}/sites")[1]["metadata"]["resourceVersion"])

    def reserve_site(self, chance: random.Random) -> str | None:
        """Reserve the nodes of a site for a fault and return the site; None if every site has a reserved node."""
        free = [site for site in SITES if not self.reserved_nodes & set(nodes_of(site))]
        if not free:
            return None
        site = chance.choice(free)
        self.reserved_nodes.update(nodes_of(site))
        return site

    def release_site(self, site: str) -> None:
        self.reserved_nodes.difference_update(nodes_of(site))

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {one["metadata"]["name"]: one for one in self.ask("GET", JOBS)[1]["items"]}

    def pods(self, role: str | None = None) -> list[dict[str, Any]]:
        """Return the pods of jobs that have not ended and are not being deleted."""
        selector = "tranche.dev/job" + (f",tranche.dev/role={role}" if role else "")
        items = self.ask("GET", f"{PODS}?labelSelector={selector}")[1]["items"]
        alive = [one for one in items if one["status"]["phase"] in ("Pending", "Running")]
        return [one for one in alive if "deletionTimestamp" not in one["metadata"]]


def nodes_of(site: str) -> list[str]:
    """Return the names of a site's nodes."""
    return [f"{site}-{number}" for number in range(SITES[site][0])]


Undo = Callable[[], object]
Begin = Callable[[Lab, random.Random], tuple[str, Undo | None]]
"""Begins a fault; returns its description and the function that undoes it (None: nothing to undo)."""


@contextmanager
def lab(folder: Path, seed: int, tolerances: Mapping[str, str], policy: str) -> Iterator[Lab]:
    """Start a cluster with all processes of tranche.

    Args:
        folder: Folder for logs and data; it is emptied first and remains at the end.
        seed: Seed of the proxies.
        tolerances: `disconnectTolerance` of the sites that are declared.
        policy: Policy of the planner, with its options.
    """
    tolerations = [f"--default-{kind}-toleration-seconds={EVICT_SECONDS}" for kind in ("unreachable", "not-ready")]
    flags = {"kube-apiserver": [*FLAGS, *tolerations]}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(folder, node_lease_seconds=LEASE_SECONDS, extra_flags=flags))
        apply_manifests(cluster)
        for name, (nodes, gpus) in SITES.items():
            cluster.add_site(name, nodes=nodes, gpus=gpus)
            if name in tolerances:
                declare_site(cluster, name, disconnectTolerance=tolerances[name])
        proxies = {
            name: stack.enter_context(cluster.proxy(seed + number))
            for number, name in enumerate(("scheduler", "operator"))
        }
        clocks = {name: clock(_folder(cluster.directory / f"{name}-clock")) for name in proxies}
        limits = ["--estimate-seconds", "1", "--verdict-seconds", str(VERDICT_SECONDS)]
        whole = Stack(cluster, policy, scheduler_options=["--validate", *limits])
        whole.port, whole.health_port, whole.report_port = free_port(), free_port(), free_port()
        ports = {name: free_port() for name in (PLANNER_API, PLANNER_METRICS, API_METRICS)}
        processes = _processes(whole, proxies, clocks, ports)
        for process in processes.values():
            stack.callback(process.kill)
        yield Lab(cluster, proxies, processes, clocks, {**ports, REPORTS: whole.report_port})


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _processes(
    stack: Stack, proxies: Mapping[str, FaultProxy], clocks: Mapping[str, Clock | None], ports: Mapping[str, int]
) -> dict[str, Process]:
    cluster = stack.cluster
    config = {
        name: cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, f"tranche-{name}", url=proxy.url)
        for name, proxy in proxies.items()
    }
    metrics = ("--metrics-port", str(ports[PLANNER_METRICS]), "--api-metrics-port", str(ports[API_METRICS]))
    first = (stack.port, stack.report_port, stack.page_port, ports[PLANNER_API])
    commands = {
        "scheduler": [*stack.scheduler_command(config["scheduler"], *first), *metrics],
        "operator": stack.operator_command(config["operator"], stack.health_port),
        "standby": stack.scheduler_command(config["scheduler"], free_port(), free_port(), free_port()),
    }
    processes = {
        name: Process(
            name,
            [*_FEW_DESCRIPTORS, *command],
            cluster.directory / f"tranche-{name}.log",
            _environment(clocks.get(name)),
        )
        for name, command in commands.items()
    }
    processes["scheduler"].start()
    stack.start_kube_scheduler()
    processes["operator"].start()
    return processes


def _environment(clock: Clock | None) -> dict[str, str]:
    return {**os.environ, KEY_VARIABLE: "chaos", **(clock.environment if clock else {})}
