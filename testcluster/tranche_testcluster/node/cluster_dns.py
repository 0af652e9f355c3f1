"""CoreDNS as pods on real nodes, so that names of Services and of pods in headless Services resolve."""

from pathlib import Path

import yaml

from ..binaries import binary_cache
from ..cluster import Cluster
from ..images import program_image
from .configuration import CLUSTER_DNS

IMAGE = "testcluster.tranche.dev/coredns:1"
_MANIFEST = Path(__file__).with_name("coredns.yaml")
_SECONDS = 60


def archive() -> Path:
    """Return the archive of the image, which the nodes need."""
    return program_image.archive(IMAGE, binary_cache.ensure("coredns")["coredns"])


def install(cluster: Cluster) -> None:
    """Install CoreDNS and wait until it serves; a kube-scheduler must run.

    Raises:
        ClusterError: It is not available in time.
    """
    objects = list(yaml.safe_load_all(_MANIFEST.read_text()))
    for manifest in objects:
        if manifest["kind"] == "Service":
            manifest["spec"]["clusterIP"] = CLUSTER_DNS
        if manifest["kind"] == "Deployment":
            manifest["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
    cluster.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(objects))
    cluster.kubectl("rollout", "status", "--namespace=kube-system", f"--timeout={_SECONDS}s", "deployment/coredns")
