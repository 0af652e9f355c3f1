"""What can be set of the live planner."""

from dataclasses import dataclass

from tranche.kube.api.names import GPU_RESOURCE


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What can be set."""

    gpu_resource: str = GPU_RESOURCE
    """Resource name of the devices that are planned; ``cpu`` plans whole cores."""
    estimate_seconds: float = 300.0
    """Estimates are written again only when they moved by more than this …"""
    estimate_fraction: float = 0.1
    """… and by more than this fraction of the time that is left."""
    tick_seconds: float = 1.0
    """Longest pause between two looks at timers."""
    missing_pod_seconds: float = 0.5
    """A closing window without a pod counts as ended after this: the operator had not created it yet, and will not any
    more. Should it have been about to, it evicts the pod that nobody plans."""
    unschedulable_seconds: float = 30.0
    """A pod that finds no node for this long, besides the longest grace period of a victim there, is planned anew."""
    node_start_seconds: float = 900.0
    """A pod of an unlimited site, whose node does not exist yet, may wait for so long. Cluster Autoscaler gives up a
    node that has not come after 15 minutes (``--max-node-provision-time``)."""
    forecast_share: float = 0.1
    """Share of the time that playing the plan forward may take …"""
    forecast_piece_seconds: float = 0.003
    """… in pieces of so long, after each of which others have their turn for as long …"""
    forecast_quiet_seconds: float = 0.3
    """It begins when nothing has happened for so long: pods that are about to be placed ask the same process …"""
    forecast_patience_seconds: float = 2.0
    """… but no later than so long after something has."""
    verify_seconds: float = 0.1
    """… with so much for making sure of the explanations, between two times: meanwhile nothing else happens."""
