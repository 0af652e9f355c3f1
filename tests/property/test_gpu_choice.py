"""The choice among GPUs of several speeds assigns each chunk to the GPU where it would end first."""

from heapq import heapify, heapreplace

from hypothesis import given
from hypothesis import strategies as st

from support.builders import job, node, planner
from tranche.model import Site
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import JobSubmitted, NodeChanged, Planner, WorkerStarted
from tranche.planner.scheduling.gpu_choice import OVERDUE, nodes_to_start_on
from tranche.state.job import JobState
from tranche.state.node import NodeState

LABEL = "nvidia.com/gpu.product"
SPEEDS = {"A": 1.0, "B": 0.5, "C": 0.4}
NOW = 60.0
LEARNED = st.none() | st.sampled_from([0.5, 1.5])


def plainly_kept(one: Planner, state: JobState, chosen: list[NodeState], waiting: list[int]) -> set[str]:
    """Return the chosen nodes that get a chunk, with every window of the cluster considered."""
    cluster = one.cluster
    rest = sum(state.remaining_batches(chunk) for chunk in waiting) / len(waiting)

    def pace(node: NodeState) -> float:
        return cluster.batch_seconds(state, node.node.site, node=node.node.name)

    slowest = max((pace(node) for node in chosen), default=0.0)
    ends = [(NOW + rest * pace(node), 0, node.node.name, pace(node)) for node in chosen]
    for other in cluster.nodes.values():
        for _, run in other.runs.values():
            start, end = run.window.start, run.window.end
            if pace(other) < slowest and end + OVERDUE * (end - start) > NOW:
                ends.append((max(NOW, end) + rest * pace(other), 1, "", pace(other)))
    heapify(ends)
    used = set()
    for _ in waiting:
        end, _, name, seconds = ends[0]
        used.add(name)
        heapreplace(ends, (end + rest * seconds, 1, name, seconds))
    return used - {""}


@given(
    busy=st.lists(st.tuples(st.sampled_from("ABC"), st.floats(1, 200), LEARNED), max_size=6),
    free=st.lists(st.tuples(st.sampled_from("ABC"), LEARNED), min_size=1, max_size=3),
    chunks=st.integers(0, 6),
    seconds=st.floats(1, 200),
)
def test_node_is_used_if_a_chunk_ends_first_there(
    busy: list[tuple[str, float, float | None]], free: list[tuple[str, float | None]], chunks: int, seconds: float
) -> None:
    one = planner("srsf", [], sites=[Site("s")], gpu_kinds=GpuKinds(labels=(LABEL,), speeds=SPEEDS))
    for number, (kind, length, factor) in enumerate(busy):
        add(one, f"busy-{number}", kind, factor)
        one.handle(JobSubmitted(job(f"j{number}", seconds=length)), 0.0)
        if one.cluster.jobs[f"default/j{number}"].runs:  # else it waits for a faster one
            one.handle(WorkerStarted(f"default/j{number}", 1, 0.0), 0.0)
    for number, (kind, factor) in enumerate(free):
        add(one, f"free-{number}", kind, factor)
    chosen = [known for known in one.cluster.nodes.values() if known.free_gpus]
    chunks += len(chosen)  # at least one for each node
    state, waiting = JobState(job("asks", chunks=chunks, seconds=seconds)), list(range(chunks))
    kept, _ = nodes_to_start_on(one.cluster, state, chosen, waiting, NOW, first=True)
    assert {known.node.name for known in kept} == plainly_kept(one, state, chosen, waiting)


def add(one: Planner, name: str, kind: str, factor: float | None) -> None:
    """Add a node of one GPU, with a factor that an earlier planner has learned."""
    if factor is not None:
        one.cluster.speed_model.recall_node(name, factor)
    one.handle(NodeChanged(node(name, "s", 1, labels={LABEL: kind})), 0.0)
