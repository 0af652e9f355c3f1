"""Real nodes of a test cluster: kubelet, containerd and runc as processes, with real containers.

``RealNode`` joins a node to a running cluster; ``unavailable`` gives the reason why a machine cannot have one;
``HostState`` is what a node may have changed on the machine.
"""

from .host_state import HostState
from .image_archive import PAUSE_IMAGE
from .real_node import RealNode
from .requirement import unavailable

__all__ = ["PAUSE_IMAGE", "HostState", "RealNode", "unavailable"]
