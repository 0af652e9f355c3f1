"""Real node of a test cluster: kubelet, kube-proxy, containerd, a device plugin for GPUs, and containers made by runc.

A node changes of the machine only what `reservation.Names` lists; the rest is in namespaces of its own (`namespace`).
"""

import signal as signals
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from .. import site as sites
from ..binaries import binary_cache, debian_package
from ..cluster import Cluster
from ..command_lines import REAL_LABEL
from ..errors import ClusterError
from ..images import program_image
from . import configuration
from .namespace import Child, Namespace
from .network import Link, Network
from .reservation import Reservation

_READY_SECONDS = 60.0
_Part = TypeVar("_Part")


class RealNode:
    """Node whose pods are real containers; a context manager, within that of its cluster.

    Several may run at once, of any clusters. All its processes die with this process. After the end the Node object
    remains, as that of a machine that is switched off.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        name: str,
        *,
        site: str,
        gpus: int = 0,
        gpu_resource: str = sites.GPU,
        labels: Mapping[str, str] | None = None,
        images: Sequence[Path] = (),
    ) -> None:
        """Describe a node; entering the context starts it.

        Args:
            cluster: Running cluster, with the network's address as its `pod_address`.
            network: Network of the cluster's real nodes.
            name: Name of the node.
            site: Value of its zone label.
            gpus: Number of devices that its device plugin advertises, named gpu-0, gpu-1, ….
            gpu_resource: Resource name of the GPUs.
            labels: Further labels.
            images: Archives of the images that its pods use.
        """
        self.name, self.gpus = name, gpus
        self._cluster, self._network, self._resource = cluster, network, gpu_resource
        self._images = tuple(images)
        self._labels = {sites.ZONE: site, REAL_LABEL: "true", **(labels or {})}
        self._failed: set[str] = set()
        self._components: dict[str, Child] = {}
        self._namespace: Namespace | None = None
        self._reservation: Reservation | None = None
        self._link: Link | None = None

    def __enter__(self) -> Self:
        """Start the node and wait until it can run pods.

        Raises:
            ClusterError: A program is missing, ends, or is not ready in time.
        """
        self._programs = {
            **binary_cache.ensure("kubelet", "kube-proxy", "device-plugin", "pause"),
            **debian_package.ensure(debian_package.CONTAINERD),
        }
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes of the node and remove what it has created; a second call has no effect."""
        if self._namespace is not None:
            self._namespace.close(signals.SIGKILL)
            self._namespace = None
        for component in self._components.values():
            component.stop(signals.SIGKILL)
        self._components.clear()
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        if self._link is not None:
            self._network.disconnect(self._link)
            self._link = None

    @property
    def address(self) -> str:
        """IP address of the node."""
        return _running(self._link).address

    def limit_bandwidth(self, megabits: float) -> None:
        """Limit the bandwidth from other nodes and from the machine to this node, in megabits per second."""
        self._network.limit(_running(self._link), megabits)

    def allocatable(self, resource: str) -> int:
        """Return the allocatable number of an extended resource, 0 if the node has none."""
        return int(self._status().get("allocatable", {}).get(resource, 0))

    def set_health(self, device: str, *, healthy: bool) -> None:
        """Let the device plugin report a device as healthy or as failed."""
        (self._failed.discard if healthy else self._failed.add)(device)
        self._write_devices()

    def stop(self, name: str, signal: int = signals.SIGTERM) -> None:
        """Send `kubelet`, `kube-proxy`, `containerd` or `device-plugin` a signal that ends it, and wait for its end."""
        self._component(name).stop(signal)

    def start(self, name: str) -> None:
        """Start a program again and wait until it is ready."""
        component = self._component(name)
        component.spawn()
        component.wait(_READY_SECONDS)

    def pid(self, name: str) -> int:
        """Return the process id of a running program of the node."""
        return self._component(name).pid

    def import_image(self, archive: Path) -> None:
        """Import a docker-archive or OCI archive; pods use its images with `imagePullPolicy: Never` or `IfNotPresent`.

        Raises:
            ClusterError: containerd rejects it.
        """
        self._run(self._programs["ctr"], "--namespace=k8s.io", "images", "import", archive)

    def kill_container(self, container_id: str) -> None:
        """Kill the main process of a container with SIGKILL.

        Args:
            container_id: `containerID` of a container's status.

        Raises:
            ClusterError: The container does not run here.
        """
        name = container_id.removeprefix("containerd://")
        self._run(self._programs["ctr"], "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", name)

    # ---- internal

    def _open(self) -> None:
        self._reservation = Reservation()
        names = self._reservation.names
        names.create()
        folder = names.folder
        (folder / "networks").mkdir()
        (folder / "lib" / "kubelet" / "device-plugins").mkdir(parents=True)
        configuration.write_containerd(folder / "containerd.toml", self._bin, folder / "networks")
        (folder / "resolv.conf").write_text("")
        self._write_devices()
        self._namespace = Namespace(folder, self._log("namespace"))
        self._namespace.open()
        self._link = link = self._network.connect(self._namespace.pid)
        configuration.write_network(folder / "networks" / "10-node.conflist", link)
        authority = self._cluster.directory / "ca.crt"
        configuration.write_kubelet(folder / "kubelet.json", names, link, authority, folder / "resolv.conf")
        proxy = self._cluster.certificate_kubeconfig("system:kube-proxy", name=f"{self.name}.kube-proxy")
        configuration.write_proxy(folder / "proxy.json", self.name, proxy, link)
        path = {"PATH": f"{self._bin}:/usr/sbin:/usr/bin:/sbin:/bin"}  # containerd starts its shim from there
        command: list[str | Path] = [self._programs["containerd"], f"--config={folder / 'containerd.toml'}"]
        self._add("containerd", command, self._serves_containers, path)
        self.start("containerd")
        for archive in (program_image.archive(configuration.PAUSE_IMAGE, self._programs["pause"]), *self._images):
            self.import_image(archive)
        self._add("kubelet", self._kubelet(folder), self._is_ready)
        self.start("kubelet")
        command = [self._programs["kube-proxy"], f"--config={folder / 'proxy.json'}"]
        self._add("kube-proxy", command, self._serves_services)
        self.start("kube-proxy")
        if self.gpus:
            command = [self._programs["device-plugin"], f"-folder={configuration.DEVICE_PLUGINS}"]
            command += [f"-devices={folder / 'devices'}", f"-resource={self._resource}"]
            self._add("device-plugin", command, lambda: self.allocatable(self._resource) > 0)
            self.start("device-plugin")

    def _kubelet(self, folder: Path) -> list[str | Path]:
        kubeconfig = self._cluster.certificate_kubeconfig(f"system:node:{self.name}", "system:nodes")
        return [
            self._programs["kubelet"],
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in self._labels.items())}",
            "--v=2",
        ]

    @property
    def _bin(self) -> Path:
        return self._programs["containerd"].parent

    def _add(
        self, name: str, words: Sequence[str | Path], ready: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> None:
        command = _running(self._namespace).command(words)
        self._components[name] = Child(f"{name} of {self.name}", command, self._log(name), ready, env)

    def _log(self, name: str) -> Path:
        return self._cluster.directory / "logs" / f"{self.name}-{name}.log"

    def _write_devices(self) -> None:
        names = [f"gpu-{number}" for number in range(self.gpus)]
        text = "".join(f"{name}{' Unhealthy' if name in self._failed else ''}\n" for name in names)
        file = _running(self._reservation).names.folder / "devices"
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").replace(file)  # the plugin never reads half of it

    def _serves_containers(self) -> bool:
        try:
            self._run(self._programs["ctr"], "version")
        except ClusterError:
            return False
        return True

    def _serves_services(self) -> bool:
        """Return whether kube-proxy has written the rules of the Service `kubernetes`."""
        return "KUBE-SERVICES" in self._run("iptables-save", "--table=nat")

    def _is_ready(self) -> bool:
        status, node = self._cluster.request("GET", f"/api/v1/nodes/{self.name}")
        if status != 200 or node["spec"].get("taints"):
            return False
        conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
        return conditions.get("Ready") == "True"

    def _status(self) -> dict[str, Any]:
        status, node = self._cluster.request("GET", f"/api/v1/nodes/{self.name}")
        return dict(node["status"]) if status == 200 else {}

    def _run(self, *words: str | Path) -> str:
        return _running(self._namespace).run(*words)

    def _component(self, name: str) -> Child:
        if name not in self._components:
            raise ClusterError(f"no component {name} of {self.name}; there are {', '.join(self._components) or 'none'}")
        return self._components[name]


def _running(part: _Part | None) -> _Part:
    if part is None:
        raise ClusterError("the node is not running: use it as a context manager")
    return part
