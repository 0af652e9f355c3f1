"""Draft allocations of workers to jobs, for policies that allocate the whole cluster at once.

Ours [I]: a worker that runs keeps its node as long as its job keeps the worker, the oldest first; a new one takes the
node with the fewest GPUs left, and nodes where no worker has to stop before all others. A gang counts as one unit: all
of its members or none. Where a job has cells of a slot table, it takes the nodes of these cells before all others, and
a worker that runs elsewhere moves there.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tranche.model import PodPlaces, PodShape, Resources, SlotPlan
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.window import TrackedWindow


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """The amount that a job gets or loses at once: one worker, or a whole gang."""

    workers: int
    runs: tuple[TrackedWindow, ...]
    """Windows that go on; empty if the unit is to start."""
    taken: tuple[tuple[str, Resources], ...]
    """Requests by node, those of parameter servers that start with the unit included."""


def competitors(cluster: ClusterState, now: float) -> list[JobState]:
    """Return the jobs that share the cluster, in order of submission.

    They may claim workers, or were granted some and have open windows.
    A job that may preempt no other now, because its pods are not known to be placed, claims none: no worker stops for
    it. It may use idle GPUs, as every job that was granted no worker, but that does not make it a competitor: it would
    change the distribution, lose the GPUs, be left out again, and so on without end.
    """
    states = [
        state
        for state in cluster.jobs.values()
        if state.active and (_may_claim(cluster, state, now) or (_has_grant(cluster, state) and node_runs(state)))
    ]
    return sorted(states, key=lambda state: state.arrival)


def _may_claim(cluster: ClusterState, state: JobState, now: float) -> bool:
    if state.held_until > now or state.has_closing_servers or cluster.scheduler_silent:
        return False
    return cluster.may_preempt(state)


def _has_grant(cluster: ClusterState, state: JobState) -> bool:
    """Return whether the last distribution gave the job workers; before the first one, jobs keep theirs."""
    return bool(state.granted) or (state.granted is None and cluster.distribution.inputs is None)


def node_runs(state: JobState) -> list[TrackedWindow]:
    """Return the job's open windows on nodes, the oldest first; closing ones are left out."""
    return [run for _, run in sorted(state.runs.items()) if not run.closing and run.home.node is not None]


def cloud_workers(state: JobState) -> int:
    """Return the number of the job's windows at unlimited sites."""
    return sum(run.home.node is None for run in state.runs.values())


def most_units(state: JobState) -> int:
    """Return how many workers on nodes could train chunks now; for a gang 1, or 0 if it trains in the cloud."""
    elsewhere = cloud_workers(state)
    if state.job.is_gang:
        return 0 if elsewhere or state.cloud else 1
    covered = sum(len(run.window.chunks) for run in state.runs.values() if not run.closing)
    waiting = state.job.chunks - len(state.done) - covered - len(state.cloud)
    return max(0, min(state.job.max_workers - elsewhere, len(node_runs(state)) + max(0, waiting)))


def claimed_units(state: JobState) -> int:
    """Return how many workers on nodes could train chunks if the job had no windows on nodes; for a gang as above.

    It equals `most_units` if each window has one chunk. It does not depend on the windows that a distribution opens and
    closes: a window of several chunks leaves fewer of them for other workers.
    """
    if state.job.is_gang:
        return most_units(state)
    in_cloud = sum(len(run.window.chunks) for run in state.runs.values() if run.home.node is None and not run.closing)
    left = state.job.chunks - len(state.done) - len(state.cloud) - in_cloud
    return max(0, min(state.job.max_workers - cloud_workers(state), left))


