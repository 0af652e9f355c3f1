"""Records for policies that place gangs by topology level: declined places, observed waits, moves and preemptions."""

from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from tranche.estimate.capacity_wait import CapacityWaits


@dataclass(slots=True, eq=False)
class Locality:
    """Record of the places that a gang has declined and waited for."""

    declined_seconds: float = 0.0
    """Time for which it has declined places since it began to wait, before `declining_since`."""
    declining_since: float | None = None
    """Time from which it has declined places at every decision; None if it does not decline one now."""
    declined_at: float = -inf
    """Time of the last decision at which it declined a place."""
    waits: bool = False
    """Whether it waited at the last decision."""
    observed: dict[int, float] = field(default_factory=dict)
    """Levels without capacity for it since it began to wait, with that time."""
    moved_at: float = -inf
    preempted_at: float = -inf

    def waited(self, now: float) -> float:
        """Return the time for which the gang has declined places since it began to wait, in seconds."""
        since = self.declining_since
        return self.declined_seconds + (now - since if since is not None else 0.0)

    def decline(self, now: float) -> None:
        """Record that the gang declines a place at this decision."""
        self.declined_at = now
        if self.declining_since is None:
            self.declining_since = now

    def fits_nowhere(self, now: float) -> None:
        """Record that the gang has no place that it could decline."""
        self.declined_seconds, self.declining_since = self.waited(now), None

    def start(self) -> None:
        """Record that the gang has windows."""
        self.declined_seconds, self.declining_since, self.waits = 0.0, None, False

    def begin_wait(self, levels: Collection[int], now: float) -> None:
        """Record that the gang begins to wait, and observe when there is capacity for it at each of the levels."""
        if not self.waits:
            self.waits = True
            for level in levels:
                self.observed.setdefault(level, now)


@dataclass(slots=True, eq=False)
class LocalityRecords:
    """Records of all gangs, and the waits that were observed."""

    waits: CapacityWaits = field(default_factory=CapacityWaits)
    jobs: dict[str, Locality] = field(default_factory=dict)
    moving: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes to which stopped gangs move, one for each member, by job."""

    def of(self, key: str) -> Locality:
        """Return the record of a gang, a new one if there is none."""
        return self.jobs.setdefault(key, Locality())

    def close(self, key: str, size_class: int, level: int, now: float) -> None:
        """End the observation of a level, because there is capacity or the job has ended."""
        self.waits.add(size_class, level, now - self.jobs[key].observed.pop(level))
