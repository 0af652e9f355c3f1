"""Controller that runs the planner on a cluster: watch changes in, status.plan and status.progress out."""

from tranche.live.controller import Controller
from tranche.live.settings import ControllerSettings

__all__ = ["Controller", "ControllerSettings"]
