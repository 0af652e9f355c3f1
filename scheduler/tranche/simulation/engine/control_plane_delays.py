"""What a real control plane takes its time for, and a simulation that takes it too.

`Simulation` charges one constant at a pod's start and stops a worker at once. That is exact for queueing models and for
jobs of hours. Where jobs live for seconds it is not: to start a pod takes the longer the more pods start at the same
time, a worker that is to stop trains on until it hears of it, then it saves, and its successor waits for all that.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tranche.model import Window
from tranche.planner import Event, Instruction, WorkerEnded
from tranche.simulation.engine.autoscaling import Autoscaling, Machines
from tranche.simulation.engine.simulation import Simulation, Worker
from tranche.state.entities import JobState


@dataclass(frozen=True, slots=True)
class Delays:
    """Constants of a control plane, all in seconds."""

    start_seconds: float = 0.0
    """ρ: from the opening of a window on free slots to its first batch, when nothing else starts or stops."""
    notice_seconds: float = 0.0
    """From the closing of a window to the moment when its worker hears of it, likewise; it trains until then."""
    save_seconds: float = 0.0
    """From then to its end: the checkpoint."""
    handover_seconds: float = 0.0
    """From the end of a worker to the first batch of the one that waited for its slots."""
    crowd_seconds: float = 0.0
    """How much longer a start or a notice takes for each other start or stop that is under way."""
    gang_seconds: float = 0.0
    """How much longer the start of a gang's member takes: no pod is scheduled before all of them exist."""
    node_seconds: float = 0.0
    """From the opening of a window at an unlimited site to its first batch if a node has to be made for it."""


@dataclass(slots=True)
class DelayedSimulation(Simulation):
    """A simulation with the delays of a control plane instead of one restart cost."""

    delays: Delays = Delays()
    autoscaling: Mapping[str, Autoscaling] = field(default_factory=dict)
    """Nodes of unlimited sites, by site; without an entry every worker there starts as on a node that exists."""
    start_error: Callable[[], float] | None = None
    """Says how much longer than expected the next start takes, in seconds (negative: less)."""
    _under_way: dict[tuple[str, int], float] = field(default_factory=dict)
    """When the starts and stops that are under way will be done."""
    _leaving: dict[tuple[str, int], float] = field(default_factory=dict)
    """When workers that are to stop will have ended."""
    _saving: set[tuple[str, int]] = field(default_factory=set)
    """Those of them that will not reach the end of their work."""
    _machines: dict[str, Machines] = field(default_factory=dict)
    """By site."""

    def _crowd(self) -> float:
        self._under_way = {who: until for who, until in self._under_way.items() if until > self.now}
        return self.delays.crowd_seconds * len(self._under_way)

    def _starts_at(self, state: JobState, window: Window) -> float:
        takes = self.delays.start_seconds + self._crowd() + (self.start_error() if self.start_error else 0.0)
        takes += self.delays.gang_seconds if state.job.min_available > 1 else 0.0
        starts = self.now + max(0.0, takes)
        machines = self._machines_of(window.site)
        if machines is not None:
            who = (state.job.key, window.attempt)
            ready = machines.take(who, state.job.gpus, self.now, self.delays.node_seconds)
            if ready > self.now:  # a pod that waits for a node keeps nobody from starting
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

    def _obey(self, instructions: Iterable[Instruction]) -> None:
        Simulation._obey(self, instructions)
        self._seat_servers()

    def _seat_servers(self) -> None:
        """Parameter servers at autoscaled sites take a place on a node, and keep it from going."""
        for site in self.autoscaling:
            servers = {place for place, one in self._servers.items() if one.site == site and one.node is None}
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
        who = (key, window.attempt)
        worker = self._workers.get(who)
        if worker is None or who in self._leaving:
            return
        self._under_way.pop(who, None)
        notice = self.now + self.delays.notice_seconds + self._crowd()
        done = worker.starts + worker.rest_seconds()
        end = notice + (self.delays.save_seconds if worker.starts < notice else 0.0)
        self._leaving[who] = done if done <= notice else end
        if worker.training:
            self._under_way[who] = self._leaving[who]
        if done > notice:
            self._saving.add(who)
            self.at(end, WorkerEnded(key, window.attempt, "Preempted", end, worker.progress(notice), 143))

    def _happen(self, event: Event) -> None:
        if not isinstance(event, WorkerEnded):
            Simulation._happen(self, event)
            return
        who = (event.job, event.attempt)
        worker = self._workers.get(who)
        if worker is None or (event.outcome == "Succeeded" and who in self._saving):
            return  # the node was lost, or the worker had been stopped before its end
        self._leaving.pop(who, None)
        self._saving.discard(who)
        if event.outcome == "Succeeded":
            Simulation._happen(self, event)
            return
        if worker.training:
            saved = self.delays.save_seconds * max(1, worker.account.job.gpus)
            worker.account.attained -= saved
            worker.account.lost += saved
        self._leave(worker, event.outcome)
        self._untold.append(event)
