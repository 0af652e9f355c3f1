"""Command lines of the control plane, with the reason for each flag that is not obvious."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .workspace import HOST

CLIENT_QPS = 5000  # Kubernetes' defaults (20 to 50) would be what a benchmark measures
ENDPOINT_BATCH = "500ms"
REAL_LABEL = "testcluster.tranche.dev/real"
"""Label of nodes whose kubelet is not kwok."""
_SERVICE_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True)
class Layout:
    """Values that the command lines share."""

    directory: Path
    binaries: Mapping[str, Path]
    ports: Mapping[str, int]
    node_lease_seconds: int
    pod_address: str = ""

    def kubeconfig(self, name: str) -> Path:
        """Return the path of a component's credentials."""
        return self.directory / f"{name}.kubeconfig"

    @property
    def etcd_data(self) -> Path:
        """Folder of etcd's data."""
        return self.directory / "etcd"

    def serving(self, port: str) -> list[str]:
        """Return flags to serve HTTPS with the cluster's certificate."""
        return [
            f"--bind-address={HOST}",
            f"--secure-port={self.ports[port]}",
            f"--tls-cert-file={self.directory / 'server.crt'}",
            f"--tls-private-key-file={self.directory / 'server.key'}",
        ]

    def identity(self, kubeconfig: Path) -> list[str]:
        """Return flags to let the API server authenticate and authorize callers."""
        return [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]


def etcd(layout: Layout) -> list[str | Path]:
    """Return the command line of one etcd member; its data stays in the cluster's folder across restarts."""
    client, peer = (f"http://{HOST}:{layout.ports[name]}" for name in ("etcd", "etcd-peer"))
    return [
        layout.binaries["etcd"],
        f"--data-dir={layout.etcd_data}",
        "--unsafe-no-fsync",  # survives a killed process, which is all a test does; not a power cut
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def apiserver(layout: Layout) -> list[str | Path]:
    """Return the command line of kube-apiserver: RBAC and the default admission plugins, ServiceAccount among them."""
    if layout.pod_address:
        addresses = ["--bind-address=0.0.0.0", f"--advertise-address={layout.pod_address}"]
    else:  # a loopback address is not a legal endpoint
        addresses = [f"--advertise-address={HOST}", "--endpoint-reconciler-type=none"]
    return [
        layout.binaries["kube-apiserver"],
        f"--etcd-servers=http://{HOST}:{layout.ports['etcd']}",
        *layout.serving("kube-apiserver"),
        *addresses,
        f"--client-ca-file={layout.directory / 'ca.crt'}",
        f"--service-account-issuer={_SERVICE_ISSUER}",
        f"--service-account-key-file={layout.directory / 'tokens.pub'}",
        f"--service-account-signing-key-file={layout.directory / 'tokens.key'}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",  # for logs; the node names cannot be resolved
        f"--kubelet-client-certificate={layout.directory / 'admin.crt'}",  # kwok requires none, a real kubelet does
        f"--kubelet-client-key={layout.directory / 'admin.key'}",
        "--enable-priority-and-fairness=false",  # its seats follow the CPU count: a small machine would throttle
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
        "--profiling=false",
    ]


def controller_manager(layout: Layout) -> list[str | Path]:
    """Return the command line of all controllers, each with its own service account, as RBAC requires."""
    kubeconfig = layout.kubeconfig("kube-controller-manager")
    return [
        layout.binaries["kube-controller-manager"],
        f"--kubeconfig={kubeconfig}",
        *layout.identity(kubeconfig),
        *layout.serving("kube-controller-manager"),
        f"--service-account-private-key-file={layout.directory / 'tokens.key'}",
        f"--root-ca-file={layout.directory / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={CLIENT_QPS * 2}",
        f"--node-monitor-grace-period={node_grace_seconds(layout.node_lease_seconds)}s",
        # A gang has a Service: at the default, 0, each of its pods that comes or goes rewrites its addresses, twice.
        f"--endpoint-updates-batch-period={ENDPOINT_BATCH}",
        f"--endpointslice-updates-batch-period={ENDPOINT_BATCH}",
    ]


def node_grace_seconds(node_lease_seconds: int) -> int:
    """Return the seconds without a heartbeat after which a node counts as lost, in Kubernetes' ratio of 50 to 40."""
    return node_lease_seconds * 5 // 4


def scheduler(
    layout: Layout, port: str, config: Path, kubeconfig: Path, program: Path | None = None
) -> list[str | Path]:
    """Return the command line of a kube-scheduler, or of a program with its flags, with this configuration file."""
    return [
        program or layout.binaries["kube-scheduler"],
        f"--config={config}",
        *layout.identity(kubeconfig),
        *layout.serving(port),
    ]


def kwok(layout: Layout, configs: Sequence[Path]) -> list[str | Path]:
    """Return the command line of kwok, the kubelet of every node that is not real. Its stages are in these files."""
    return [
        layout.binaries["kwok"],
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        *(f"--config={config}" for config in configs),
        f"--manage-nodes-with-label-selector=!{REAL_LABEL}",
        f"--server-address={HOST}:{layout.ports['kwok']}",
        f"--node-ip={HOST}",  # one server, also of logs, is the kubelet of all nodes
        f"--node-port={layout.ports['kwok']}",
        f"--tls-cert-file={layout.directory / 'server.crt'}",
        f"--tls-private-key-file={layout.directory / 'server.key'}",
        f"--node-lease-duration-seconds={layout.node_lease_seconds}",
        "--cidr=10.128.0.0/14",
    ]


def autoscaler(layout: Layout, python: str, port: str, flags: Sequence[str]) -> list[str | Path]:
    """Return the command line of a site's autoscaler, as administrator; its port of that name answers probes."""
    return [
        python,
        "-m",
        "tranche_testcluster.autoscaler",
        f"--server-port={layout.ports['kube-apiserver']}",
        f"--kubelet-port={layout.ports['kwok']}",
        f"--health-port={layout.ports[port]}",
        f"--certificate-authority={layout.directory / 'ca.crt'}",
        f"--client-certificate={layout.directory / 'autoscaler.crt'}",
        f"--client-key={layout.directory / 'autoscaler.key'}",
        *flags,
    ]
