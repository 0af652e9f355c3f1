"""Real nodes of a test cluster: kubelet, containerd and runc as processes, with real containers.

``RealNode`` joins a node to a running cluster and a ``Network``; ``cluster_dns`` installs CoreDNS on such nodes.
``unavailable`` gives the reason why a machine cannot have real nodes; ``HostState`` is what a node may have changed on
the machine.
"""

from .host_state import HostState
from .network import Network
from .real_node import RealNode
from .requirement import unavailable

__all__ = ["HostState", "Network", "RealNode", "unavailable"]
