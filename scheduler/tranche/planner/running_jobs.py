"""The running jobs of a preemptive queue policy by rank, where ranks fall steadily while jobs train.

In its tier, a job's rank at time t is ``anchor − slope·t`` until its windows change. Among jobs of one slope the order
never changes, so each slope has one sorted list, and what ranks behind a given rank is found by bisection in each:
O(slopes · log jobs).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping

from tranche.policies import Standing
from tranche.state.entities import JobState

RankKey = tuple[float, float, float, tuple[float, int, str]]
"""Tier, anchor, second part of the rank, order of submission: the order among jobs of one slope."""


class RunningJobs:
    """Jobs that may be preempted."""

    def __init__(self) -> None:
        self._lists: dict[tuple[float, int], list[RankKey]] = {}
        """By slope and GPUs held."""
        self._where: dict[str, tuple[tuple[float, int], RankKey, JobState]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def keys(self) -> list[str]:
        """Their keys."""
        return list(self._where)

    def put(self, state: JobState, rank: Standing, slope: float, gpus: int, now: float) -> None:
        """Enter a job that holds so many GPUs, or note its new rank."""
        key = state.job.key
        self.remove(key)
        place = (rank[0], rank[1] + slope * now, rank[2], state.arrival)
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

    def gpus_behind(self, state: JobState, rank: Standing, now: float) -> int:
        """GPUs held by other jobs that rank behind the given one."""
        (tier, first, second), arrival = rank, state.arrival
        total = 0
        for (slope, gpus), places in self._lists.items():
            total += gpus * (len(places) - bisect_right(places, (tier, first + slope * now, second, arrival)))
        own = self._where.get(state.job.key)
        if own is not None and own[1] > (tier, first + own[0][0] * now, second, arrival):
            total -= own[0][1]
        return total

    def behind(self, state: JobState, rank: Standing, now: float) -> list[tuple[RankKey, JobState]]:
        """The other jobs that rank behind the given one, with their places, the first in rank first."""
        (tier, first, second), arrival = rank, state.arrival
        found: list[RankKey] = []
        for (slope, _), places in self._lists.items():
            fall = slope * now
            later = places[bisect_right(places, (tier, first + fall, second, arrival)) :]
            found += [(place[0], place[1] - fall, place[2], place[3]) for place in later]
        return [(place, self._where[place[3][2]][2]) for place in sorted(found) if place[3][2] != state.job.key]


class RunningJobsBySite:
    """The jobs that may be preempted, site by site; a job stands at every site where it has windows."""

    def __init__(self) -> None:
        self._at: dict[str, RunningJobs] = {}
        self._where: dict[str, tuple[str, ...]] = {}

    def keys(self) -> list[str]:
        """Of all jobs."""
        return list(self._where)

    def put(self, state: JobState, rank: Standing, slope: float, held: Mapping[str, int], now: float) -> None:
        """Enter a job that holds so many GPUs at each site, or note its new rank."""
        for site in self._where.get(state.job.key, ()):
            if site not in held:
                self._at[site].remove(state.job.key)
        for site, gpus in held.items():
            if site not in self._at:
                self._at[site] = RunningJobs()
            self._at[site].put(state, rank, slope, gpus, now)
        self._where[state.job.key] = tuple(held)

    def remove(self, key: str) -> None:
        """Strike a job, if it is here."""
        for site in self._where.pop(key, ()):
            self._at[site].remove(key)

    def gpus_behind(self, state: JobState, rank: Standing, site: str, now: float) -> int:
        """GPUs held at the site (anywhere, with "") by other jobs that rank behind the given one."""
        return sum(one.gpus_behind(state, rank, now) for one in self._seen(site))

    def behind(self, state: JobState, rank: Standing, site: str, now: float) -> list[JobState]:
        """The other jobs with windows there that rank behind the given one, the first in rank first."""
        found = [place for one in self._seen(site) for place in one.behind(state, rank, now)]
        return list({state.job.key: state for _, state in sorted(found, key=lambda pair: pair[0])}.values())

    def _seen(self, site: str) -> Iterable[RunningJobs]:
        if not site:
            return self._at.values()
        return (self._at[site],) if site in self._at else ()
