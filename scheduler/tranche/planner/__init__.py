"""The planner: a sans-I/O state machine, ``handle(event, now) -> instructions``, live and simulated alike."""

from tranche.planner.estimates import Estimate
from tranche.planner.events import (
    Event,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Outcome,
    ParameterServerLost,
    SiteChanged,
    SiteRemoved,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.instructions import CloseWindow, Instruction, OpenWindow, PlaceParameterServer, PublishPlan
from tranche.planner.machines import Planner, PlannerSettings

__all__ = [
    "CloseWindow",
    "Estimate",
    "Event",
    "Instruction",
    "JobChanged",
    "JobRemoved",
    "JobSubmitted",
    "NodeChanged",
    "NodeRemoved",
    "OpenWindow",
    "Outcome",
    "ParameterServerLost",
    "PlaceParameterServer",
    "Planner",
    "PlannerSettings",
    "PublishPlan",
    "SiteChanged",
    "SiteRemoved",
    "Tick",
    "WorkerBound",
    "WorkerEnded",
    "WorkerRejected",
    "WorkerStarted",
    "WorkerUnschedulable",
]
