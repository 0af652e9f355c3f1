"""State of an open or closing window and of its pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tranche.model import Resources, Window, WindowState
from tranche.state.phases import WindowPhase

UNKNOWN_REQUESTS = Resources()


class SlotBinding(NamedTuple):
    """Slots in which a chunk is bound to train."""

    site: str
    node: str | None
    """None on an unlimited site."""
    slots: tuple[int, ...] = ()
    """Ordinals of the node's GPUs as the planner counts them; empty if the policy binds none."""


@dataclass(slots=True, eq=False)
class TrackedWindow:
    """A window that is open or closing, with the state of its pod."""

    window: Window
    home: SlotBinding
    opened: float
    batch_seconds: float
    """Expected time of a mini-batch, in seconds."""
    declared_batch_seconds: float
    """The same time by specification and links alone when the window opened, to compare the measured time with."""
    predicted_batch_seconds: float | None = None
    """The expected time before the worker's reports showed another one; None before that."""
    handover: bool = False
    """Whether a worker that is to stop still held its slots when the window opened."""
    started: float | None = None
    """When the worker began to train, in seconds on the planner's clock; None until its pod runs."""
    pod_started: float | None = None
    """When its container started, in seconds on the planner's clock: before `started` if the window was renewed."""
    since: float | None = None
    """Time from which its progress is estimated by its pace: `started`, or the last report that showed progress."""
    last_report: float | None = None
    """Time of its last report, with or without progress."""
    counted: float = 0.0
    """Number of mini-batches that its reports have counted while it ran."""
    first_report: tuple[float, float] | None = None
    """Time of the first report and `counted` then: the pace is measured between this report and the last one."""
    reloaded: float | None = None
    """When a parameter server that replaced another one first reported while the worker ran; None if none has."""
    phase: WindowPhase = WindowPhase.PENDING
    """Changed by the bookkeeping of `ClusterState` alone."""
    reopens_as: WindowPhase = WindowPhase.PENDING
    """How far the pod of a closing window is: the phase of the window if it opens again."""
    obsolete: bool = False
    """Whether its pod was made from an earlier version of the job's template, so that it has to be replaced."""
    adopted: bool = False
    """Whether an earlier planner opened it, so that the time of its opening is unknown."""
    held_from: float = 0.0
    """When it was opened by the plan of that planner, in seconds on the planner's clock; 0: unknown."""
    closed: float | None = None
    """When it began to close, in seconds on the planner's clock."""
    requests: Resources = UNKNOWN_REQUESTS
    """Requests of its pod as planned or, if larger, as admitted: what the window reserves. Set by `ClusterState`."""
    overdue: bool = False
    """Whether it is closing, and its pod has not stopped in time: the window reserves its room again."""
    start_failure: str = ""
    """Why its containers did not start, in CamelCase, so that it was closed; empty otherwise."""
    left: float | None = None
    """Number of mini-batches of its chunks that no report has counted; None: `JobState.left_of` computes it."""
    resumed: float = 0.0
    """Number of durable mini-batches of its chunks when it opened, or to which they have been rolled back since."""

    def __post_init__(self) -> None:
        if self.window.state is WindowState.CLOSING:
            self.phase = WindowPhase.CLOSING

    @property
    def opened_at(self) -> float:
        """When it was opened; for one of an earlier planner, as far as its plan and its pod show, in whole seconds."""
        if not self.adopted:
            return self.opened
        shown = self.opened if self.pod_started is None else min(self.opened, self.pod_started)
        return min(shown, self.held_from) if self.held_from > 0 else shown

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.phase is WindowPhase.CLOSING

    @property
    def reserves(self) -> bool:
        """Whether it reserves room on its node: a closing window does not, as long as its pod may stop in time."""
        return self.phase is not WindowPhase.CLOSING or self.overdue

    @property
    def known_until(self) -> float | None:
        """Time until which its progress is known: `started` or its last report; None until its pod runs."""
        return self.since if self.since is None or self.last_report is None else max(self.since, self.last_report)

    @property
    def slowdown(self) -> float:
        """Measured over predicted time of a mini-batch; 1 if it is unknown or within a factor of two."""
        predicted = self.predicted_batch_seconds
        return self.batch_seconds / predicted if predicted and self.batch_seconds > 2.0 * predicted else 1.0

    @property
    def ending(self) -> bool:
        """Whether the worker gets no more chunks, since its pod is to stop or will end."""
        return self.phase in (WindowPhase.CLOSING, WindowPhase.EXITING)
