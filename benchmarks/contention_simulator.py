"""Simulator of single mini-batches: jobs that share GPUs by memory, and all-reduces that contend for the nodes' links.

The setting of the authors' simulator of arXiv 2002.10105 [C], written for tranche: 16 nodes of 4 GPUs of 32,768 MB. A
job is bound as soon as memory for all of its workers is free. In each mini-batch, every worker runs a forward and a
backward task on its GPU; the tasks of a GPU run one after the other, the job of least remaining service first. If the
workers are on several nodes, an all-reduce follows, which is one transfer on the link of each of these nodes.
Placement, contention and start rules are the functions of the product. Times are in milliseconds, data in MB.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from tranche.estimate.link_contention import LinkLoads, SharedLinks
from tranche.estimate.transfer_start import StartRule, ada_dual, fewer_than
from tranche.policies.binding.lwf import Loaded, least_loaded

NODES, GPUS_PER_NODE, GPU_MEMORY_MB = 16, 4, 32_768
ALONE, PENALTY = 0.856, 0.235
"""β and η of 10 Gbit/s Ethernet, in ms/MB."""
SIZES = ((1, 40), (2, 7), (4, 13), (8, 15), (16, 4), (32, 1))
"""GPUs of a job, and jobs of that size among 80."""
RULES: dict[str, StartRule] = {
    "SRSF(1)": fewer_than(1),
    "SRSF(2)": fewer_than(2),
    "Ada-SRSF": ada_dual(ALONE, PENALTY),
}


class Model(NamedTuple):
    """A model in training."""

    name: str
    gradient_mb: float
    forward_ms: float
    backward_ms: float
    memory_mb: float


MODELS = (
    Model("lstm", 251.8, 32, 47, 2751),
    Model("vgg16", 526.4, 36, 54, 4527),
    Model("resnet50", 99.2, 25, 37, 3213),
    Model("inception-v3", 103.0, 35, 52, 3291),
)


class Gpu(NamedTuple):
    """A GPU by its node and its number there."""

    node: int
    number: int


@dataclass(slots=True, eq=False)
class MiniBatchJob:
    """A job: bound to GPUs, it alternates between tasks on all of them and an all-reduce."""

    number: int
    model: Model
    workers: int
    iterations: int
    arrival: float
    gpus: list[Gpu] = field(default_factory=list)
    left: int = 0
    """Mini-batches left."""
    computing: int = 0
    """Workers that have not completed their tasks of this mini-batch."""
    completed: float = 0.0

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes of its workers."""
        return tuple(sorted({gpu.node for gpu in self.gpus}))

    @property
    def service(self) -> float:
        """Remaining service: the time of all tasks of all workers."""
        return self.workers * (self.model.forward_ms + self.model.backward_ms) * self.left

    @property
    def load(self) -> float:
        """Load that it puts on each of its GPUs: computation, and communication if it is on several nodes."""
        communication_ms = self.model.gradient_mb * ALONE if len(self.nodes) > 1 else 0.0
        return (self.model.forward_ms + self.model.backward_ms + communication_ms) * self.left


Placement = Callable[["MiniBatchSimulation", MiniBatchJob, list[Gpu]], list[Gpu]]
"""Chooses GPUs for a job among those with free memory, in order of node and number; an empty list: it waits."""


def lwf(kappa: float) -> Placement:
    """Return LWF-κ."""

    def place(simulation: "MiniBatchSimulation", job: MiniBatchJob, free: list[Gpu]) -> list[Gpu]:
        loads = [Loaded(simulation.load(gpu), f"{gpu.node:02}", gpu.number, gpu) for gpu in free]
        return least_loaded(loads, job.workers, kappa)

    return place


def first_fit(simulation: "MiniBatchSimulation", job: MiniBatchJob, free: list[Gpu]) -> list[Gpu]:
    """Return the first GPUs by node and number."""
    return free[: job.workers] if len(free) >= job.workers else []


def drawn(simulation: "MiniBatchSimulation", job: MiniBatchJob, free: list[Gpu]) -> list[Gpu]:
    """Return GPUs drawn at random."""
    chosen = Random(f"{simulation.seed}/placement/{job.number}")
    return chosen.sample(free, job.workers) if len(free) >= job.workers else []


PLACEMENTS: dict[str, Placement] = {
    "LWF-1": lwf(1),
    "least work": lwf(float("inf")),
    "first fit": first_fit,
    "random": drawn,
}


def jobs_of(seed: int, jobs: int) -> list[MiniBatchJob]:
    """Draw jobs in the published mix of sizes."""
    draw = Random(f"{seed}/jobs")
    sizes = [size for size, among in SIZES for _ in range(round(among * jobs / 80))]
    drawn_jobs = []
    for number, size in enumerate(sizes):
        iterations, arrival = draw.randint(10, 60), draw.uniform(0.0, 12_000.0)
        drawn_jobs.append(MiniBatchJob(number, draw.choice(MODELS), size, iterations, arrival, left=iterations))
    return drawn_jobs


