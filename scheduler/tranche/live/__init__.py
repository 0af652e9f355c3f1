"""The planner on a real cluster: watches become events, decisions become status.plan and status.progress."""

from tranche.live.controllers import Controller, ControllerSettings
from tranche.live.writers import DeposedError

__all__ = ["Controller", "ControllerSettings", "DeposedError"]
