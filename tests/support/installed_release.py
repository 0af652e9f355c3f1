"""Programs of an installed release, run as its Deployments specify.

kwok's nodes run no containers. So the containers' commands, arguments and configuration are read back from the API
server and started here, each with a token of its pod's service account; only addresses and paths are adapted.
"""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.full_stack import System
from support.waiting import WAIT_SECONDS
from support.yaml_text import load_yaml
from tranche_testcluster import Cluster, ensure, free_port, spawn, stop

STOP_SECONDS = 10.0
PORT_FLAGS = (
    "--port",
    "--report-port",
    "--report-http-port",
    "--page-port",
    "--planner-port",
    "--metrics-port",
    "--health-port",
)
TLS_HOST = "localhost"
"""Name in the certificate of the report API, in place of the names of its Service."""
HOST_FLAGS = ("--host", "--page-host", "--report-host", "--planner-host", "--metrics-host")
MODULES = {"tranche": "tranche", "tranche-operator": "tranche_operator"}
HOST = "127.0.0.1"
CONTAINERS = ("extender", "planner", "api", "scheduler")
AUDIENCE = "planner.tranche.dev"
"""Audience of the token that the chart mounts into the container of the API."""


@dataclass
class Release:
    """Processes of the release in a namespace; a context manager."""

    cluster: Cluster
    namespace: str = "tranche-system"
    sources: Path | None = None
    """Checkout with the programs; default: this one."""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _serves_tls: bool = False
    ports: dict[str, int] = field(default_factory=dict)
    """Ports by container and flag, as in ``api--report-port``."""

    def __enter__(self) -> Self:
        try:
            self.start()
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
        return f"http://{HOST}:{self._scheduler_port('--port')}"

    @property
    def report_url(self) -> str:
        """URL of the report API."""
        port = self._scheduler_port("--report-port")
        return f"https://{TLS_HOST}:{port}" if self._serves_tls else f"http://{HOST}:{port}"

    def report_ca(self) -> Path:
        """Write the published CA of the report API to a file, and return the file."""
        file = self._file("reports-ca", "crt")
        file.write_text(self._read("api/v1", "configmaps/tranche-reports-ca")["data"]["ca.crt"])
        return file

    def report_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of a client of the report API; None if it is served over HTTP."""
        return ssl.create_default_context(cafile=str(self.report_ca())) if self._serves_tls else None

    @property
    def page_url(self) -> str:
        """URL of the web page."""
        return f"http://{HOST}:{self._scheduler_port('--page-port')}"

    def _scheduler_port(self, name: str) -> int:
        """Return a port by its flag or its number in the pod; earlier charts have one container for all of them."""
        return next(self.ports[key] for one in CONTAINERS if (key := f"{one}{name}") in self.ports)

    def log(self, name: str) -> str:
        """Return the log of a container."""
        return self._file(name, "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the containers of all Deployments as they are now, and wait until their probes pass."""
        deployments = self._read("apis/apps/v1", "deployments")["items"]
        templates = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in deployments}
        for name in sorted(templates, reverse=True):  # the scheduler first: the operator needs its report port
            for container in templates[name]["containers"]:
                self._start(container, templates[name])
        for name in templates:
            for container in templates[name]["containers"]:
                self._wait(container)

    def stop(self) -> None:
        """Stop them as the kubelet does, all at once."""
        stop(self.processes.values(), STOP_SECONDS)
        self.processes.clear()

    def address(self, url: str) -> str:
        """Return the address on this machine for a URL of one of the release's Services."""
        for service in self._read("api/v1", "services")["items"]:
            name = service["metadata"]["name"]
            for port in service["spec"]["ports"]:
                scheme, host = ("https", TLS_HOST) if port["port"] == 443 else ("http", HOST)
                number = "" if port["port"] in (80, 443) else f":{port['port']}"
                outside = f"{scheme}://{name}.{self.namespace}.svc{number}"
                if url == outside or url.startswith(f"{outside}/"):
                    return f"{scheme}://{host}:{self._target(service, port['targetPort'])}{url.removeprefix(outside)}"
        raise AssertionError(f"no Service of the release answers at {url}")

    def _target(self, service: Mapping[str, Any], target: str) -> int:
        """Return the port here of the container whose pod the Service selects and whose port has that name."""
        for deployment in self._read("apis/apps/v1", "deployments")["items"]:
            template = deployment["spec"]["template"]
            if service["spec"]["selector"].items() <= template["metadata"]["labels"].items():
                for container in template["spec"]["containers"]:
                    for port in container.get("ports", ()):
                        if port["name"] == target:
                            return self.ports[f"{container['name']}:{port['containerPort']}"]
        raise AssertionError(f"{service['metadata']['name']} selects no container with the port {target}")

    def _start(self, container: Mapping[str, Any], pod: Mapping[str, Any]) -> None:
        name = container["name"]
        account = self.cluster.service_account_kubeconfig(self.namespace, pod["serviceAccountName"])
        program, *words = container["command"]
        words += container["args"]
        if program in MODULES:
            arguments = [self._adapted(name, word) for word in words]
            command = [sys.executable, "-m", MODULES[program], *arguments, f"--kubeconfig={account}"]
        else:
            command = self._kube_scheduler(container, pod, words, account)
        self.processes[name] = spawn(command, log=self._file(name, "log"), env=self._environment())

    def _environment(self) -> dict[str, str] | None:
        if self.sources is None:
            return None
        folders = (str(self.sources / name) for name in ("scheduler", "operator"))
        return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}

    def _adapted(self, name: str, word: str) -> str:
        """Return an argument with addresses of this machine in place of the pod's and the Services'."""
        flag, _, value = word.partition("=")
        if flag in PORT_FLAGS:
            return f"{flag}={self._port(name, flag, int(value))}"
        if flag in HOST_FLAGS:
            assert value in ("", "$(POD_IP)", "0.0.0.0", HOST)
            return f"{flag}={HOST}"
        if flag == "--report-url":
            return f"{flag}={self.address(value)}"
        if flag == "--report-tls-host":
            self._serves_tls = True
            return f"{flag}={TLS_HOST}"
        if flag == "--tenancy-dir":
            return f"{flag}={self._tenancy()}"
        if flag == "--planner-token-file":
            file = self._file(name, "token")
            words = ("create", "token", "tranche-scheduler", "-n", self.namespace, f"--audience={AUDIENCE}")
            file.write_text(self.cluster.kubectl(*words))
            return f"{flag}={file}"
        return word

    def _tenancy(self) -> Path:
        """Write the ConfigMap with the limits of namespaces to a directory, as the kubelet mounts it."""
        folder = self._file("tenancy", "d")
        folder.mkdir(exist_ok=True)
        for key, value in self._read("api/v1", "configmaps/tranche-tenancy")["data"].items():
            (folder / key).write_text(value)
        return folder

    def _port(self, name: str, flag: str, inside: int) -> int:
        port = self.ports.setdefault(f"{name}{flag}", free_port())
        self.ports[f"{name}:{inside}"] = port
        return port

    def _kube_scheduler(
        self, container: Mapping[str, Any], pod: Mapping[str, Any], words: list[str], account: Path
    ) -> list[str]:
        mount = next(m for m in container["volumeMounts"] if f"--config={m['mountPath']}/config.yaml" in words)
        volume = next(v for v in pod["volumes"] if v["name"] == mount["name"])
        data = self._read("api/v1", f"configmaps/{volume['configMap']['name']}")["data"]
        config = load_yaml(data["config.yaml"])
        config["clientConnection"]["kubeconfig"] = str(account)
        for extender in config["extenders"]:
            inside = int(extender["urlPrefix"].rpartition(":")[2])
            extender["urlPrefix"] = f"http://{HOST}:{self._scheduler_port(f':{inside}')}"
        file = self._file(container["name"], "yaml")
        file.write_text(json.dumps(config))
        port = self._port(container["name"], "--secure-port", container["ports"][0]["containerPort"])
        keys = self.cluster.directory
        return [
            str(ensure("kube-scheduler")["kube-scheduler"]),
            *(f"--config={file}" if word.startswith("--config=") else word for word in words),
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={keys / 'server.crt'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--authentication-kubeconfig={account}",
            f"--authorization-kubeconfig={account}",
        ]

    def _wait(self, container: Mapping[str, Any]) -> None:
        """Send the probes that the kubelet would send, until each of them succeeds."""
        name, deadline = container["name"], time.monotonic() + WAIT_SECONDS
        numbers = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[kind].get("httpGet")
            if probe is None:  # the previous chart probes from inside
                url = f"{self.url}/readyz"
            else:
                port = self.ports[f"{name}:{numbers[probe['port']]}"]
                url = f"{probe['scheme'].lower()}://{HOST}:{port}{probe['path']}"
            while not self._answers(url):
                ended = self.processes[name].poll()
                quoted = "\n".join(self.log(name).splitlines()[-15:])
                assert ended is None, f"{name} ended with {ended}:\n{quoted}"
                assert time.monotonic() < deadline, f"{kind} of {name} fails:\n{quoted}"
                time.sleep(0.05)

    def _answers(self, url: str) -> bool:
        tls = self.cluster._tls() if url.startswith("https") else None
        try:
            with urllib.request.urlopen(url, timeout=5, context=tls) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def _read(self, group: str, what: str) -> Any:
        status, answer = self.cluster.request("GET", f"/{group}/namespaces/{self.namespace}/{what}")
        assert status == 200, answer
        return answer

    def _file(self, name: str, suffix: str) -> Path:
        return self.cluster.directory / f"release-{name}.{suffix}"


class Installed(System):
    """Cluster with an installed release on it, without a local stack."""

    def __init__(self, cluster: Cluster, release: Release) -> None:
        self.cluster = cluster
        self.release = release
