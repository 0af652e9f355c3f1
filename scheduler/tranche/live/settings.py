"""Settings of the controller."""

from dataclasses import dataclass

from tranche.kube.api.names import GPU_RESOURCE


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of the controller."""

    gpu_resource: str = GPU_RESOURCE
    """Resource name of the planned GPUs; ``cpu`` plans whole cores."""
    estimate_seconds: float = 300.0
    """Estimates are written again only when they moved by more than this number of seconds"""
    estimate_fraction: float = 0.1
    """and by more than this fraction of the remaining time."""
    tick_seconds: float = 1.0
    """Maximum time between two checks of timers."""
    missing_pod_seconds: float = 0.5
    """Time after which a closing window without a pod is treated as ended: the operator has not created the pod. If it
    creates the pod later, it deletes it as unplanned."""
    unschedulable_seconds: float = 30.0
    """Time after which a pod without a node is planned again, in addition to the longest grace period of a pod that is
    terminating on the planned node."""
    node_start_seconds: float = 900.0
    """The same for a pod at an unlimited site, where the autoscaler first creates a node. Cluster Autoscaler gives up
    after 15 minutes (``--max-node-provision-time``)."""
    forecast_share: float = 0.1
    """Maximum share of the time that forecasts may take."""
    forecast_piece_seconds: float = 0.003
    """Length of one forecast step; after each step, the event loop serves other tasks for the same time."""
    forecast_quiet_seconds: float = 0.3
    """Time without events before a forecast starts, because the extender calls for new pods use the same process."""
    forecast_patience_seconds: float = 2.0
    """Maximum delay of a forecast after an event."""
    verify_seconds: float = 0.1
    """Time limit for verifying explanations between two forecasts; it blocks the event loop."""
