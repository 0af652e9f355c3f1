"""The planner on a real cluster: watches become events, decisions become status.plan and status.progress."""

from tranche.live.controller import Controller
from tranche.live.settings import ControllerSettings

__all__ = ["Controller", "ControllerSettings"]
