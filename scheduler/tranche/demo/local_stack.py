"""tranche on a test cluster: manifests, and scheduler, kube-scheduler and operator as processes.

Each process uses the token of its own ServiceAccount, so a verb that is missing in manifests/rbac.yaml is rejected as
in production.
"""

import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

import tranche
from tranche.planner_api.messages import KEY_VARIABLE
from tranche_testcluster import Cluster, ClusterError, free_port, spawn, stop

SYSTEM_NAMESPACE = "tranche-system"
READY_SECONDS = 120.0
API = "/apis/tranche.dev/v1alpha1"
RESOURCES = ("trainingjobs", "sites")
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""Media type of the aggregated discovery document."""
STOP_SECONDS = 5.0
KUBE_SCHEDULER = "tranche-kube-scheduler"
"""Component name of the second kube-scheduler."""


def manifests() -> Path:
    """Return the directory of manifests, in the installed package or at the root of a checkout."""
    package = Path(tranche.__file__).parent
    inside = package / "manifests"
    return inside if inside.is_dir() else package.parents[1] / "manifests"


def apply_manifests(cluster: Cluster) -> None:
    """Install CRDs, priority classes, RBAC and the policy of the web page, and wait until clients can use the CRDs.

    Raises:
        ClusterError: a manifest is rejected, or the CRDs are not served in time.
    """
    folder = manifests()
    cluster.kubectl("apply", "-f", str(folder / "crds"), "-f", str(folder / "priorityclasses.yaml"))
    cluster.kubectl("apply", "-f", str(folder / "rbac.yaml"), "-f", str(folder / "page-policy.yaml"))
    await_kinds(cluster)


def await_kinds(cluster: Cluster) -> None:
    """Wait until the API server serves our CRDs and publishes them to clients.

    It does so in steps, each with a controller of its own: it serves the resources, lists them in its discovery
    document, where kubectl and helm look for kinds, and adds their schemas to its OpenAPI documents.

    Raises:
        ClusterError: if that takes too long.
    """
    paths = [f"{API}/{name}" for name in RESOURCES] + [f"/openapi/v3{API}"]
    deadline = time.monotonic() + READY_SECONDS
    while not (all(cluster.request("GET", path)[0] == 200 for path in paths) and _is_discovered(cluster)):
        if time.monotonic() > deadline:
            raise ClusterError(f"the CRDs are not served after {READY_SECONDS:g} s")
        time.sleep(0.05)


def _is_discovered(cluster: Cluster) -> bool:
    """Return whether the aggregated discovery document, which kubectl reads, lists all our kinds."""
    _, document = cluster.request("GET", "/apis", accept=DISCOVERY)
    groups = {item["metadata"]["name"]: item for item in document.get("items", ())}
    versions = groups.get("tranche.dev", {}).get("versions", ())
    return any(set(RESOURCES) <= {item["resource"] for item in version.get("resources", ())} for version in versions)


@dataclass
class Stack:
    """Scheduler, operator and second kube-scheduler on a running cluster."""

    cluster: Cluster
    policy: str = "chunk"
    scheduler_options: Sequence[str] = ()
    operator_options: Sequence[str] = ()
    port: int = 0
    report_port: int = 0
    page_port: int = 0
    health_port: int = 0
    api_url: str | None = None
    """URL of the API server for the scheduler, such as that of a proxy; default: the API server itself."""
    planner_ports: dict[str, int] = field(default_factory=dict)
    """Port of the planner's metrics by scheduler replica."""
    api_ports: dict[str, int] = field(default_factory=dict)
    """Port of the metrics of the API process by scheduler replica."""
    page_ports: dict[str, int] = field(default_factory=dict)
    """Port of the web page by scheduler replica."""
    report_ports: dict[str, int] = field(default_factory=dict)
    """Port of the report API by scheduler replica."""
    key: str = field(default_factory=secrets.token_urlsafe)
    """Key with which the API process of a replica reports to the planner of another one."""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    """Command of each process, by its name."""

    def __enter__(self) -> Self:
        """Start everything and wait until it is ready.

        Raises:
            ClusterError: a process ends or does not become ready; the message has its last log lines.
        """
        self.port, self.health_port = self.port or free_port(), self.health_port or free_port()
        self.report_port, self.page_port = self.report_port or free_port(), self.page_port or free_port()
        try:
            self.start_scheduler()
            self.start_kube_scheduler()
            self.start_operator()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """URL of the extender."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def planner_url(self) -> str:
        """URL of the planner's metrics."""
        return f"http://127.0.0.1:{self.planner_ports['scheduler']}"

    @property
    def report_url(self) -> str:
        """URL of the report API."""
        return f"http://127.0.0.1:{self.report_port}"

    @property
    def page_url(self) -> str:
        """URL of the web page and the read API."""
        return f"http://127.0.0.1:{self.page_port}"

    def log(self, name: str) -> Path:
        """Return the log file of the process `scheduler` or `operator`."""
        return self.cluster.directory / f"tranche-{name}.log"

    def start_scheduler(self, name: str = "scheduler", port: int | None = None) -> None:
        """Start or restart the scheduler, or another replica, and wait until its watches are synced."""
        first = (self.port, self.report_port, self.page_port)
        ports = first if port is None else (port, free_port(), free_port())
        self.report_ports[name], self.page_ports[name] = ports[1:]
        self.planner_ports[name], self.api_ports[name] = free_port(), free_port()
        metrics_ports = (self.planner_ports[name], self.api_ports[name])
        kubeconfig = self.cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, "tranche-scheduler", url=self.api_url)
        flags = zip(("--metrics-port", "--api-metrics-port"), map(str, metrics_ports), strict=True)
        command = [*self.scheduler_command(kubeconfig, *ports, free_port()), *chain.from_iterable(flags)]
        probed = [f"http://127.0.0.1:{port}/readyz" for port in (ports[0], *metrics_ports)]
        self._start(name, command, *probed)

    def scheduler_command(
        self, kubeconfig: Path, port: int, report_port: int, page_port: int, planner_port: int = 0
    ) -> list[str]:
        """Return the command line of the scheduler."""
        command = [sys.executable, "-m", "tranche", "scheduler", "--kubeconfig", str(kubeconfig)]
        command += ["--port", str(port), "--policy", self.policy, "--report-port", str(report_port)]
        command += [
            "--page-port",
            str(page_port),
            "--page-actions",
            "--page-what-if",
            "--planner-port",
            str(planner_port),
        ]
        return [*command, *self.scheduler_options]

    def start_kube_scheduler(self) -> None:
        """Start or restart the kube-scheduler that uses the extender."""
        self.cluster.start_scheduler(self._scheduler_config(), name=KUBE_SCHEDULER)

    def start_operator(self, name: str = "operator", health_port: int | None = None) -> None:
        """Start or restart the operator, or another replica, and wait until it is healthy."""
        kubeconfig = self.cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, "tranche-operator")
        port = self.health_port if health_port is None else health_port
        self._start(name, self.operator_command(kubeconfig, port), f"http://127.0.0.1:{port}/healthz")

    def operator_command(self, kubeconfig: Path, health_port: int) -> list[str]:
        """Return the command line of the operator."""
        command = [sys.executable, "-m", "tranche_operator", "--kubeconfig", str(kubeconfig)]
        command += ["--health-port", str(health_port), "--report-url", self.report_url]
        return [*command, *self.operator_options]

    def kill(self, name: str) -> None:
        """Kill a process and its children with SIGKILL, as in a crash of its machine."""
        self.signal(name, signal.SIGKILL)
        self.processes.pop(name).wait()

    def ended(self) -> dict[str, int]:
        """Return the exit codes of processes of the stack and of its cluster that have ended, by name."""
        codes = {name: process.poll() for name, process in self.processes.items()}
        codes |= {component.name: component.exit_code for component in self.cluster.ended()}
        return {name: code for name, code in codes.items() if code is not None}

    def command_line(self, name: str) -> str:
        """Return the command for a shell that starts an ended process again."""
        if name in self.commands:
            return shlex.join(self.commands[name])
        return next(component.command_line for component in self.cluster.ended() if component.name == name)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process and its children."""
        os.killpg(self.processes[name].pid, number)

    def stop(self) -> None:
        """Stop the processes, the last one first; the cluster keeps running."""
        stop(reversed(self.processes.values()), STOP_SECONDS)
        self.processes.clear()

    def _start(self, name: str, command: list[str], *probes: str) -> None:
        self.commands[name] = command
        environment = {**os.environ, KEY_VARIABLE: self.key}
        process = self.processes[name] = spawn(command, log=self.log(name), env=environment)
        for probe in probes:
            _wait(lambda probe=probe: _answers(probe), process, self.log(name))  # type: ignore[misc]

    def _scheduler_config(self) -> dict[str, Any]:
        """Return manifests/scheduler-config.yaml with this extender's port."""
        config: dict[str, Any] = yaml.safe_load((manifests() / "scheduler-config.yaml").read_text())
        if config.get("kind") == "ConfigMap":
            config = yaml.safe_load(next(iter(config["data"].values())))
        for extender in config["extenders"]:
            extender["urlPrefix"] = self.url
        config.pop("leaderElection", None)
        config.pop("clientConnection", None)
        return config


def _wait(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            state = f"ended with {process.returncode}" if ended else f"is not ready after {READY_SECONDS:g} s"
            raise ClusterError(f"{log.stem} {state}:\n{tail}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - always our own http address
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
