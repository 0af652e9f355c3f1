"""The running jobs of a preemptive queue policy by rank, where ranks fall steadily while jobs train.

A job's rank at time t is ``anchor − slope·t`` until its windows change. Among jobs of one slope the order never
changes, so each slope has one sorted list, and what ranks behind a given rank is found by bisection in each: O(slopes ·
log jobs).
"""

from bisect import bisect_left, bisect_right, insort

from tranche.policies import JobState, Rank

Place = tuple[float, float, tuple[float, int, str]]
"""Anchor, second part of the rank, order of submission: the order among jobs of one slope."""


class RunningJobs:
    """Jobs that may be preempted."""

    def __init__(self) -> None:
        self._lists: dict[tuple[float, int], list[Place]] = {}
        """By slope and GPUs held."""
        self._where: dict[str, tuple[tuple[float, int], Place, JobState]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def keys(self) -> list[str]:
        """Their keys."""
        return list(self._where)

    def put(self, state: JobState, rank: Rank, slope: float, gpus: int, now: float) -> None:
        """Enter a job that holds so many GPUs, or note its new rank."""
        key = state.job.key
        self.remove(key)
        place = (rank[0] + slope * now, rank[1], state.arrival)
        group = (slope, gpus)
        insort(self._lists.setdefault(group, []), place)
        self._where[key] = (group, place, state)

    def remove(self, key: str) -> None:
        """Strike a job, if it is here."""
        known = self._where.pop(key, None)
        if known is not None:
            group, place, _ = known
            places = self._lists[group]
            del places[bisect_left(places, place)]
            if not places:
                del self._lists[group]

    def gpus_behind(self, state: JobState, rank: Rank, now: float) -> int:
        """GPUs held by other jobs that rank behind the given one."""
        first, second, arrival = rank[0], rank[1], state.arrival
        total = 0
        for (slope, gpus), places in self._lists.items():
            total += gpus * (len(places) - bisect_right(places, (first + slope * now, second, arrival)))
        own = self._where.get(state.job.key)
        if own is not None and own[1] > (first + own[0][0] * now, second, arrival):
            total -= own[0][1]
        return total

    def behind(self, state: JobState, rank: Rank, now: float) -> list[JobState]:
        """The other jobs that rank behind the given one, the first in rank first."""
        first, second, arrival = rank[0], rank[1], state.arrival
        found: list[Place] = []
        for (slope, _), places in self._lists.items():
            fall = slope * now
            later = places[bisect_right(places, (first + fall, second, arrival)) :]
            found += [(place[0] - fall, place[1], place[2]) for place in later]
        return [self._where[key][2] for _, _, (_, _, key) in sorted(found) if key != state.job.key]