@dataclass(slots=True, eq=False)
class MiniBatchSimulation:
    """One run; `average_jct` runs it."""

    jobs: list[MiniBatchJob]
    place: Placement
    rule: StartRule
    seed: int
    links: SharedLinks[int, int] = field(init=False)
    """All-reduces by number of the job; a link for each node."""
    now: float = 0.0
    _free: dict[Gpu, float] = field(default_factory=dict)
    """Free memory in MB."""
    _on: dict[Gpu, list[MiniBatchJob]] = field(default_factory=dict)
    _ready: dict[Gpu, list[tuple[MiniBatchJob, bool]]] = field(default_factory=dict)
    """Tasks that wait for the GPU: job, and whether it is the backward task."""
    _busy: set[Gpu] = field(default_factory=set)
    _queue: list[MiniBatchJob] = field(default_factory=list)
    _transfers: list[MiniBatchJob] = field(default_factory=list)
    """Jobs whose all-reduce waits."""
    _heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.links = SharedLinks(LinkLoads(lambda _: ALONE, PENALTY / ALONE))
        for gpu in (Gpu(node, number) for node in range(NODES) for number in range(GPUS_PER_NODE)):
            self._free[gpu], self._on[gpu], self._ready[gpu] = float(GPU_MEMORY_MB), [], []

    def average_jct(self) -> float:
        """Run all jobs, and return their average completion time in seconds."""
        for job in self.jobs:
            self._at(job.arrival, lambda job=job: self._arrive(job))  # type: ignore[misc]
        while self._heap or self.links.transfers:
            transfer_end, name = self.links.next_end()
            if self._heap and self._heap[0][0] <= transfer_end:
                self.now, _, act = heappop(self._heap)
                act()
            elif name is not None:
                self.now = transfer_end
                self.links.end(name, transfer_end)
                self._next_batch(next(job for job in self.jobs if job.number == name))
                self._start_transfers()
        return sum(job.completed - job.arrival for job in self.jobs) / len(self.jobs) / 1000

    def load(self, gpu: Gpu) -> float:
        """Return L_g of a GPU, in milliseconds."""
        return sum(job.load for job in self._on[gpu])

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heappush(self._heap, (time, next(self._order), act))

    def _arrive(self, job: MiniBatchJob) -> None:
        self._queue.append(job)
        self._bind()

    def _bind(self) -> None:
        """Bind waiting jobs, the least service first."""
        for job in sorted(self._queue, key=lambda job: (job.service, job.number)):
            free = [gpu for gpu, memory in self._free.items() if memory >= job.model.memory_mb]
            job.gpus = self.place(self, job, free)
            if job.gpus:
                self._queue.remove(job)
                for gpu in job.gpus:
                    self._free[gpu] -= job.model.memory_mb
                    self._on[gpu].append(job)
                self._compute(job)

    def _compute(self, job: MiniBatchJob) -> None:
        job.computing = job.workers
        for gpu in job.gpus:
            self._ready[gpu].append((job, False))
            self._serve(gpu)

    def _serve(self, gpu: Gpu) -> None:
        """Start the next task on a free GPU: that of the job of least remaining service."""
        if gpu in self._busy or not self._ready[gpu]:
            return
        task = min(self._ready[gpu], key=lambda task: (task[0].service, task[0].number))
        self._ready[gpu].remove(task)
        self._busy.add(gpu)
        job, backward = task
        seconds = job.model.backward_ms if backward else job.model.forward_ms
        self._at(self.now + seconds, lambda: self._task_done(gpu, job, backward=backward))

    def _task_done(self, gpu: Gpu, job: MiniBatchJob, *, backward: bool) -> None:
        self._busy.remove(gpu)
        if not backward:
            self._ready[gpu].append((job, True))
        else:
            job.computing -= 1
            if not job.computing:
                if len(job.nodes) > 1:
                    self._transfers.append(job)
                    self._start_transfers()
                else:
                    self._next_batch(job)
        self._serve(gpu)

    def _start_transfers(self) -> None:
        """Offer the waiting all-reduces to the rule, the job of least remaining service first."""
        for job in sorted(self._transfers, key=lambda job: (job.service, job.number)):
            beside = [transfer.left_at(self.now) for transfer in self.links.on(job.nodes)]
            if self.rule(job.model.gradient_mb, beside, self.links.most(job.nodes)):
                self._transfers.remove(job)
                self.links.start(job.number, job.model.gradient_mb, job.nodes, self.now)

    def _next_batch(self, job: MiniBatchJob) -> None:
        job.left -= 1
        if job.left:
            self._compute(job)
            return
        job.completed = self.now
        for gpu in job.gpus:
            self._free[gpu] += job.model.memory_mb
            self._on[gpu].remove(job)
        self._bind()


def average_jct(placement: str, rule: str, seed: int, jobs: int) -> float:
    """Return the average JCT of drawn jobs in seconds."""
    return MiniBatchSimulation(jobs_of(seed, jobs), PLACEMENTS[placement], RULES[rule], seed).average_jct()


def pairs(models: Sequence[Model], batches: int) -> list[MiniBatchJob]:
    """Return jobs of two workers that arrive at the beginning."""
    return [MiniBatchJob(number, model, 2, batches, 0.0, left=batches) for number, model in enumerate(models)]


def measured_ends(jobs: Sequence[MiniBatchJob], rule: StartRule, nodes: Sequence[tuple[int, int]]) -> list[float]:
    """Return when jobs of two workers are done, each with GPUs of its own, in seconds.

    Args:
        jobs: At most `GPUS_PER_NODE` jobs, numbered from 0.
        rule: Start rule of their all-reduces.
        nodes: Both nodes of each job.
    """
    ours = [replace(job, gpus=[]) for job in jobs]

    def place(simulation: MiniBatchSimulation, job: MiniBatchJob, free: list[Gpu]) -> list[Gpu]:
        return [Gpu(node, job.number) for node in nodes[job.number]]

    MiniBatchSimulation(ours, place, rule, 0).average_jct()
    return [job.completed / 1000 for job in ours]
