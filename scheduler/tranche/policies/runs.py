"""Windows, and the places where chunks are bound to train, as the planner knows them."""

from dataclasses import dataclass
from typing import NamedTuple

from tranche.model import Window, WindowState
from tranche.policies.phases import WindowPhase

Key = tuple[float, float, str, int]
"""Order of a chunk: the policy's value, then arrival, job key and chunk number; the smaller runs first."""


class Home(NamedTuple):
    """Where a chunk is bound to train."""

    site: str
    node: str | None
    """None on an unlimited site."""
    slots: tuple[int, ...] = ()
    """Ordinals of the node's GPUs, in the planner's own count."""


@dataclass(slots=True, eq=False)
class Run:
    """A window that is open or closing, with what is known of its pod."""

    window: Window
    home: Home
    opened: float
    batch_seconds: float
    """Expected time of a mini-batch, in seconds."""
    told_batch_seconds: float
    """The same by specification and links alone when the window opened: what its measured pace is compared with."""
    handover: bool = False
    """Its slots were still in use by a worker that is to stop when the window opened."""
    started: float | None = None
    """When the worker began to train; None until its pod runs."""
    since: float | None = None
    """From when on its progress is estimated by its pace: `started`, or its last report."""
    counted: float = 0.0
    """Mini-batches that reports have told of while it ran …"""
    first_report: tuple[float, float] | None = None
    """… and of those, when and how many the first one had: between it and the last, the pace is measured."""
    phase: WindowPhase = WindowPhase.PENDING
    """Changed by the bookkeeping of `ClusterState` alone."""
    reopens_as: WindowPhase = WindowPhase.PENDING
    """How far the pod of a closing window is: the phase of the window if it opens again."""
    obsolete: bool = False
    """Its pod asks for what the job's template said before it was changed, so it has to go."""
    adopted: bool = False
    """An earlier planner opened it, so nobody knows when."""
    held_from: float = 0.0
    """When it was opened as far as the plan of that planner says; 0: it says nothing."""
    closed: float | None = None
    """When it was told to stop."""
    left: float | None = None
    """Mini-batches of its chunks that nobody has told of; None until `JobState.left_of` is asked."""

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


class Pace(NamedTuple):
    """How the windows of a job train while nothing about them changes."""

    at: float
    done: float
    """Worker seconds trained then, beyond the ledger."""
    rate: float
    """By how much `done` rises per second …"""
    until: float
    """… until a window's chunks are probably through, or another window begins."""
