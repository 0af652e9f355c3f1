"""Delays of a real control plane, and a simulation that includes them.

`Simulation` charges one constant at a pod's start and stops a worker at once. That is exact for queueing models and for
jobs of hours. It is not exact for jobs of seconds: the start of a pod takes longer the more pods start at the same
time; a worker that is to stop trains until the signal arrives, then it saves, and its successor waits for all that.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tranche.model import Window
from tranche.planner import Event, Instruction, WorkerEnded
from tranche.simulation.engine.autoscaling import Autoscaling, Machines
from tranche.simulation.engine.simulation import Simulation, Worker
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Delays:
    """Constants of a control plane, all in seconds."""

    start_seconds: float = 0.0
    """ρ: time from the opening of a window on free slots to its first batch, when nothing else starts or stops."""
    notice_seconds: float = 0.0
    """Time from the closing of a window until its worker gets the signal, likewise; the worker trains until then."""
    save_seconds: float = 0.0
    """Time from then to the end of the worker's containers: the checkpoint."""
    handover_seconds: float = 0.0
    """Time from the end of a worker to the first batch of the worker that waited for its slots."""
    concurrency_seconds: float = 0.0
    """Additional time of a start or a notice for each other start or stop in progress."""
    gang_seconds: float = 0.0
    """Additional time of the start of a gang's member: no pod is scheduled before all of them exist."""
    node_seconds: float = 0.0
    """Time from the opening of a window at an unlimited site to its first batch if a node has to be created for it."""
    release_seconds: float = 0.0
    """Time from the last batch of a worker until a kubelet reports the end of its pod, which frees its slots. A kubelet
    checks once a second for containers that ended by themselves; it reports the end of a stopped one at once."""


@dataclass(slots=True)
class DelayedSimulation(Simulation):
    """Simulation with the delays of a control plane instead of one restart cost."""

    delays: Delays = Delays()
    autoscaling: Mapping[str, Autoscaling] = field(default_factory=dict)
    """Autoscaler settings by unlimited site; without an entry every worker there starts as on an existing node."""
    start_error: Callable[[], float] | None = None
    """Function that returns how much longer than expected the next start takes, in seconds (negative: less)."""
    _under_way: dict[tuple[str, int], float] = field(default_factory=dict)
    """Times when the starts and stops in progress will be done."""
    _leaving: dict[tuple[str, int], float] = field(default_factory=dict)
    """Times when workers that are to stop will have ended."""
    _saving: set[tuple[str, int]] = field(default_factory=set)
    """Workers among them that will not reach the end of their work."""
    _released: set[tuple[str, int]] = field(default_factory=set)
    """Workers that have reached the end of their work and whose pods have not ended."""
    _machines: dict[str, Machines] = field(default_factory=dict)
    """Created nodes by site."""

    def _in_progress(self) -> float:
        self._under_way = {pod: until for pod, until in self._under_way.items() if until > self.now}
        return self.delays.concurrency_seconds * len(self._under_way)

    def _starts_at(self, state: JobState, window: Window) -> float:
        delay = self.delays.start_seconds + self._in_progress() + (self.start_error() if self.start_error else 0.0)
        delay += self.delays.gang_seconds if state.job.min_available > 1 else 0.0
        starts = self.now + max(0.0, delay)
        machines = self._machines_of(window.site)
        if machines is not None:
            pod = (state.job.key, window.attempt)
            ready = machines.take(pod, state.job.gpus, self.now, self.delays.node_seconds)
            if ready > self.now:  # a pod that waits for a node does not delay other starts
                return max(starts, ready) + self._transfer_seconds(state, window)
        run = state.runs[window.attempt]
        if run.handover:
            slots = set(run.home.slots)
            closing = self.planner.cluster.nodes[window.node or ""].closing_runs
            before = [key for key, other in closing.items() if not slots or slots & set(other.home.slots)]
            ends = [self._leaving[key] for key in before if key in self._leaving]
            starts = max([starts, *(end + self.delays.handover_seconds for end in ends)])
        self._under_way[state.job.key, window.attempt] = starts
        return starts + self._transfer_seconds(state, window)

    def _machines_of(self, site: str) -> Machines | None:
        if site not in self._machines and site in self.autoscaling:
            self._machines[site] = Machines(self.autoscaling[site])
        return self._machines.get(site)

    def _execute(self, instructions: Iterable[Instruction]) -> None:
        Simulation._execute(self, instructions)
        self._assign_server_nodes()

    def _assign_server_nodes(self) -> None:
        """Assign nodes to parameter servers at autoscaled sites, which keeps the nodes from being removed."""
        for site in self.autoscaling:
            servers = {place for place, server in self._servers.items() if server.site == site and server.node is None}
            machines = self._machines_of(site)
            if machines is None:
                continue
            for gone in [pod for pod in machines.pods if pod not in servers and pod not in self._workers]:
                machines.give(gone, self.now)
            for place in sorted(servers.difference(machines.pods)):
                machines.take(place, 0, self.now, self.delays.node_seconds)

    def _leave(self, worker: Worker, outcome: str) -> None:
        Simulation._leave(self, worker, outcome)
        machines = self._machines_of(worker.window.site)
        if machines is not None:
            machines.give((worker.account.job.key, worker.window.attempt), self.now)

    def _stop(self, key: str, window: Window) -> None:
        pod = (key, window.attempt)
        worker = self._workers.get(pod)
        if worker is None or pod in self._leaving:
            return
        self._under_way.pop(pod, None)
        notice = self.now + self.delays.notice_seconds + self._in_progress()
        work_end = worker.starts + worker.rest_seconds()
        end = notice + (self.delays.save_seconds if worker.starts < notice else 0.0)
        self._leaving[pod] = work_end + self.delays.release_seconds if work_end <= notice else end
        if worker.training:
            self._under_way[pod] = self._leaving[pod]
        if work_end > notice:
            self._saving.add(pod)
            self.at(end, WorkerEnded(key, window.attempt, "Preempted", end, worker.progress(notice), 143))

    def _process(self, event: Event) -> None:
        if not isinstance(event, WorkerEnded):
            Simulation._process(self, event)
            return
        pod = (event.job, event.attempt)
        worker = self._workers.get(pod)
        if worker is None or (event.outcome == "Succeeded" and pod in self._saving):
            return  # the node was lost, or the worker had been stopped before its end
        if event.outcome == "Succeeded" and self.delays.release_seconds and pod not in self._released:
            self._released.add(pod)
            end = self.now + self.delays.release_seconds
            self.at(end, event._replace(at=end))
            return
        self._leaving.pop(pod, None)
        self._saving.discard(pod)
        self._released.discard(pod)
        if worker.training:
            idle = self.delays.release_seconds if event.outcome == "Succeeded" else self.delays.save_seconds
            worker.account.attained -= idle * max(1, worker.account.job.gpus)
            worker.account.lost += idle * max(1, worker.account.job.gpus)
        if event.outcome == "Succeeded":
            Simulation._process(self, event)
            return
        self._leave(worker, event.outcome)
        self._pending_events.append(event)
