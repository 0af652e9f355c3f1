"""Where the workers of a job of a queue policy find room: free, or taken from jobs that rank behind it.

`free_nodes` answers from what is free. `Trial` is a plan on paper (after Kueue's snapshots and KAI's statements):
it changes nothing, and says which windows to close and which nodes to use, or that there is no way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tranche.model import Resources
from tranche.policies import ClusterState, JobState, NodeState, Run


def could_run(cluster: ClusterState, state: JobState) -> bool:
    """Whether an otherwise empty cluster could run the job: one that never fits must not block a queue."""
    request, members = state.job.worker.requests, state.job.chunks if state.job.rigid else 1
    for node in cluster.hosts(state):
        room = node.capacity
        while members and request.fits(room):
            room, members = room - request, members - 1
    return not members


def free_hosts(cluster: ClusterState, state: JobState, site: str, now: float) -> list[NodeState]:
    """Nodes with free GPUs that could take a worker of the job, at one site or (with "") anywhere, by name.

    Those that the job avoids now are left out.
    """
    nodes = cluster.free.of(cluster.hosts(state), site)
    if state.avoided:
        nodes = [node for node in nodes if state.avoided.get(node.node.name, 0.0) <= now]
    return nodes


def free_nodes(
    nodes: Sequence[NodeState], state: JobState, wanted: int, *, first_fit: bool, fastest: bool = False
) -> list[NodeState]:
    """Nodes for up to so many workers of the job in what is free now, one entry a worker.

    Args:
        nodes: To choose from, by name.
        state: Gives the shape of a worker.
        wanted: Workers.
        first_fit: Take nodes by name, not the one that a worker fills best.
        fastest: Prefer the node that is believed fastest to the one that a worker fills best.
    """
    request = state.job.worker.requests
    order = _by_pace if fastest else _gpus_left
    if wanted == 1 and not first_fit:
        best = min((node for node in nodes if node.has_room(request)), key=order, default=None)
        return [] if best is None else [best]
    fitting = [node for node in nodes if node.has_room(request)]
    if not first_fit:
        fitting.sort(key=order)
    found: list[NodeState] = []
    for node in fitting:
        room = node.capacity - node.reserved
        while len(found) < wanted and request.fits(room):
            found.append(node)
            room = room - request
        if len(found) == wanted:
            break
    return found


def _gpus_left(node: NodeState) -> int:
    return node.free_gpus


def _by_pace(node: NodeState) -> tuple[float, float]:
    return (node.pace, _gpus_left(node))


@dataclass(slots=True, eq=False)
class Victim:
    """Windows that only stop together: one of a chunked job, all of a gang."""

    state: JobState
    runs: list[Run]

    def freed(self) -> dict[str, Resources]:
        """What stopping them gives back, by node."""
        request = self.state.job.worker.requests
        if len(self.runs) == 1:
            return {self.runs[0].home.node or "": request}
        freed: dict[str, Resources] = {}
        for run in self.runs:
            node = run.home.node or ""
            freed[node] = freed[node] + request if node in freed else request
        return freed


@dataclass(slots=True, eq=False)
class Trial:
    """A plan on paper for one job: nodes for its workers, and who makes way.

    `find` may be called again after its answer has become real: who was looked at and not needed is looked at first.
    """

    cluster: ClusterState
    state: JobState
    """The job that needs room."""
    now: float
    behind: list[JobState]
    """Jobs that may be preempted, the first in rank first; taken from the end."""
    stops: Callable[[JobState, Run], bool]
    """Whether a window of theirs may be closed."""
    rooms: dict[str, Resources] = field(default_factory=dict)
    nodes: list[NodeState] = field(default_factory=list)
    chosen: set[int] = field(default_factory=set)
    """Positions in `_victims`."""
    _victims: list[Victim] = field(default_factory=list)
    """Those looked at so far, the last in rank first."""
    _further: Iterator[Victim] = field(init=False)

    def __post_init__(self) -> None:
        self._further = self._stoppable()

    def find(self, free: Sequence[NodeState], workers: int) -> tuple[list[NodeState], list[Victim]] | None:
        """Nodes for so many workers if jobs that rank behind make way, and who does; None if that does not help.

        Args:
            free: Nodes with free GPUs that may be used.
            workers: All of a gang, or one.
        """
        for position in sorted(self.chosen, reverse=True):
            del self._victims[position]
        self.chosen, self.rooms, self.nodes = set(), {}, []
        for _ in range(workers):
            if not self.place(self.state.job.worker.requests, free):
                return None
        return self.nodes, self.spare()

    def room(self, node: NodeState) -> Resources:
        """What is free there on paper."""
        return self.rooms.get(node.node.name) or node.capacity - node.reserved

    def place(self, request: Resources, free: Sequence[NodeState]) -> bool:
        """Find a node for one more worker: free room before preemption, then the node whose best victim ranks last."""
        touched = [node for name in self.rooms if (node := self._usable(name)) is not None]
        fitting = [node for node in (*free, *touched) if request.fits(self.room(node))]
        if fitting:
            best = min(fitting, key=lambda node: (self.room(node).gpus, node.node.name))
        else:
            found = self._preempting(request)
            if found is None:
                return False
            best = found
        self.rooms[best.node.name] = self.room(best) - request
        self.nodes.append(best)
        return True

    def spare(self) -> list[Victim]:
        """Let those go on who fit after all, the first in rank first; returns who makes way."""
        for position in sorted(self.chosen, reverse=True):
            freed = self._victims[position].freed()
            if all(name in self.rooms and amount.fits(self.rooms[name]) for name, amount in freed.items()):
                for name, amount in freed.items():
                    self.rooms[name] = self.rooms[name] - amount
                self.chosen.discard(position)
        return [self._victims[position] for position in sorted(self.chosen)]

    def _usable(self, name: str) -> NodeState | None:
        """The node, if the job may use it."""
        avoided = self.state.avoided.get(name, 0.0) > self.now
        return None if avoided else self.cluster.hosts(self.state).by_name.get(name)

    def _preempting(self, request: Resources) -> NodeState | None:
        """Go up the ranks until the request would fit somewhere; those on that node make way."""
        rooms: dict[str, Resources] = {}
        position = 0
        while (victim := self._victim(position)) is not None:
            for name, amount in victim.freed().items() if position not in self.chosen else ():
                node = self._usable(name)
                if node is not None:
                    rooms[name] = (rooms.get(name) or self.room(node)) + amount
                    if request.fits(rooms[name]):
                        self._stop(name, position)
                        return node
            position += 1
        return None

    def _victim(self, position: int) -> Victim | None:
        while len(self._victims) <= position and (victim := next(self._further, None)) is not None:
            self._victims.append(victim)
        return self._victims[position] if position < len(self._victims) else None

    def _stoppable(self) -> Iterator[Victim]:
        while self.behind:
            state = self.behind.pop()
            runs = [run for run in state.runs.values() if not run.closing]
            if state.job.rigid:
                if all(self.stops(state, run) for run in runs):
                    yield Victim(state, runs)
            else:
                for run in reversed(runs):
                    if self.stops(state, run):
                        yield Victim(state, [run])

    def _stop(self, node: str, last: int) -> None:
        """Everybody on the node makes way, up to that position."""
        for position, victim in enumerate(self._victims[: last + 1]):
            freed = victim.freed() if position not in self.chosen else {}
            if node in freed:
                self.chosen.add(position)
                for name, amount in freed.items():
                    known = self.cluster.nodes.get(name)
                    if known is not None:
                        self.rooms[name] = self.room(known) + amount
