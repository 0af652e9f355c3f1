"""Running jobs of a preemptive queue policy by rank, where ranks decrease linearly while jobs train.

Within its tier, a job's rank at time t is ``anchor − slope·t`` until its windows change. The order among jobs of one
slope never changes, so there is one sorted list for each slope and number of GPUs, and jobs that rank behind a given
one are found by bisection in each list: O(lists · log jobs).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from tranche.policies import TieredRank
from tranche.state.job import Arrival, JobState

RankKey = tuple[float, float, float, Arrival]
"""Sort key of jobs of one slope: tier, anchor, second part of the rank, order of submission."""


class Group(NamedTuple):
    """Common properties of the jobs of one sorted list."""

    slope: float
    gpus: int
    """Number of GPUs that the job holds."""
    gpu_resource: str
    """As in `Resources.gpu_resource`."""


class RunningJobs:
    """Jobs that may be preempted, in sorted lists."""

    def __init__(self) -> None:
        self._lists: dict[Group, list[RankKey]] = {}
        self._where: dict[str, tuple[Group, RankKey, JobState]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def keys(self) -> list[str]:
        """Return the keys of the jobs."""
        return list(self._where)

    def put(self, state: JobState, rank: TieredRank, slope: float, gpus: int, now: float) -> None:
        """Add a job that holds `gpus` GPUs, or update its rank."""
        key = state.job.key
        self.remove(key)
        place = (rank[0], rank[1] + slope * now, rank[2], state.arrival)
        group = Group(slope, gpus, state.job.gpu_resource)
        insort(self._lists.setdefault(group, []), place)
        self._where[key] = (group, place, state)

    def remove(self, key: str) -> None:
        """Remove a job, if it is present."""
        known = self._where.pop(key, None)
        if known is not None:
            group, place, _ = known
            places = self._lists[group]
            del places[bisect_left(places, place)]
            if not places:
                del self._lists[group]

    def gpus_behind(self, state: JobState, rank: TieredRank, now: float, *, any_resource: bool = False) -> int:
        """Return the number of GPUs held by other jobs that rank behind the given one."""
        (tier, first, second), arrival = rank, state.arrival
        total, resource = 0, state.job.gpu_resource
        for (slope, gpus, known), places in self._lists.items():
            if any_resource or known == resource:
                place = (tier, first + slope * now, second, arrival)
                if places[-1] > place:
                    total += gpus * (len(places) - bisect_right(places, place))
        own = self._where.get(state.job.key)
        if own is not None:
            (slope, gpus, known), place, _ = own
            if (any_resource or known == resource) and place > (tier, first + slope * now, second, arrival):
                total -= gpus
        return total

    def is_behind(self, other: JobState, state: JobState, rank: TieredRank, now: float) -> bool:
        """Return whether another job is one of those that rank behind the given one."""
        known = self._where.get(other.job.key)
        if known is None or other is state:
            return False
        tier, first, second = rank
        return known[1] > (tier, first + known[0].slope * now, second, state.arrival)

    def jobs_behind(self, state: JobState, rank: TieredRank, now: float) -> Iterator[tuple[RankKey, JobState]]:
        """Yield the other jobs that rank behind the given one with their sort keys, worst rank first.

        Most preemptions need only the first few. Meanwhile, no job may be removed that is still to be yielded.
        """
        (tier, first, second), arrival = rank, state.arrival
        found = []
        for (slope, _, _), places in self._lists.items():
            fall = slope * now
            found.append(_worst_first(places[bisect_right(places, (tier, first + fall, second, arrival)) :], fall))
        own = state.job.key
        for place in merge(*found, reverse=True):
            if place[3].key != own:
                yield place, self._where[place[3].key][2]


def _worst_first(places: Sequence[RankKey], fall: float) -> Iterator[RankKey]:
    """Yield the sort keys of jobs of one slope, the last first, after their ranks have fallen that far."""
    for tier, anchor, second, arrival in reversed(places):
        yield tier, anchor - fall, second, arrival


class RunningJobsBySite:
    """Jobs that may be preempted, by site; a job is listed at every site where it has windows."""

    def __init__(self) -> None:
        self._at: dict[str, RunningJobs] = {}
        self._where: dict[str, tuple[str, ...]] = {}

    def keys(self) -> list[str]:
        """Return the keys of all jobs."""
        return list(self._where)

    def put(self, state: JobState, rank: TieredRank, slope: float, held: Mapping[str, int], now: float) -> None:
        """Add a job, or update its rank; `held` is the number of GPUs that it holds, by site."""
        for site in self._where.get(state.job.key, ()):
            if site not in held:
                self._at[site].remove(state.job.key)
        for site, gpus in held.items():
            if site not in self._at:
                self._at[site] = RunningJobs()
            self._at[site].put(state, rank, slope, gpus, now)
        self._where[state.job.key] = tuple(held)

    def remove(self, key: str) -> None:
        """Remove a job, if it is present."""
        for site in self._where.pop(key, ()):
            self._at[site].remove(key)

    def gpus_behind(
        self, state: JobState, rank: TieredRank, site: str, now: float, *, any_resource: bool = False
    ) -> int:
        """Return the number of GPUs held at the site ("" for all sites) by other jobs that rank behind this one.

        Only GPUs of the resource that the job requests count, unless `any_resource` is set.
        """
        total = 0
        for one in self._lists_at(site):
            total += one.gpus_behind(state, rank, now, any_resource=any_resource)
        return total

    def is_behind(self, other: JobState, state: JobState, rank: TieredRank, site: str, now: float) -> bool:
        """Return whether another job with windows at the site ranks behind the given one."""
        return site in self._at and self._at[site].is_behind(other, state, rank, now)

    def jobs_behind(self, state: JobState, rank: TieredRank, site: str, now: float) -> Iterator[JobState]:
        """Yield the other jobs with windows there that rank behind the given one, worst rank first."""
        found = [one.jobs_behind(state, rank, now) for one in self._lists_at(site)]
        last = None
        for _, other in merge(*found, key=itemgetter(0), reverse=True) if len(found) > 1 else chain(*found):
            if other is not last:  # at several sites, a job has the same rank
                yield other
            last = other

    def _lists_at(self, site: str) -> Collection[RunningJobs]:
        if not site:
            return self._at.values()
        return (self._at[site],) if site in self._at else ()
