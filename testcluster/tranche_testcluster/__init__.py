"""A real Kubernetes control plane on one machine, without containers, for tests, benchmarks and the demo.

``Cluster`` runs etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok; ``ensure`` provides their
binaries; ``tethered`` and ``spawn`` start other processes that die with this one; ``annotations`` says what a pod can
ask of the simulated nodes.
"""

from . import annotations
from .binaries import ensure
from .clusters import Cluster
from .errors import BuildError, ClusterError
from .meters import Meter
from .tethers import spawn, tethered

__all__ = ["BuildError", "Cluster", "ClusterError", "Meter", "annotations", "ensure", "spawn", "tethered"]
