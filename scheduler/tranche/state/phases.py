"""Phases of windows and jobs with their allowed transitions; docs/reference/phases.md is generated from these tables.

With ``PlannerSettings.validate`` each transition of a window is checked when it takes place, and that of a job after
each decision.
"""

from collections.abc import Mapping
from enum import Enum


class PhaseError(AssertionError):
    """A transition that is not in the tables: a defect of tranche, never of its input."""


class WindowPhase(Enum):
    """State of a window's pod, as far as the planner knows it."""

    PENDING = "Pending"
    """The pod may not exist yet, or waits for a node."""
    BOUND = "Bound"
    """The pod has a node and does not train yet."""
    TRAINING = "Training"
    """The worker trains the window's chunks."""
    EXITING = "Exiting"
    """The worker asked for more chunks and was answered that there are none, so its pod will end."""
    CLOSING = "Closing"
    """The pod is to stop: it reserves nothing any more, and may still hold its GPUs."""
    ENDED = "Ended"
    """The pod is over, and the window is removed."""


class JobPhase(Enum):
    """Activity of a job, or the reason why it does nothing."""

    WAITING = "Waiting"
    """It has no windows, and gets some as soon as the policy finds a place."""
    HELD = "Held"
    """It has no windows, and gets none before a pause after a failure or a refusal is over."""
    RUNNING = "Running"
    """It has open windows, or a chief that continues."""
    STOPPING = "Stopping"
    """All its windows or parameter servers are closing, and it may go on when they have ended."""
    SUSPENDED = "Suspended"
    """Its user has suspended it."""
    UNPLANNABLE = "Unplannable"
    """The policy cannot plan it, or the API server refuses its pods for good."""
    FAILED = "Failed"
    """More of its pods failed than its back-off limit allows, or its deadline has passed."""
    FINISHED = "Finished"
    """All chunks are done, and its chief, if it has one, has ended."""


_W = WindowPhase
WINDOW_TRANSITIONS: Mapping[WindowPhase, Mapping[WindowPhase, str]] = {
    _W.PENDING: {
        _W.BOUND: "pod bound",
        _W.TRAINING: "worker starts",
        _W.EXITING: "no chunks left",
        _W.CLOSING: "close",
        _W.ENDED: "pod ends",
    },
    _W.BOUND: {
        _W.TRAINING: "worker starts",
        _W.EXITING: "no chunks left",
        _W.CLOSING: "close",
        _W.ENDED: "pod ends",
    },
    _W.TRAINING: {_W.EXITING: "no chunks left", _W.CLOSING: "close", _W.ENDED: "pod ends"},
    _W.EXITING: {_W.CLOSING: "close", _W.ENDED: "pod ends"},
    _W.CLOSING: {
        _W.PENDING: "eviction refused",
        _W.BOUND: "eviction refused",
        _W.TRAINING: "eviction refused",
        _W.EXITING: "eviction refused",
        _W.ENDED: "pod ends",
    },
    _W.ENDED: {},
}
"""By phase: those that may follow, and what leads there."""
PROGRESS: Mapping[WindowPhase, int] = {_W.PENDING: 0, _W.BOUND: 1, _W.TRAINING: 2, _W.EXITING: 3}
"""Order of the phases of an open window, which never goes back."""

_J = JobPhase
_HALTS: Mapping[JobPhase, str] = {
    _J.SUSPENDED: "suspended",
    _J.UNPLANNABLE: "cannot be planned",
    _J.FAILED: "too many failures",
    _J.FINISHED: "all done",
}
_CHANGED = "specification changed"
ACTIVE_PHASES = (_J.WAITING, _J.HELD, _J.RUNNING, _J.STOPPING)
"""Phases in which a job may have windows, now or later; `JobState.active`."""


def _halted(phase: JobPhase) -> Mapping[JobPhase, str]:
    """Return the phases that may follow a phase without windows."""
    halts = {halt: text for halt, text in _HALTS.items() if halt is not phase}
    return {_J.WAITING: _CHANGED, _J.RUNNING: _CHANGED, _J.STOPPING: _CHANGED, **halts}


JOB_TRANSITIONS: Mapping[JobPhase, Mapping[JobPhase, str]] = {
    _J.WAITING: {
        _J.RUNNING: "window opens",
        _J.HELD: "pod refused or failed",
        _J.STOPPING: "idle servers close",
        **_HALTS,
    },
    _J.HELD: {
        _J.WAITING: "pause over",
        _J.RUNNING: "window opens",
        _J.STOPPING: "idle servers close",
        **_HALTS,
    },
    _J.RUNNING: {
        _J.WAITING: "last window ends",
        _J.HELD: "pod refused or failed",
        _J.STOPPING: "windows close",
        **_HALTS,
    },
    _J.STOPPING: {
        _J.WAITING: "last pod ends",
        _J.HELD: "last pod ends in a pause",
        _J.RUNNING: "window opens",
        **_HALTS,
    },
    _J.SUSPENDED: _halted(_J.SUSPENDED),
    _J.UNPLANNABLE: _halted(_J.UNPLANNABLE),
    _J.FAILED: _halted(_J.FAILED),
    _J.FINISHED: {},
}
"""By phase: those in which the job may be after the next decision, and what leads there."""
