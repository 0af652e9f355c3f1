"""Cost of stopping a worker and starting it again, learnt from measured starts and stops if it is not declared."""

from __future__ import annotations

from dataclasses import dataclass

LEARNING_RATE = 0.25
"""Weight of a new measurement against the earlier ones."""


@dataclass(slots=True)
class Restarts:
    """Learnt start time of pods and save time of workers, of one job or of all jobs."""

    others: Restarts | None = None
    """Restart cost over all jobs, used while no value of this job is known."""
    start_seconds: float | None = None
    save_seconds: float | None = None
    settled: bool = False
    """Whether measurements are ignored: in a rehearsal, pods start exactly as expected."""

    @property
    def seconds(self) -> float:
        """Seconds from the last batch before a preemption to the next one on a free slot; 0 if nothing is known."""
        start = self.start_seconds if self.start_seconds is not None else self.others and self.others.start_seconds
        save = self.save_seconds if self.save_seconds is not None else self.others and self.others.save_seconds
        return (start or 0.0) + (save or 0.0)

    def started(self, seconds: float) -> None:
        """Record that a worker began to train `seconds` after its window had opened on a free slot."""
        if not self.settled:
            self.start_seconds = _mean(self.start_seconds, seconds)
            if self.others is not None:
                self.others.started(seconds)

    def saved(self, seconds: float) -> None:
        """Record that a worker ended `seconds` after the signal to stop, including the time to save."""
        if not self.settled:
            self.save_seconds = _mean(self.save_seconds, seconds)
            if self.others is not None:
                self.others.saved(seconds)

    def for_rollout(self) -> Restarts:
        """Return a copy for a rollout, which keeps its values."""
        return Restarts(start_seconds=self.seconds, save_seconds=0.0, settled=True)


def _mean(known: float | None, seconds: float) -> float:
    return seconds if known is None else known + LEARNING_RATE * (seconds - known)