class Draft:
    """An allocation of workers to jobs and nodes, which begins with the windows that must not be stopped."""

    def __init__(self, cluster: ClusterState, now: float) -> None:
        self.cluster = cluster
        self.now = now
        self.jobs = competitors(cluster, now)
        self.most = {state.job.key: most_units(state) for state in self.jobs}
        self.least: dict[str, int] = {}
        """Number of units that must not be stopped, by job."""
        self.plans: dict[str, SlotPlan] = {}
        """Plans on a slot table of all jobs that have one, under policies with such a table; the planner stores them in
        `JobState`."""
        self.returned = cluster.distribution.returned
        self.holders = cluster.distribution.holders
        """As in `tranche.state.distribution.Distribution`, under the same policies; the planner stores them there."""
        self.is_partial = False
        """Whether jobs have arrived to which the policy has offered no cells yet: it is called again at once."""
        self.cells: dict[str, PodPlaces] = {}
        """Nodes for the job's pods under the same policies, by job: those of its cells."""
        hosts = cluster.hosting_nodes()
        self.capacity = sum((node.capacity.larger(Resources()) for node in hosts), start=Resources())
        self._units: dict[str, list[Unit]] = {state.job.key: [] for state in self.jobs}
        self._used: dict[str, Counter[str]] = {state.job.key: Counter() for state in self.jobs}
        """Workers of each job by node."""
        self._hosts: dict[tuple[str, PodShape], list[str]] = {}
        """Names of the nodes on which a pod of the job may start now."""
        self._rooms = {name: node.capacity - node.reserved for name, node in cluster.nodes.items()}
        self._excess = {
            name: node.reserved.larger(node.capacity) - node.capacity
            for name, node in cluster.nodes.items()
            if not node.reserved.fits(node.capacity)
        }
        """Resources that pods use beyond the capacity of their node, such as while its device plugin restarts."""
        self._unused = dict(self._rooms)
        """Free resources by node before any worker stops."""
        self._gpus = sum(max(0, room.gpus) for room in self._rooms.values())
        self._open = {state.job.key: list(self._present(state)) for state in self.jobs}
        """Units of each job whose windows are open, the oldest first."""
        self._guests = list(self._idle_users())
        """Units of jobs that use idle GPUs and share in no distribution; they stop where others take their room."""
        for state in self.jobs:
            present = self._open[state.job.key]
            if state.stoppable:
                for unit in present:
                    self._release(unit)
            else:
                for unit in present:
                    self._append(state, unit)
            self.least[state.job.key] = len(self._units[state.job.key])
        for _, unit in self._guests:
            self._release(unit)

    def units(self, state: JobState) -> int:
        """Return the number of units that the job has in the draft: workers, or 1 for a gang."""
        return len(self._units[state.job.key])

    def workers(self, state: JobState) -> int:
        """Return the number of workers that the job has in the draft, members of a gang counted one by one."""
        return sum(unit.workers for unit in self._units[state.job.key])

    def unit_request(self, state: JobState) -> Resources:
        """Return the requests of one unit of the job, without parameter servers."""
        request = Resources()
        for _ in range(state.job.min_available):
            request = request + state.job.worker.requests
        return request

    def dominant(self, state: JobState) -> float:
        """Return the dominant share of one unit: the largest part of any resource of the cluster that it takes."""
        return max(self._parts(state), default=0.0)

    def part(self, state: JobState) -> float:
        """Return the parts of the cluster's resources that one unit takes, summed over the resources."""
        return sum(self._parts(state))

    def _parts(self, state: JobState) -> list[float]:
        return self.unit_request(state).parts_of(self.capacity)

    def add(self, state: JobState) -> bool:
        """Give the job another unit, one that runs if possible; return False at its limit or without room."""
        units = self._units[state.job.key]
        if len(units) >= self.most[state.job.key]:
            return False
        assigned = set(units)
        running = (unit for unit in self._open[state.job.key] if unit not in assigned and self._holds(unit))
        unit = self._in_cells(state, running) if state.job.key in self.cells else next(running, None)
        unit = unit or self._new_unit(state)
        if unit is None:
            return False
        self._reserve(unit)
        self._append(state, unit)
        return True

    def remove(self, state: JobState) -> bool:
        """Take the job's last unit; return False if it has none that may be stopped."""
        units = self._units[state.job.key]
        if len(units) <= self.least[state.job.key]:
            return False
        unit = units.pop()
        self._release(unit)
        self._used[state.job.key].subtract(name for name, _ in unit.taken[: unit.workers])
        return True

    def stopped(self) -> Iterator[tuple[JobState, TrackedWindow]]:
        """Yield the windows that are not in the draft, and those on idle GPUs whose room it takes; call it once."""
        for state in self.jobs:
            attempts = {run.window.attempt for unit in self._units[state.job.key] for run in unit.runs}
            for run in node_runs(state):
                if run.window.attempt not in attempts:
                    yield state, run
        for state, unit in self._guests:
            if self._holds(unit):
                self._reserve(unit)
            else:
                yield from ((state, run) for run in unit.runs)

    def _holds(self, unit: Unit) -> bool:
        """Return whether the draft has room where the unit's windows are."""
        if len(unit.taken) == 1:
            [(name, request)] = unit.taken
            return self._fits_running(request, name)
        requests: dict[str, Resources] = {}
        for name, request in unit.taken:
            requests[name] = requests.get(name, Resources()) + request
        return all(self._fits_running(request, name) for name, request in requests.items())

    def _fits_running(self, request: Resources, name: str) -> bool:
        """Return whether there is room on a node for what runs there, also if its GPUs have another resource now."""
        room = self._rooms[name] + self._excess[name] if name in self._excess else self._rooms[name]
        if request.gpu_resource != room.gpu_resource:
            request = replace(request, gpu_resource=room.gpu_resource)
        return request.fits(room)

    def _append(self, state: JobState, unit: Unit) -> None:
        self._units[state.job.key].append(unit)
        self._used[state.job.key].update(name for name, _ in unit.taken[: unit.workers])

    def _reserve(self, unit: Unit) -> None:
        for name, request in unit.taken:
            self._rooms[name] = self._rooms[name] - request
            if not unit.runs:
                self._unused[name] = self._unused[name] - request
            self._gpus -= request.gpus

    def _release(self, unit: Unit) -> None:
        for name, request in unit.taken:
            self._rooms[name] = self._rooms[name] + request
            if not unit.runs:
                self._unused[name] = self._unused[name] + request
            self._gpus += request.gpus

    def _in_cells(self, state: JobState, running: Iterator[Unit]) -> Unit | None:
        """Return a unit where the job has cells left, one that runs if possible; else the first one that runs."""
        workers_left, first = self._workers_left(state), None
        if not any(count > 0 for count in workers_left.values()):
            return next(running, None)

        def is_in_cells(unit: Unit) -> bool:
            return any(workers_left[name] > 0 for name, _ in unit.taken[: unit.workers])

        for unit in running:
            if is_in_cells(unit):
                return unit
            first = first or unit
        new = self._new_unit(state) if first else None
        return new if new and is_in_cells(new) else first

    def _new_unit(self, state: JobState) -> Unit | None:
        """Return a new unit of the job, with the parameter servers and the chief that it lacks; None without room."""
        job = state.job
        if job.min_available * job.gpus > self._gpus:
            return None
        starts = not (self._units[job.key] or state.servers)
        helpers = [job.server] * job.servers + [job.chief] if starts else []
        shapes = [job.worker] * job.min_available + [shape for shape in helpers if shape is not None]
        taken: list[tuple[str, Resources]] = []
        cells = self.cells.get(job.key)
        workers, servers = self._workers_left(state), Counter(dict(cells.servers if cells else ()))
        for number, shape in enumerate(shapes):
            preferred = workers if number < job.min_available else servers
            name = self._best(self._hosts_of(state, shape), shape.requests, taken, preferred)
            if name is None:
                return None
            preferred[name] -= 1
            taken.append((name, shape.requests))
        return Unit(job.min_available, (), tuple(taken))

    def _workers_left(self, state: JobState) -> Counter[str]:
        """Return the workers by node that the job has cells for and not yet in the draft."""
        cells = self.cells.get(state.job.key)
        missing = Counter(dict(cells.workers if cells else ()))
        missing.subtract(self._used[state.job.key])
        return missing

    def preferred(self, state: JobState) -> PodPlaces | None:
        """Return the nodes of the job's cells and of its workers beyond these; None under policies without cells."""
        cells = self.cells.get(state.job.key)
        if cells is None:
            return None
        used = self._used[state.job.key]
        counts = Counter(dict(cells.workers))
        beyond = self.workers(state) - counts.total()
        for name in sorted(used - counts) if beyond > 0 else ():
            count = min(beyond, used[name] - counts[name])
            counts[name] += count
            beyond -= count
        return cells._replace(workers=tuple((+counts).items()))

    def _hosts_of(self, state: JobState, shape: PodShape) -> list[str]:
        names = self._hosts.get((state.job.key, shape))
        if names is None:
            eligible = self.cluster.eligible(shape)
            names = [node.node.name for node in eligible if self._serves(node, state)]
            self._hosts[state.job.key, shape] = names
        return names

    def _serves(self, node: NodeState, state: JobState) -> bool:
        """Return whether a pod of the job may start on the node now: it is not avoided, and data are there."""
        return not state.excludes(node.node.name, self.now) and state.can_start_at(node.node.site, self.now)

    def _best(
        self, hosts: Sequence[str], request: Resources, taken: Sequence[tuple[str, Resources]], preferred: Counter[str]
    ) -> str | None:
        used: dict[str, Resources] = {}
        for name, amount in taken:
            used[name] = used.get(name, Resources()) + amount
        best: tuple[bool, bool, int, str] | None = None
        for name in hosts:
            total = used[name] + request if name in used else request
            if total.fits(self._rooms[name]):
                order = (preferred[name] <= 0, not total.fits(self._unused[name]), self._rooms[name].gpus, name)
                best = order if best is None else min(best, order)
        return None if best is None else best[3]

    def _idle_users(self) -> Iterator[tuple[JobState, Unit]]:
        """Yield the units of active jobs that do not compete, in order of submission."""
        competing = {state.job.key for state in self.jobs}
        idle = [state for state in self.cluster.jobs.values() if state.active and state.job.key not in competing]
        for state in sorted(idle, key=lambda state: state.arrival):
            for unit in self._present(state) if state.stoppable else ():
                yield state, unit

    def _present(self, state: JobState) -> Iterator[Unit]:
        """Yield the job's open windows as units; one whose node is gone takes nothing until its end is reported."""
        runs = node_runs(state)
        groups = ([tuple(runs)] if runs else []) if state.job.is_gang else [(run,) for run in runs]
        for group in groups:
            requests = ((run.home.node or "", run.requests) for run in group)
            yield Unit(len(group), group, tuple((name, amount) for name, amount in requests if name in self._rooms))
