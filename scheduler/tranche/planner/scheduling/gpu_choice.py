"""Choice among GPUs of different speeds: a chunk starts on a slow GPU only if it completes sooner there.

The waiting chunks of a job are assigned one after the other to the GPU on which each would complete first: to a free
one, also at another site that has its data, or to a faster one after the window that holds it. A free GPU that gets no
chunk stays free. GPUs that other jobs hold count only for the job that waits first, since other GPUs that become free
go to the jobs that rank ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState
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
        learned: Count what was learnt about the node, and not only the speed of its GPU kind.
    """
    job = state.job

    def order(node: NodeState) -> tuple[float, int]:
        seconds = node.learnt if learned and node.node.gpu_kind not in job.step_seconds_by_kind else 1.0
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


def worthwhile(
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
    others = [_pace(cluster, state, node) for node in elsewhere]
    pace = {node.node.name: _pace(cluster, state, node) for node in chosen}
    slowest = max(pace.values(), default=0.0)
    busy = list(_busy(cluster, state, slowest, now, others=first))
    if not waiting or len({*pace.values(), *others, *(one.seconds for one in busy)}) == 1:
        return chosen, None
    rest = sum(state.remaining_batches(chunk) for chunk in waiting) / len(waiting)
    restart = state.restart_seconds
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


def _pace(cluster: ClusterState, state: JobState, node: NodeState) -> float:
    return cluster.batch_seconds(state, node.node.site, node=node.node.name)


def _busy(cluster: ClusterState, state: JobState, slower_than: float, now: float, *, others: bool) -> Iterator[_Busy]:
    """Yield the GPUs of windows that are faster for the job; those of windows that are overdue are left out."""
    hosts = cluster.hosts(state)
    nodes = hosts if others else [hosts.by_name[name] for name in _own_nodes(state) if name in hosts.by_name]
    for node in nodes:
        if not node.runs or not state.can_start_at(node.node.site, now):
            continue
        ends: list[tuple[float, float]] = []
        for owner, run in node.runs.values():
            if (others or owner is state) and run.requests.gpus >= state.job.gpus and not run.closing:
                start, end = run.window.start, run.window.end
                given_up = end + OVERDUE * (end - start)
                if given_up > now:
                    ends.append((max(now, end), given_up))
        if ends and (seconds := _pace(cluster, state, node)) < slower_than:
            for end, given_up in ends:
                yield _Busy(end, seconds, given_up)


def _own_nodes(state: JobState) -> list[str]:
    return sorted({run.home.node for run in state.runs.values() if run.home.node is not None})
