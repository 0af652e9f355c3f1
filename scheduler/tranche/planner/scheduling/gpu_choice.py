"""Choice among GPUs of different speeds: a chunk starts on a slow GPU only if it completes sooner there.

The waiting chunks of a job are assigned one after the other to the GPU on which each would complete first: to a free
one, also at another site that has its data, or to a faster one after the window that holds it. A free GPU that gets no
chunk stays free. GPUs that other jobs hold count only for the job that waits first, since other GPUs that become free
go to the jobs that rank ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import fsum
from typing import NamedTuple

from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState

RETRY_SECONDS = 30.0
"""Time after which a chunk is tried again that was left for a free GPU at another site."""
OVERDUE = 0.1
"""Part of its length by which a window may be overdue before nothing waits for its GPU any more."""


class _Busy(NamedTuple):
    """The GPU of a window."""

    at: float
    """When it is expected to be free, in seconds."""
    seconds: float
    """Time of a mini-batch of the waiting job there, in seconds."""
    given_up: float
    """Time from which nothing waits for it, in seconds."""


def has_kinds(cluster: ClusterState, state: JobState) -> bool:
    """Return whether GPUs of different kinds or declared speeds could train the job, and the planner weighs them."""
    return cluster.weighs_gpu_kinds and len(cluster.hosts(state).kinds) > 1


def by_speed(state: JobState, *, learned: bool) -> Callable[[NodeState], tuple[float, int]]:
    """Return the sort key of nodes for a job: the time of a mini-batch there, then the number of free GPUs.

    Args:
        state: State of the job.
        learned: Count what was learned about the node, and not only the speed of its GPU kind.
    """
    job = state.job

    def order(node: NodeState) -> tuple[float, int]:
        seconds = node.learned_factor if learned and node.node.gpu_kind not in job.step_seconds_by_kind else 1.0
        return seconds / job.speed_on(node.node.gpu_kind, node.node.speed), node.free_gpus

    return order


def site_batch_seconds(cluster: ClusterState, state: JobState, site: str) -> float:
    """Return the expected time of a mini-batch of the job at a site: on the fastest of its GPU kinds, in seconds."""
    if not has_kinds(cluster, state):
        return cluster.batch_seconds(state, site)
    one_each = cluster.hosts(state).one_each.get(site)
    if not one_each:
        return cluster.batch_seconds(state, site)
    return min([_pace(cluster, state, node) for node in one_each])


def nodes_to_start_on(
    cluster: ClusterState,
    state: JobState,
    chosen: list[NodeState],
    waiting: list[int],
    now: float,
    *,
    first: bool,
    elsewhere: Sequence[NodeState] = (),
) -> tuple[list[NodeState], float | None]:
    """Return those of the chosen nodes on which a chunk should start now, and when to look again if one is left out.

    Args:
        cluster: State of the cluster.
        state: State of a chunked job.
        chosen: Nodes with free GPUs, one entry for each worker.
        waiting: Chunks that wait.
        now: Clock, in seconds.
        first: Whether no other job that waits ranks ahead.
        elsewhere: Nodes with free GPUs at other sites where the chunks could start as well, one entry for each worker.
    """
    if not waiting:
        return chosen, None
    paces = _Paces(cluster, state)
    others = [paces.of(node) for node in elsewhere]
    pace = {node.node.name: paces.of(node) for node in chosen}
    rest = fsum(state.remaining_batches(chunk) for chunk in waiting) / len(waiting)
    restart = state.restart_seconds
    slowest = max(pace.values(), default=0.0)
    # A GPU where a chunk ends later than on the slowest of the chosen ones has no influence.
    busy = list(_busy(state, paces, slowest, rest, now, others=first))
    if len({*pace.values(), *others, *(one.seconds for one in busy)}) == 1:
        return chosen, None
    free = [(now + restart, pace[node.node.name]) for node in chosen]
    ends = [(now + restart, seconds) for seconds in others] + [(one.at + restart, one.seconds) for one in busy]
    heap = [
        (at + rest * seconds, number >= len(free), number, seconds)  # of two equal ends, the one that starts now
        for number, (at, seconds) in enumerate((*free, *ends))
    ]
    heapify(heap)
    used: set[int] = set()
    for _ in waiting:
        end, _, number, seconds = heappop(heap)
        used.add(number)
        heappush(heap, (end + rest * seconds, True, number, seconds))
    kept = [node for number, node in enumerate(chosen) if number in used]
    if len(kept) == len(chosen):
        return chosen, None
    ended = [now + restart + rest * pace[node.node.name] for node in kept]
    return kept, min([one.given_up for one in busy] + ended, default=now + RETRY_SECONDS)


class _Paces:
    """Times of a mini-batch of a job on nodes, in seconds, for one decision.

    Those by specification and links are computed once for all nodes of one kind at one site.
    """

    def __init__(self, cluster: ClusterState, state: JobState) -> None:
        self._cluster, self._state = cluster, state
        self._known: dict[tuple[str, str, float], tuple[float, Callable[[str | None], float]]] = {}
        self._near = {one.planned.site for one in state.servers if cluster.level_network is not None}
        """Sites where nodes of one kind may differ, by their distance from the parameter servers there."""

    def of(self, node: NodeState) -> float:
        """Return the time on a node."""
        here = node.node
        if here.site in self._near:
            return _pace(self._cluster, self._state, node)
        key = (here.site, here.gpu_kind, here.speed)
        known = self._known.get(key)
        if known is None:
            cluster, state = self._cluster, self._state
            declared = cluster.declared_batch_seconds(state, here.site, node=here.name)
            known = self._known[key] = declared, cluster.speed_factors(state, here.site, here.gpu_kind)
        declared, factor = known
        return declared * factor(here.name)

    def faster(self, seconds: float, now: float) -> Iterator[tuple[NodeState, float]]:
        """Yield the nodes with windows where the job could start and is faster than `seconds`, with their times."""
        cluster, state = self._cluster, self._state
        has_learned = bool(cluster.speed_model.nodes)
        for (site, _, _), alike in cluster.hosts(state).alike.items():
            alone = has_learned or site in self._near
            if state.can_start_at(site, now) and (alone or self.of(alike[0]) < seconds):
                for node in alike:
                    if node.runs and (time := self.of(node)) < seconds:
                        yield node, time

    def faster_own(self, seconds: float, now: float) -> Iterator[tuple[NodeState, float]]:
        """Yield those of these nodes where the job has windows itself."""
        by_name, state = self._cluster.hosts(self._state).by_name, self._state
        for name in _own_nodes(state):
            node = by_name.get(name)
            if node is not None and state.can_start_at(node.node.site, now) and (time := self.of(node)) < seconds:
                yield node, time


def _pace(cluster: ClusterState, state: JobState, node: NodeState) -> float:
    return cluster.batch_seconds(state, node.node.site, node=node.node.name)


def _busy(state: JobState, paces: _Paces, slowest: float, rest: float, now: float, *, others: bool) -> Iterator[_Busy]:
    """Yield the GPUs of windows where a chunk of `rest` mini-batches would end sooner than now on the slowest node.

    Those of windows that are overdue are left out.
    """
    gpus = state.job.gpus
    for node, seconds in (paces.faster if others else paces.faster_own)(slowest, now):
        latest = now + rest * (slowest - seconds)
        for owner, run in node.runs.values():
            start, end = run.window.start, run.window.end
            if end >= latest or not (others or owner is state) or run.requests.gpus < gpus or run.closing:
                continue
            given_up = end + OVERDUE * (end - start)
            if given_up > now:
                yield _Busy(max(now, end), seconds, given_up)


def _own_nodes(state: JobState) -> list[str]:
    return sorted({run.home.node for run in state.runs.values() if run.home.node is not None})
