"""Random clusters with several GPU resources: each worker is on a node with its own, and none is given twice."""

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.builders import LARGE, job, node, of_type, planner
from tranche.model import Job, Node, PodShape, Resources
from tranche.planner import Event, JobSubmitted, NodeChanged, OpenWindow, Planner, Tick, WorkerEnded, WorkerStarted
from tranche.policies import live_policies

NAMES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
RESOURCES = st.sampled_from(NAMES)
GPUS = st.integers(1, 4)


def node_with(name: str, site: str, resource: str, gpus: int) -> Node:
    return replace(node(name, site), allocatable=Resources(LARGE.cpu, LARGE.memory, gpus, LARGE.pods, resource))


def job_with(name: str, now: float, resource: str, gpus: int, chunks: int, *, gang: bool) -> Job:
    shape = PodShape(Resources(1000, 2**30, gpus, 1, resource))
    return job(name, now, chunks=chunks, worker=shape, is_gang=gang, seconds=50.0 * chunks)


NODES = st.lists(st.tuples(st.sampled_from(["edge-a", "edge-b"]), RESOURCES, GPUS), min_size=2, max_size=5)
JOBS = st.lists(st.tuples(RESOURCES, GPUS, st.integers(1, 4), st.booleans()), min_size=1, max_size=8)


class Course:
    """A planner whose windows start at once, and the resource of each GPU that they hold."""

    def __init__(self, policy: str, nodes: dict[str, Node]) -> None:
        self.nodes = nodes
        self.made: Planner = planner(policy, list(nodes.values()))

    def handle(self, event: Event, now: float) -> None:
        """Handle an event and start the windows that it opens, on nodes with GPUs of the resource of their job."""
        for one in of_type(OpenWindow, self.made.handle(event, now)):
            wanted = self.made.cluster.jobs[one.job].job.worker.requests
            offered = self.nodes[one.window.node or ""].allocatable
            assert wanted.gpu_resource == offered.gpu_resource
            self.handle(WorkerStarted(one.job, one.window.attempt, now), now)

    def check(self) -> None:
        """Check that no more GPUs of a resource are held than there are."""
        held, whole = Counter[str](), Counter[str]()
        for one in self.nodes.values():
            whole[one.allocatable.gpu_resource] += one.allocatable.gpus
        for state in self.made.cluster.jobs.values():
            for run in state.runs.values():
                held[run.requests.gpu_resource] += run.requests.gpus if run.reserves else 0
        assert held <= whole
        free = self.made.cluster.free.gpus()
        for name in NAMES:
            assert sum(count for (_, resource), count in free.items() if resource == name) == whole[name] - held[name]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(live_policies()), NODES, JOBS, st.data())
def test_each_worker_holds_gpus_of_its_own_resource_only(
    policy: str, nodes: list[tuple[str, str, int]], jobs: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    made = {f"n{i}": node_with(f"n{i}", *one) for i, one in enumerate(nodes)}
    course, now = Course(policy, made), 0.0
    gangs = course.made.policy.traits.supports_gangs
    for number, (resource, gpus, chunks, gang) in enumerate(jobs):
        now += 7.0
        course.handle(JobSubmitted(job_with(f"j{number}", now, resource, gpus, chunks, gang=gang and gangs)), now)
        course.check()
        if data.draw(st.booleans(), "end a worker"):
            now += 5.0
            runs = [(key, run) for key, state in course.made.cluster.jobs.items() for run in state.runs.values()]
            if runs:
                key, run = data.draw(st.sampled_from(runs), "worker")
                course.handle(WorkerEnded(key, run.window.attempt, "Succeeded", now), now)
                course.check()
        if data.draw(st.booleans(), "a node loses a GPU"):
            name = data.draw(st.sampled_from(sorted(made)), "node")
            known = made[name]
            if not course.made.cluster.nodes[name].runs:
                fewer = replace(known.allocatable, gpus=max(1, known.allocatable.gpus - 1))
                made[name] = replace(known, allocatable=fewer)
                course.handle(NodeChanged(made[name]), now)
                course.check()
    course.handle(Tick(), now + 1000.0)
    course.made.forecast(now + 1000.0)
    course.check()
