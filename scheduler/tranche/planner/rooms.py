"""Where the workers of a job of a queue policy find room: free, or taken from jobs that rank behind it.

`free_nodes` answers from what is free. `make_room` is a trial on paper (after Kueue's snapshots and KAI's statements):
it changes nothing, and says which windows to close and which nodes to use, or that there is no way.
"""

from collections.abc import Mapping, Sequence
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


def usable_nodes(cluster: ClusterState, state: JobState, now: float) -> list[NodeState]:
    """Nodes that could take a worker of the job, without those that it avoids now."""
    nodes = cluster.hosts(state)
    if state.avoided:
        nodes = [node for node in nodes if state.avoided.get(node.node.name, 0.0) <= now]
    return nodes


def free_nodes(cluster: ClusterState, state: JobState, wanted: int, now: float, *, first_fit: bool) -> list[NodeState]:
    """Nodes for up to so many workers of the job in what is free now, one entry a worker.

    Args:
        cluster: Its nodes.
        state: Gives the shape of a worker and the nodes to avoid.
        wanted: Workers.
        now: Clock, in seconds.
        first_fit: Take nodes by name, not the one that a worker fills best.
    """
    request = state.job.worker.requests
    nodes = usable_nodes(cluster, state, now)
    if wanted == 1 and not first_fit:
        best = min((node for node in nodes if node.has_room(request)), key=_gpus_left, default=None)
        return [] if best is None else [best]
    fitting = [node for node in nodes if node.has_room(request)]
    if not first_fit:
        fitting.sort(key=_gpus_left)
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
    return node.capacity.gpus - node.reserved.gpus


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
    """A plan on paper for one job: nodes for its workers, and who makes way."""

    cluster: ClusterState
    behind: list[JobState]
    """Jobs that may be preempted, the first in rank first; taken from the end."""
    rooms: dict[str, Resources] = field(default_factory=dict)
    nodes: list[NodeState] = field(default_factory=list)
    chosen: set[int] = field(default_factory=set)
    """Positions in `_victims`."""
    _victims: list[Victim] = field(default_factory=list)
    """Those looked at so far, the last in rank first."""

    def room(self, node: NodeState) -> Resources:
        """What is free there on paper."""
        return self.rooms.get(node.node.name) or node.capacity - node.reserved

    def place(self, request: Resources, nodes: Sequence[NodeState]) -> bool:
        """Find a node for one more worker: free room before preemption, then the node whose best victim ranks last."""
        fitting = [node for node in nodes if request.fits(self.room(node))]
        if fitting:
            best = min(fitting, key=lambda node: (self.room(node).gpus, node.node.name))
        else:
            found = self._preempting(request, {node.node.name: node for node in nodes})
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

    def _preempting(self, request: Resources, nodes: Mapping[str, NodeState]) -> NodeState | None:
        """Go up the ranks until the request would fit somewhere; those on that node make way."""
        rooms: dict[str, Resources] = {}
        position = 0
        while (victim := self._victim(position)) is not None:
            for name, amount in victim.freed().items() if position not in self.chosen else ():
                if name in nodes:
                    rooms[name] = rooms.get(name) or self.room(nodes[name])
                    rooms[name] = rooms[name] + amount
                    if request.fits(rooms[name]):
                        self._stop(name, position)
                        return nodes[name]
            position += 1
        return None

    def _victim(self, position: int) -> Victim | None:
        while len(self._victims) <= position and self.behind:
            state = self.behind.pop()
            runs = [run for run in state.runs.values() if not run.closing]
            self._victims += [Victim(state, runs)] if state.job.rigid else [Victim(state, [r]) for r in reversed(runs)]
        return self._victims[position] if position < len(self._victims) else None

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


def make_room(
    cluster: ClusterState, state: JobState, behind: list[JobState], workers: int, now: float
) -> tuple[list[NodeState], list[Victim]] | None:
    """Nodes for so many workers if jobs that rank behind make way, and who does; None if that does not help.

    Args:
        cluster: Its nodes.
        state: The job that needs them.
        behind: Jobs that rank behind it and may be preempted, the first in rank first; the list is used up.
        workers: All of a gang, or one.
        now: Clock, in seconds.
    """
    trial = Trial(cluster, behind)
    nodes = usable_nodes(cluster, state, now)
    for _ in range(workers):
        if not trial.place(state.job.worker.requests, nodes):
            return None
    return trial.nodes, trial.spare()
