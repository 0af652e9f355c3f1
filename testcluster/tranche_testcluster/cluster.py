"""Kubernetes control plane of plain processes, for tests, benchmarks and the demo."""

import json
import os
import shutil
import signal as signals
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from . import command_lines, pod_log, site
from . import kubeconfig as kubeconfigs
from .binaries import binary_cache
from .certificate import Authority, signing_keys, write_secret
from .client import Client
from .component import Component
from .errors import ClusterError
from .etcd import gateway as etcd_gateway
from .etcd import history as etcd_history
from .fault_proxy import FaultProxy
from .scaling import Scaling
from .workspace import HOST, Workspace

_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
_PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kwok")
_STAGES = Path(__file__).parent / "stages"
_USERS = {  # component: (user, group), the ones that Kubernetes' own RBAC bindings name
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kwok": ("kwok", "system:masters"),
    "autoscaler": ("autoscaler", "system:masters"),
}
_ATTEMPTS = 3
_TOKEN_SECONDS = 86_400
_PROBE_SECONDS = 2.0
_HAND_OVER_SECONDS = 60.0
_KWOK_STARTS = 30  # until one respects leases: each does with a probability of one half
_CLASH = "address already in use"
_DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class Cluster:
    """Cluster of etcd, kube-apiserver, kube-controller-manager and kwok, and on request kube-scheduler.

    A context manager; several may run at once. Everything it starts dies with this process, however that ends.
    Its methods are for one thread, except ``request``, which is for any.
    """

    directory: Path
    kubeconfig: Path
    url: str

    def __init__(
        self,
        keep_directory: Path | None = None,
        *,
        node_lease_seconds: int = 40,
        extra_flags: Mapping[str, Sequence[str]] | None = None,
        pod_logs: Mapping[str, str] | None = None,
        pod_address: str = "",
        initial_state: Path | None = None,
    ) -> None:
        """Describe a cluster; entering the context starts it.

        Args:
            keep_directory: Folder for logs, keys and data; emptied at the start and kept (default: a temporary
                folder, removed at the end).
            node_lease_seconds: A silent node counts as lost after 5/4 of it (Kubernetes checks every five seconds).
            extra_flags: Further command line flags by component, such as ``{"kube-apiserver": ["--v=4"]}``.
            pod_logs: Logs of pods by their keys (``default/cats-worker-0-1``); others have no log.
            pod_address: Address of this machine where containers of real nodes reach the API server, which then listens
                on all addresses (default: none; it listens on 127.0.0.1).
            initial_state: Folder written by ``save_state`` of another cluster; it is copied (default: no objects).
        """
        self._keep = keep_directory
        self._lease_seconds = node_lease_seconds
        self._extra_flags = dict(extra_flags or {})
        self._pod_logs = dict(pod_logs or {})
        self._pod_address = pod_address
        self._initial_state = initial_state
        self._components: dict[str, Component] = {}
        self._clients: list[Client] = []
        self._workspace: Workspace | None = None

    def __enter__(self) -> Self:
        """Start everything but the scheduler and wait until pods can be created.

        Raises:
            ClusterError: A component does not start (its log is quoted) or a binary is missing.
        """
        programs = binary_cache.ensure(*_PROGRAMS)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._open(programs)
            except BaseException as error:
                self.close()
                if not (isinstance(error, ClusterError) and _CLASH in str(error) and attempt < _ATTEMPTS):
                    raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes at once and remove the folder; a second call has no effect."""
        for component in self._components.values():
            component.stop(signals.SIGKILL)
        self._components.clear()
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        user: str = "",
        accept: str = "",
    ) -> tuple[int, Any]:
        """Send one request to the API server as its administrator; any thread may.

        Args:
            method: Method of HTTP.
            path: Path with its query.
            body: Object, sent as JSON, or text.
            content_type: Type of the body.
            user: User for whom the administrator sends it, an authenticated one without further groups, as with
                ``kubectl --as`` (default: the administrator).
            accept: Media type of the answer (default: that of the API server).

        Returns:
            The status and the answer, an object if it is JSON, else text.

        Raises:
            OSError: The API server cannot be reached.
        """
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:authenticated"} if user else {}
        headers |= {"Accept": accept} if accept else {}
        return self._admin.request(method, path, body, content_type, headers)

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """Run kubectl as administrator and return its output, without its errors.

        Raises:
            ClusterError: kubectl failed and ``check`` is set; the text is its error output.
        """
        command = [
            str(self._layout.binaries["kubectl"]),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.directory / 'kubectl-cache'}",
            *arguments,
        ]
        answer = subprocess.run(command, input=input, capture_output=True, text=True, check=False)  # noqa: S603
        if check and answer.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
        return answer.stdout

    def add_site(
        self,
        name: str,
        nodes: int = 1,
        gpus: int = 0,
        cpu: str = "32",
        memory: str = "128Gi",
        extra_labels: Mapping[str, str] | None = None,
        *,
        gpu_resource: str = site.GPU,
        timeout: float = 120.0,
    ) -> list[str]:
        """Create the nodes ``name-0``, ``name-1``, … in the zone ``name`` and return their names when they are usable.

        Pods on removed nodes of these names continue.

        Args:
            name: Name of the site, which is the value of the nodes' zone label.
            nodes: Number of nodes.
            gpus: GPUs of each node.
            cpu: CPU of each node.
            memory: Memory of each node.
            extra_labels: Further labels of each node.
            gpu_resource: Resource name of the GPUs.
            timeout: Maximum wait in seconds.
        """
        capacity = {"cpu": cpu, "memory": memory, "pods": "110"}
        if gpus:
            capacity[gpu_resource] = str(gpus)
        names = [f"{name}-{number}" for number in range(nodes)]
        labels, port = extra_labels or {}, self._ports["kwok"]
        site.create(self._admin, [site.node(name, node, capacity, labels, port) for node in names], timeout)
        site.nudge(self._admin, names)
        return names

    def remove_site(self, name: str) -> None:
        """Delete all nodes of a site; kube-controller-manager then removes their pods."""
        site.remove(self._admin, name)

    def silence(self, node: str) -> None:
        """Disconnect a node: no heartbeats, and no pod on it starts or notices its deletion.

        It counts as lost (Ready=Unknown) after 5/4 of ``node_lease_seconds``. A pod that would have ended by itself
        still does, because kwok has already scheduled that. A kwok that ignores leases is replaced now; one that is
        restarted while a node is silent may start the pods that wait there.
        """
        site.silence(self._admin, node)
        self._require_leases(node)

    def revive(self, node: str) -> None:
        """Undo ``silence`` and wait until kwok is back, which takes a quarter of ``node_lease_seconds``."""
        self._hand_over(site.release(self._admin, node))

    def save_state(self, target: Path) -> None:
        """Stop all components and write their objects to a folder, from which other clusters can start.

        A cluster that starts from it has its own keys, and needs half of the CPU time of one that starts from nothing.
        """
        # The next cluster is ready when its kube-controller-manager has created this account again.
        self.stop("kube-controller-manager")
        self.request("DELETE", _DEFAULT_ACCOUNT)
        for name in reversed(self._components):
            self.stop(name)
        _copy(self._layout.etcd_data, target)

    def proxy(self, seed: int = 0) -> FaultProxy:
        """Return a proxy in front of the API server, to be entered; its certificate is the API server's."""
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        return FaultProxy(self.url, seed=seed, serving=serving, trusting=self._tls())

    def history(self, *resources: str) -> list[etcd_history.Change]:
        """Return all changes of these resources so far; see `etcd.history` for their names and the required flags."""
        return etcd_history.read(self._ports["etcd"], resources)

    def stored_bytes(self, resource: str) -> dict[str, int]:
        """Return the bytes of the stored objects of a resource; see `etcd.history.sizes`."""
        return etcd_history.sizes(self._ports["etcd"], resource)

    def back_up(self, target: Path) -> None:
        """Write the data of etcd to a folder, from which `restore` returns to this state. etcd is stopped meanwhile."""
        self.stop("etcd")
        _copy(self._layout.etcd_data, target)
        self.start("etcd")

    def restore(self, source: Path) -> None:
        """Return to the state of a backup, with its resource versions, and restart the programs of Kubernetes."""
        programs = [name for name in self._components if name not in ("etcd", "kube-apiserver", "kwok")]
        for name in (*programs, "kube-apiserver", "etcd"):
            self.stop(name)
        shutil.rmtree(self._layout.etcd_data)
        _copy(source, self._layout.etcd_data)
        for name in ("etcd", "kube-apiserver", *programs):
            self.start(name)

    def set_etcd_full(self, *, full: bool) -> None:
        """Let etcd refuse all writes except deletions, as when its quota for data is used up, or accept them again.

        kwok does not repeat refused writes, so it is restarted when writes are accepted again.
        """
        etcd_gateway.set_full(self._ports["etcd"], full=full)
        if not full:
            self._restart_kwok()

    def service_account_kubeconfig(self, namespace: str, name: str, *, url: str | None = None) -> Path:
        """Write a kubeconfig with a token of a service account, so that RBAC is enforced.

        Args:
            namespace: Namespace of the account.
            name: Name of the account.
            url: URL of a proxy; default: the API server itself.

        Raises:
            ClusterError: The account does not exist.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        status, answer = self.request("POST", path, {"spec": {"expirationSeconds": _TOKEN_SECONDS}})
        if status != 201:
            raise ClusterError(f"no token for the service account {namespace}/{name}: {status} {answer}")
        target = self.directory / f"{namespace}.{name}.kubeconfig"
        return kubeconfigs.write_with_token(target, url or self.url, self._authority, name, answer["status"]["token"])

    def certificate_kubeconfig(self, user: str, group: str = "", name: str = "") -> Path:
        """Write a kubeconfig with a client certificate of a user, such as the kubelet of a real node.

        Args:
            user: Name of the user.
            group: Its group.
            name: Name of the file (default: the user's).
        """
        target = self.directory / f"{name or user.replace(':', '.')}.kubeconfig"
        url = f"https://{self._pod_address or HOST}:{self._ports['kube-apiserver']}"
        return kubeconfigs.write_with_certificate(target, url, self._authority, user, self._issuer.issue(user, group))

    def start_scheduler(
        self,
        config: Mapping[str, Any] | str | None = None,
        name: str = "kube-scheduler",
        program: Path | None = None,
    ) -> None:
        """Start a kube-scheduler, in place of a running one of the same component name, and wait until it is ready.

        Args:
            config: A KubeSchedulerConfiguration as an object or YAML (default: Kubernetes' own). Without a
                ``clientConnection`` it gets one that does not throttle, without a ``leaderElection`` none.
            name: Name of the component, for ``stop``, ``start``, ``pid`` and ``logs``.
            program: Executable with the flags of kube-scheduler (default: Kubernetes' own).
        """
        configuration = yaml.safe_load(config) if isinstance(config, str) else dict(config or {})
        kubeconfig = self._layout.kubeconfig("kube-scheduler")
        connection = {
            "kubeconfig": str(kubeconfig),
            "qps": command_lines.CLIENT_QPS,
            "burst": command_lines.CLIENT_QPS * 2,
        }
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            **configuration,
            "clientConnection": {**connection, **configuration.get("clientConnection", {})},
        }
        file = self.directory / f"{name}.yaml"
        file.write_text(json.dumps(whole, indent=1))
        if old := self._components.pop(name, None):
            old.stop()
        if name not in self._ports:
            self._ports[name] = self._space.port()
        command = command_lines.scheduler(self._layout, name, file, kubeconfig, program)
        client = Client(self._ports[name], self._tls(), timeout=_PROBE_SECONDS)
        self._add(name, command, client, "/readyz")
        self.start(name)

    def start_autoscaler(self, scaling: Scaling) -> str:
        """Start the stand-in for an autoscaler of a site, and wait until it has read the pods.

        An autoscaler that runs for this site is replaced.

        Returns:
            The name of the component, for ``stop``, ``start`` and ``logs``.
        """
        name = f"autoscaler-{scaling.site}"
        if old := self._components.pop(name, None):
            old.stop()
        if name not in self._ports:
            self._ports[name] = self._space.port()
        command = command_lines.autoscaler(self._layout, sys.executable, name, scaling.flags())
        client = Client(self._ports[name], timeout=_PROBE_SECONDS)
        package = str(Path(__file__).parents[1])  # a checkout need not be installed
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
        self._add(name, command, client, "/readyz", {"PYTHONPATH": path})
        self.start(name)
        return name

    def start(self, name: str) -> None:
        """Start a component again, with its data, and wait until it is ready.

        A kwok that met a stopping API server may have lost the write in progress, and it never
        repeats it. So with etcd or kube-apiserver a running kwok is restarted too, which loses no other state.
        A kube-controller-manager that was refused meanwhile may notice lost nodes only minutes later.
        """
        component = self._component(name)
        # Otherwise kwok would wait until the leases of its predecessor expire.
        nodes = site.release(self._admin) if name == "kwok" else []
        component.spawn()
        component.wait()
        self._hand_over(nodes)
        if name in ("etcd", "kube-apiserver"):
            self._restart_kwok()

    def stop(self, name: str, signal: int = signals.SIGTERM) -> None:
        """Send a component a signal that ends it and wait until it has."""
        self._component(name).stop(signal)

    def ended(self) -> list[Component]:
        """Return the components that have ended by themselves."""
        return [component for component in self._components.values() if component.exit_code is not None]

    def pid(self, name: str) -> int:
        """Return the process id of a running component, for signals that do not end it."""
        return self._component(name).pid

    def logs(self, name: str) -> str:
        """Return what a component has logged, over all its starts."""
        return self._component(name).log.read_text(errors="replace")

    # ---- internal

    @property
    def _space(self) -> Workspace:
        if self._workspace is None:
            raise ClusterError("the cluster is not running: use it as a context manager")
        return self._workspace

    def _open(self, programs: Mapping[str, Path]) -> None:
        self._workspace = Workspace(self._keep)
        self.directory = self._workspace.path
        self._ports = {name: self._workspace.port() for name in _PORTS}
        self.url = f"https://{HOST}:{self._ports['kube-apiserver']}"
        self._layout = command_lines.Layout(
            self.directory, programs, self._ports, self._lease_seconds, self._pod_address
        )
        (self.directory / "logs").mkdir()
        if self._initial_state is not None:
            _copy(self._initial_state, self._layout.etcd_data)
        self._write_keys()
        self.kubeconfig = self._layout.kubeconfig("admin")
        self._admin = Client(self._ports["kube-apiserver"], self._tls("admin"))
        self._describe()
        for name in ("etcd", "kube-apiserver"):  # the API server waits for etcd by itself
            self._components[name].spawn()
        for name in ("etcd", "kube-apiserver"):
            self._components[name].wait()
        for name in ("kube-controller-manager", "kwok"):
            self._components[name].spawn()
        for name in ("kube-controller-manager", "kwok"):
            self._components[name].wait()

    def _write_keys(self) -> None:
        self._issuer = authority = Authority()
        self._authority = authority.certificate
        (self.directory / "ca.crt").write_bytes(self._authority)
        names = [HOST, "10.96.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        names += [self._pod_address] if self._pod_address else []
        authority.issue("kube-apiserver", hosts=names).write(self.directory / "server")
        private, public = signing_keys()
        write_secret(self.directory / "tokens.key", private)
        (self.directory / "tokens.pub").write_bytes(public)
        for component, (user, group) in _USERS.items():
            pair = authority.issue(user, group)
            pair.write(self.directory / component)
            target = self._layout.kubeconfig(component)
            kubeconfigs.write_with_certificate(target, self.url, self._authority, user, pair)

    def _tls(self, client: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._authority.decode())
        if client:
            context.load_cert_chain(self.directory / f"{client}.crt", self.directory / f"{client}.key")
        return context

    def _describe(self) -> None:
        layout, ports = self._layout, self._ports
        self._add("etcd", command_lines.etcd(layout), Client(ports["etcd"], timeout=_PROBE_SECONDS), "/health")
        self._add("kube-apiserver", command_lines.apiserver(layout), self._admin, "/readyz")
        # Ready when pods can be created: the ServiceAccount admission requires the namespace's default account.
        command = command_lines.controller_manager(layout)
        self._add("kube-controller-manager", command, self._admin, _DEFAULT_ACCOUNT)
        configs = sorted(_STAGES.glob("*.yaml"))
        if self._pod_logs:
            configs.append(pod_log.write(self.directory / "pod-logs", self._pod_logs))
        environment = {"KWOK_WORKDIR": str(self.directory / "kwok")}  # not the user's ~/.kwok
        client = Client(ports["kwok"], timeout=_PROBE_SECONDS)
        self._add("kwok", command_lines.kwok(layout, configs), client, "/healthz", environment)

    def _hand_over(self, nodes: Sequence[str]) -> None:
        site.await_kwok(self._admin, nodes, _HAND_OVER_SECONDS + self._lease_seconds)
        site.nudge(self._admin, nodes)

    def _restart_kwok(self) -> None:
        server, kwok = self._component("kube-apiserver"), self._component("kwok")
        if server.running:
            server.wait()
            if kwok.running:
                kwok.stop(signals.SIGKILL)
                self.start("kwok")

    def _require_leases(self, silenced: str) -> None:
        """Restart kwok until it is one that respects leases; every second one does."""
        for _ in range(_KWOK_STARTS):
            if site.respects_leases(self._admin, silenced):
                return
            self._component("kwok").stop(signals.SIGKILL)
            self.start("kwok")
        raise ClusterError(f"kwok ignored the leases of its nodes in {_KWOK_STARTS} starts")

    def _add(
        self,
        name: str,
        command: Sequence[str | Path],
        client: Client,
        path: str,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._clients.append(client)
        log = self.directory / "logs" / f"{name}.log"
        flags = [*command, *self._extra_flags.get(name, ())]
        self._components[name] = Component(name, flags, log, lambda: client.ok(path), env)

    def _component(self, name: str) -> Component:
        if name not in self._components:
            raise ClusterError(f"no component {name}; there are {', '.join(self._components) or 'none'}")
        return self._components[name]


def _copy(source: Path, target: Path) -> None:
    """Copy the data of a stopped etcd, whose files of 64 MB are nearly all zeros, without blocks for the zeros."""
    subprocess.run(["cp", "--recursive", "--sparse=always", source, target], check=True)  # noqa: S603, S607
