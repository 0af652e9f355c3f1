"""Configuration files of a real node's containerd, CNI plugins and kubelet.

Paths below /run, /var/lib and /var/log are the node's own: see ``namespace``.
"""

import json
from pathlib import Path

from .network import Link
from .reservation import Names

PAUSE_IMAGE = "testcluster.tranche.dev/pause:1"

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
"""Folder of the kubelet's registration socket."""
CLUSTER_DNS = "10.96.0.10"
"""Address of the Service that resolves names, if the cluster has one."""
PROXY_HEALTH_PORT = 10256
_STATUS_SECONDS = 1
_UNUSED_PLUGINS = (
    "io.containerd.internal.v1.opt",  # would create /opt/containerd
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
)


def write_containerd(file: Path, programs: Path, networks: Path) -> None:
    """Write the configuration of containerd, with runc and the CNI plugins in the folder `programs`."""
    runtime = "io.containerd.grpc.v1.cri"
    file.write_text(
        f"""version = 2
disabled_plugins = {json.dumps(_UNUSED_PLUGINS)}
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."{runtime}"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # a machine may forbid lower ones
[plugins."{runtime}".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."{runtime}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{runtime}".containerd.runtimes.runc.options]
  BinaryName = "{programs / "runc"}"
  SystemdCgroup = false
[plugins."{runtime}".cni]
  bin_dir = "{programs}"
  conf_dir = "{networks}"
"""
    )


def write_network(file: Path, link: Link) -> None:
    """Write the CNI configuration: a network namespace for each pod, connected to the node's bridge."""
    pods = {"subnet": link.subnet, "gateway": link.gateway, "rangeEnd": link.last_pod}
    addresses = {"type": "host-local", "ranges": [[pods]], "routes": [{"dst": "0.0.0.0/0"}]}
    # A pod may reach itself through its own Service.
    plugin = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    file.write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}))


def write_proxy(file: Path, name: str, kubeconfig: Path, link: Link) -> None:
    """Write the KubeProxyConfiguration, for Services by iptables in the node's network namespace."""
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": name,
        "mode": "iptables",
        "iptables": {"minSyncPeriod": "100ms"},
        "clusterCIDR": link.subnet,
        "conntrack": {"maxPerCore": 0},  # the limit is the machine's, and cannot be set from a namespace
        "bindAddress": link.address,
        "healthzBindAddress": f"127.0.0.1:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": "",
    }
    file.write_text(json.dumps(settings, indent=1))


def write_kubelet(file: Path, names: Names, link: Link, authority: Path, resolver: Path) -> None:
    """Write the KubeletConfiguration.

    Args:
        file: File to write.
        names: Names of the node on the machine.
        link: Addresses of the node.
        authority: Certificate authority of the cluster.
        resolver: File like /etc/resolv.conf.
    """
    floors = {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "address": link.address,
        "clusterDNS": [CLUSTER_DNS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{names.cgroup}",
        "enforceNodeAllocatable": ["none"],  # the machine has other processes, outside this group
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,  # walks the machine's file system
        "evictionHard": {**floors, "nodefs.inodesFree": "1%"},
        "imageGCHighThresholdPercent": 100,  # no registry would bring an image back
        "imageMinimumGCAge": "24h",
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": f"{_STATUS_SECONDS}s",
        "resolvConf": str(resolver),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }
    file.write_text(json.dumps(settings, indent=1))
