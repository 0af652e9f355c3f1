"""State of windows and of the slots that chunks are bound to."""

from dataclasses import dataclass
from typing import NamedTuple

from tranche.model import Window, WindowState
from tranche.policies.phases import WindowPhase

Key = tuple[float, float, str, int]
"""Order of a chunk in a queue: the policy's value, then arrival, job key and chunk number; the smaller runs first."""


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
    told_batch_seconds: float
    """That time by specification and links alone when the window opened, to compare the measured time with."""
    handover: bool = False
    """Whether a worker that is to stop still held its slots when the window opened."""
    started: float | None = None
    """When the worker began to train, in seconds on the planner's clock; None until its pod runs."""
    since: float | None = None
    """Time from which its progress is estimated by its pace: `started`, or its last report."""
    counted: float = 0.0
    """Number of mini-batches that its reports have counted while it ran."""
    first_report: tuple[float, float] | None = None
    """Time of the first report and `counted` then: the pace is measured between this report and the last one."""
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
    left: float | None = None
    """Number of mini-batches of its chunks that no report has counted; None: `JobState.left_of` computes it."""

    def __post_init__(self) -> None:
        if self.window.state is WindowState.CLOSING:
            self.phase = WindowPhase.CLOSING

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.phase is WindowPhase.CLOSING

    @property
    def ending(self) -> bool:
        """Whether the worker gets no more chunks, since its pod is to stop or will end."""
        return self.phase in (WindowPhase.CLOSING, WindowPhase.DISMISSED)


class TrainingPace(NamedTuple):
    """Training progress of a job's windows as a linear function of time, while these do not change."""

    at: float
    done: float
    """Worker-seconds trained at that time, beyond the ledger."""
    rate: float
    """Increase of `done` per second."""
    until: float
    """End of validity: when a window's chunks are expected to be done, or another window begins."""
