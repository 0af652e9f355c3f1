"""A real Kubernetes control plane on one machine, without containers, for tests, benchmarks and the demo.

``Cluster`` runs etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok; ``ensure`` provides their
binaries; ``tethered`` and ``spawn`` start other processes that die with this one, and ``stop`` ends them;
``annotations`` lists what a pod can request of the simulated nodes; ``Scaling`` describes a site whose nodes come and
go with its pods; ``FaultProxy`` injects faults into a client's requests to the API server; ``Change`` is one write;
``free_port`` reserves a port.
"""

from . import annotations
from .binaries.binary_cache import ensure
from .child_process import spawn, stop, tethered
from .cluster import Cluster
from .errors import BuildError, ClusterError
from .etcd.history import Change
from .fault_proxy import FaultProxy, Faults
from .progress_meter import Meter
from .scaling import Scaling
from .workspace import free_port

__all__ = [
    "BuildError",
    "Change",
    "Cluster",
    "ClusterError",
    "FaultProxy",
    "Faults",
    "Meter",
    "Scaling",
    "annotations",
    "ensure",
    "free_port",
    "spawn",
    "stop",
    "tethered",
]
