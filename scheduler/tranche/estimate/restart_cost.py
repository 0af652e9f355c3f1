"""What it costs to stop a worker and start it again, learnt from starts and stops where nobody has told."""

from __future__ import annotations

from dataclasses import dataclass

LEARNING_RATE = 0.25
"""Of a new measurement against those before it."""


@dataclass(slots=True)
class Restarts:
    """Of one job, or of all: how long its pods take to start, and how long its workers take to save."""

    others: Restarts | None = None
    """What is known of all jobs, for as long as nothing is known of this one."""
    start_seconds: float | None = None
    save_seconds: float | None = None
    settled: bool = False
    """Whether nothing is learnt any more: on paper, pods start as is believed."""

    @property
    def seconds(self) -> float:
        """From the last batch before a preemption to the next one, on a slot that is free; 0 if nothing is known."""
        start = self.start_seconds if self.start_seconds is not None else self.others and self.others.start_seconds
        save = self.save_seconds if self.save_seconds is not None else self.others and self.others.save_seconds
        return (start or 0.0) + (save or 0.0)

    def started(self, seconds: float) -> None:
        """A worker trained so long after its window had opened on a slot that was free."""
        if not self.settled:
            self.start_seconds = _mean(self.start_seconds, seconds)
            if self.others is not None:
                self.others.started(seconds)

    def saved(self, seconds: float) -> None:
        """A worker that was told to stop had saved and gone after so long."""
        if not self.settled:
            self.save_seconds = _mean(self.save_seconds, seconds)
            if self.others is not None:
                self.others.saved(seconds)

    def for_rollout(self) -> Restarts:
        """The same, for a rollout."""
        return Restarts(start_seconds=self.seconds, save_seconds=0.0, settled=True)


def _mean(known: float | None, seconds: float) -> float:
    return seconds if known is None else known + LEARNING_RATE * (seconds - known)
