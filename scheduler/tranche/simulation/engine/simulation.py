"""Event-driven engine: takes arrivals, calls the production planner, and runs workers in virtual time.

All events of one instant are passed to the planner together, and it decides once. Nothing is rounded to a period
unless one is given; then the planner receives events at the next multiple of it, while workers end at their own times.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf

from tranche.model import Job, Node, PlannedServer, Site, Window
from tranche.planner import (
    ChiefEnded,
    ChunkStaged,
    CloseParameterServer,
    CloseWindow,
    Event,
    Instruction,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    PlaceParameterServer,
    Planner,
    PlannerSettings,
    SiteChanged,
    StageData,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.helper_end import expected_chief_end, helper_end
from tranche.policies import Policy
from tranche.simulation.engine.accounting import JobAccount, LoadCurve, fastest_speed, ideal_seconds, speeds_by_kind
from tranche.simulation.engine.chunk_record import ChunkRecords, Stretch, stretches
from tranche.simulation.engine.link_traffic import LinkTraffic, Sender, is_upload
from tranche.simulation.engine.result import JobResult, Occupation, SimulationResult
from tranche.simulation.engine.shared_uploads import Due, SharedUploads
from tranche.simulation.engine.single_transfers import SingleTransfers
from tranche.simulation.engine.site_use import capacity_gpus, job_use, site_uses
from tranche.simulation.engine.true_transfers import TrueUploads
from tranche.state.job import JobState
from tranche.state.progress_ledger import applied_in_order

BatchSeconds = Callable[[Job, Window], float]
"""True time of one mini-batch of a window, in seconds."""
_COMPLETING = (WorkerEnded, ChiefEnded)
"""Events that may complete a job."""
OnCompletion = Callable[[int], None]
"""Callback with the number of completed jobs."""


@dataclass(slots=True, eq=False)
class Worker:
    """Pod in virtual time: it holds its GPUs, trains after its restart cost, and ends."""

    account: JobAccount
    window: Window
    opened: float
    starts: float
    per_batch: float
    begun: dict[int, float]
    total: int
    communication: float = 0.0
    """Share of the training time in which the job communicates, 0 … 1; that of a gang is counted with one member."""
    since: float = 0.0
    """When the present pace began, in seconds: `starts`, or the last change of contention."""
    trained: float = 0.0
    """Number of mini-batches trained until then."""
    extra: float = 0.0
    """Time that contention adds to a mini-batch, in seconds."""
    ends: float = 0.0
    """When it is done at the present pace, in seconds."""
    scheduled: float = 0.0
    """Time of the event that ends it, or that schedules a later one, in seconds."""
    training: bool = False
    brings: tuple[tuple[str, int, str], ...] = ()
    """(job, chunk, site) whose data are copied before the worker trains."""

    def progress(self, now: float) -> dict[int, float]:
        """Return the applied batches by chunk."""
        trained = self.trained + max(0.0, now - self.since) / self.per_batch
        return applied_in_order(self.window.chunks, self.begun, self.total, trained)

    def stretches(self, now: float) -> Iterator[Stretch]:
        """Yield the periods in which the worker trained each chunk, all at its average pace."""
        return stretches(self.window, self.begun, self.total, self.average_pace(now), self.starts, now)

    def average_pace(self, now: float) -> float:
        """Return the average time of its mini-batches until now, in seconds."""
        if not self.trained:
            return self.per_batch
        return (now - self.starts) / (self.trained + (now - self.since) / self.per_batch)

    def contend(self, extra: float, now: float) -> None:
        """Train from now on at the pace that contention leaves; what was trained stays trained.

        Args:
            extra: Time that contention adds to a mini-batch, in seconds.
            now: Time of the change, in seconds.
        """
        alone = self.per_batch - self.extra
        self.account.communicated += (now - self.since) * self.communication
        self.trained += (now - self.since) / self.per_batch
        communicates = self.communication * self.per_batch + extra - self.extra if self.communication else 0.0
        self.since, self.extra, self.per_batch = now, extra, alone + extra
        self.communication = communicates / self.per_batch
        self.ends = now + max(0.0, self._left()) * self.per_batch

    def continue_alone(self, trained: float, now: float) -> None:
        """Train from now on at the pace alone, after that number of mini-batches which were simulated one by one."""
        if self.communication:
            self.account.communicated += now - self.since - trained * self.per_batch * (1 - self.communication)
        self.trained += trained
        self.since = now
        batches_left = self._left()
        self.ends = now + batches_left * self.per_batch if batches_left > 1e-9 * self.trained else now

    def rest_seconds(self) -> float:
        """Return the seconds from the first batch to the last."""
        return self._batches() * self.per_batch

    def _batches(self) -> float:
        """Return the mini-batches from the first to the last."""
        return sum([self.total - self.begun[chunk] for chunk in self.window.chunks])

    def _left(self) -> float:
        """Return the mini-batches that are left, as of the last change of the pace."""
        return self._batches() - self.trained


@dataclass(slots=True)
class Simulation:
    """Simulation of one planner in virtual time; call `run`, or add events and call `advance`."""

    planner: Planner
    restart_seconds: float = 0.0
    """True ρ: time from the opening of a window to the first batch."""
    batch_seconds: BatchSeconds | None = None
    """True speeds; None: those of specification and links, whatever the planner has learned."""
    uploads: TrueUploads | None = None
    """True uploads, which report copies of data; None: the planner uses its own Δ."""
    traffic: LinkTraffic | None = None
    """Contention for links; None: gangs, gradients and uploads do not slow each other down."""
    transfers: SingleTransfers | None = None
    """Each transfer of gangs by a start rule, in place of their expected contention in `traffic`."""
    shared_uploads: SharedUploads | None = None
    """True uploads of all policies, which contend for links, in place of `uploads`."""
    period_seconds: float = 0.0
    keep_history: bool = True
    """Whether to keep every instruction."""
    forget_finished: bool = False
    """Whether to send the planner the removal of completed jobs, as their time to live causes in a cluster."""
    record: bool = False
    """Whether to keep every occupation, and the windows of every chunk."""
    by_site: bool = False
    """Whether to keep the use of each site by each job."""
    on_completion: OnCompletion | None = None
    truths: Mapping[str, Job] = field(default_factory=dict)
    """True jobs, where they differ from the jobs that the planner receives."""
    now: float = 0.0
    events: int = 0
    history: list[tuple[float, Instruction]] = field(default_factory=list)
    completed: list[JobResult] = field(default_factory=list)
    occupations: list[Occupation] = field(default_factory=list)
    chunks: ChunkRecords = field(default_factory=ChunkRecords)
    load: LoadCurve = field(default_factory=LoadCurve)
    _heap: list[tuple[float, int, Event]] = field(default_factory=list)
    _order: "count[int]" = field(default_factory=count)
    _workers: dict[tuple[str, int], Worker] = field(default_factory=dict)
    _accounts: dict[str, JobAccount] = field(default_factory=dict)
    _servers: dict[tuple[str, int], PlannedServer] = field(default_factory=dict)
    """Parameter servers by (job, attempt)."""
    _staged: set[tuple[str, int, str]] = field(default_factory=set)
    """(job, chunk, site) whose data have been copied by a window of a policy that plans no transfers."""
    _senders: dict[Sender, list[Worker]] = field(default_factory=dict)
    """Members of the gangs, and workers with parameter servers, that may contend for links."""
    _fetches: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """Chunks whose data a worker waits for, by job and attempt, if uploads contend for links."""
    _pending_events: list[Event] = field(default_factory=list)
    _over: list[Event] = field(default_factory=list)
    """Removals of completed jobs, which the planner receives with the events of a later instant."""
    _busy_gpus: int = 0
    _waiting: int = 0
    _speeds: dict[str, float] | None = None
    """Largest speed of each GPU kind."""

    def at(self, time: float, event: Event) -> None:
        """Schedule an event for the planner at that time."""
        heappush(self._heap, (time, next(self._order), event))

    def run(self) -> None:
        """Run until no event is left."""
        while self._heap or self._pending_events or self.transfers or self.planner.next_wakeup() is not None:
            self.step()
        if self._over:
            self._pass_events()

    def step(self) -> None:
        """Process the next instant: all of its events, and the decisions that follow."""
        heap = self._heap
        boundary = self._next_period() if self.period_seconds else None
        self.now = max(self.now, self._next_instant(boundary))
        while heap and heap[0][0] <= self.now:
            self._process(heappop(heap)[2])
        if self._is_due(boundary):
            self._pass_events()
        self.load.take(self.now, self._busy_gpus, self._waiting)

    def _is_due(self, boundary: float | None) -> bool:
        """Return whether the planner decides now: at a period, or else at events and timers, as a live planner does."""
        if self.period_seconds:
            return boundary is not None and boundary <= self.now
        wakeup = self.planner.next_wakeup()
        return bool(self._pending_events) or (wakeup is not None and wakeup <= self.now)

    def result(self) -> SimulationResult:
        """Return the completed jobs so far, and why the others have not completed."""
        jobs = self.planner.cluster.jobs
        unfinished = {k: self.planner.plan_of(k, self.now).explanation for k in self._accounts if k in jobs}
        return SimulationResult(
            tuple(sorted(self.completed, key=lambda job: job.completed)),
            unfinished,
            capacity_gpus(self.planner.cluster),
            tuple(self.load.whole()),
            tuple(self.occupations),
            self.events,
            site_uses(self.planner.cluster),
            self.chunks.result(self.planner, self.now) if self.record else {},
        )

    # ---- events

    def _round(self, time: float) -> float:
        return max(
            time, ceil(time / self.period_seconds) * self.period_seconds
        )  # a rounding error may be before `time`

    def _next_instant(self, boundary: float | None) -> float:
        """Return the time of the next event, timer or period, in seconds; the clock if events wait for a decision."""
        wakeup = self.planner.next_wakeup()
        first = self._heap[0][0] if self._heap else inf
        if self.transfers is not None:
            latest = boundary if self.period_seconds else wakeup
            first = self._end_of_gangs(first if latest is None else min(first, latest))
        if not self.period_seconds:
            if wakeup is not None and wakeup < first:
                first = wakeup
            return self.now if first == inf else first
        due = min(first, inf if boundary is None else boundary)
        # else a timer of the planner, processed at the next period
        return due if due < inf else self._round(max(self.now, wakeup or 0.0))

    def _end_of_gangs(self, until: float) -> float:
        """Simulate mini-batches until the first gangs are done; returns the time of the next event, at most `until`."""
        assert self.transfers is not None
        ended, jobs = self.transfers.advance(until)
        for job in jobs:
            self._end_batches(job, ended)
        return min(until, ended) if jobs else until

    def _next_period(self) -> float | None:
        if not (self._pending_events or self.planner.next_wakeup() is not None):
            return None
        wakeup = self.planner.next_wakeup()
        return self._round(self.now if self._pending_events or wakeup is None else max(self.now, wakeup))

    def _process(self, event: Event) -> None:
        match event:
            case JobSubmitted(job=job):
                self._accounts[job.key] = JobAccount(self.truths.get(job.key, job), idle_since=self.now)
                self._waiting += 1
            case WorkerStarted():
                worker = self._workers.get((event.job, event.attempt))
                if worker is None:
                    return  # preempted before
                worker.training = True
                self._staged.update(worker.brings)
                worker.account.begin(self.now)
                if self.traffic is not None:
                    self._communicate(worker)
            case WorkerEnded():
                worker = self._workers.get((event.job, event.attempt))
                if worker is None:
                    return
                if event.at < worker.ends:  # contention has changed its end since
                    if event.at == worker.scheduled:
                        self._schedule_end(worker)
                    return
                self._leave(worker, "Succeeded")
            case ChunkStaged() if self.shared_uploads is not None:
                report, due, changes = self.shared_uploads.arrive(self.planner.cluster, event, self.now)
                self._share_links(due, changes)
                if report is None or self._fetched(report):
                    return
                event = report
            case NodeChanged(node=node) if not node.ready:
                self._pending_events.append(event)
                self._lose(node.name)
                return
            case _:
                pass
        self._pending_events.append(event)

    def _lose(self, node: str) -> None:
        """Remove the pods on the node, with what they had not saved."""
        for worker in [w for w in self._workers.values() if w.window.node == node]:
            self._leave(worker, "Lost")
            self._pending_events.append(WorkerEnded(worker.account.job.key, worker.window.attempt, "Lost", self.now))
        for (key, attempt), server in list(self._servers.items()):
            if server.node == node:
                del self._servers[key, attempt]
                self._pending_events.append(helper_end(key, server))

    def _leave(self, worker: Worker, outcome: str) -> None:
        """End a pod: it no longer holds its GPUs."""
        account, window, now = worker.account, worker.window, self.now
        job = account.job
        self._end_batches(job.key, now, leaving=worker)
        del self._workers[job.key, window.attempt]
        gpus = max(1, job.gpus)
        if worker.training:
            trained = (now - worker.starts) * gpus
            account.attained += trained if outcome != "Lost" else 0.0
            account.lost += trained if outcome == "Lost" else 0.0
            account.communicated += (now - worker.since) * worker.communication
            account.end(now)
            account.preemptions += outcome == "Preempted"
        account.lost += (min(now, worker.starts) - worker.opened) * gpus
        if outcome != "Lost":
            end, pace = worker.starts, worker.average_pace(now)
            for chunk in window.chunks:
                end += (worker.total - worker.begun[chunk]) * pace
                if outcome == "Succeeded" or end <= now:
                    account.chunk_ends[chunk] = end
        if self.traffic is not None:
            self._end_traffic(worker)
        account.holding -= 1
        self._busy_gpus -= job.gpus
        self._waiting += not account.holding
        if self.record:
            node = window.node or window.site
            self.occupations.append(Occupation(job.key, window.site, node, job.gpus, worker.opened, now, outcome))
            self.chunks.ended(job.key, window, worker.stretches(now), outcome)

    # ---- events to the planner, and its instructions

    def _pass_events(self) -> None:
        """Pass all pending events to the planner and carry out its instructions, until no new event results."""
        while True:
            events, self._pending_events, self._over = self._over + self._pending_events, [], []
            for event in events if self._servers else ():
                if isinstance(event, WorkerEnded):
                    self._servers_of_ended(event)
            instructions = self.planner.handle_all(events or (Tick(),), self.now)
            self.events += 1
            self._execute(instructions)
            last_ends: dict[str, float] = {}  # with a period, workers of a job may have ended at different times
            for event in events:
                if isinstance(event, _COMPLETING):
                    at = event.at if isinstance(event, WorkerEnded) else self.now
                    last_ends[event.job] = max(at, last_ends.get(event.job, at))
            for key, at in last_ends.items():
                self._complete(key, at)
            if not self._pending_events or self.period_seconds:
                return

    def _servers_of_ended(self, event: WorkerEnded) -> None:
        state = self.planner.cluster.jobs.get(event.job)
        if state is None or (state.job.helper_count and len(state.done) + 1 >= state.job.chunks):
            for place in [place for place in self._servers if place[0] == event.job]:
                del self._servers[place]

    def _execute(self, instructions: Iterable[Instruction]) -> None:
        opened: dict[tuple[str, int], tuple[JobState, Window]] = {}
        for instruction in instructions:
            if self.keep_history:
                self.history.append((self.now, instruction))
            match instruction:
                case OpenWindow(job=key, window=window):
                    opened[key, window.attempt] = (self.planner.cluster.jobs[key], window)
                case CloseWindow(job=key, window=window) if opened.pop((key, window.attempt), None):
                    # one decision has opened and closed it, so it has no pod
                    self._pending_events.append(WorkerEnded(key, window.attempt, "Lost", self.now))
                case CloseWindow(job=key, window=window):
                    self._stop(key, window)
                case PlaceParameterServer(job=key, server=server):
                    self._servers[key, server.attempt] = server
                case CloseParameterServer(job=key, server=server):
                    self._servers.pop((key, server.attempt), None)
                    self._pending_events.append(helper_end(key, server, "Preempted", 143))
                case StageData() if self.shared_uploads is not None:
                    self._share_links(*self.shared_uploads.send(self.planner.cluster, instruction, self.now))
                case StageData() if self.uploads is not None:
                    for time, report in self.uploads.send(self.planner.cluster, instruction, self.now):
                        self.at(time, report)
                case _:
                    pass
        if opened:
            self._open(list(opened.values()))

    def _open(self, opened: Sequence[tuple[JobState, Window]]) -> None:
        """Start the workers of windows that open together; a gang is as fast as its slowest member."""
        paces = [self._true_batch_seconds(state, window) for state, window in opened]
        slowest: dict[str, float] = {}
        for (state, _), pace in zip(opened, paces, strict=True) if len(opened) > 1 else ():
            slowest[state.job.key] = max(pace, slowest.get(state.job.key, 0.0))
        for (state, window), pace in zip(opened, paces, strict=True):
            self._start(state, window, slowest.get(state.job.key, pace) if state.job.is_gang else pace)

    def _true_batch_seconds(self, state: JobState, window: Window) -> float:
        if self.batch_seconds is not None:
            return self.batch_seconds(state.job, window)
        return state.runs[window.attempt].declared_batch_seconds

    def _start(self, state: JobState, window: Window, pace: float) -> None:
        key, now = state.job.key, self.now
        account = self._accounts[key]
        starts = self._starts_at(state, window)
        begun = self._begun(state, window)
        brings = tuple((key, chunk, window.site) for chunk in self._missing(state, window))
        total = state.job.batches_per_chunk_total
        share = self._communication(state, window, pace)
        away = self.shared_uploads is not None and window.site != state.job.data_site
        fetched = {chunk for _, chunk, _ in brings} if away else set()
        starts = inf if fetched else starts
        worker = Worker(account, window, now, starts, pace, begun, total, share, starts, brings=brings)
        worker.ends = starts + worker.rest_seconds()
        self._workers[key, window.attempt] = worker
        if self.record:
            self.chunks.opened(state, window)
        account.starts += 1
        self._waiting -= not account.holding
        account.holding += 1
        self._busy_gpus += state.job.gpus
        if fetched:
            self._fetch(worker, fetched)
        else:
            self._begin(worker)

    def _begun(self, state: JobState, window: Window) -> dict[int, float]:
        """Return the batches with which the chunks of a window begin; members of a gang resume from the same ones."""
        if not state.job.is_gang:
            return {chunk: state.partial.get(chunk, 0.0) for chunk in window.chunks}
        # After the loss of a node, its members have saved less than the others, and all of them train together.
        saved = min(state.partial.values()) if len(state.partial) == state.job.chunks else 0.0
        return dict.fromkeys(window.chunks, saved)

    def _begin(self, worker: Worker) -> None:
        """Schedule the first batch of a worker, and its end."""
        key, window, starts = worker.account.job.key, worker.window, worker.starts
        if starts <= self.now:
            self._process(WorkerStarted(key, window.attempt, starts))
        else:
            self.at(starts, WorkerStarted(key, window.attempt, starts))
        self._schedule_end(worker)

    def _fetch(self, worker: Worker, chunks: set[int]) -> None:
        """Let a worker that holds its GPU fetch the data of its chunks."""
        assert self.shared_uploads is not None
        key, window = worker.account.job.key, worker.window
        self._fetches[key, window.attempt] = chunks
        instruction = StageData(key, tuple(sorted(chunks)), window.site, Tick())
        self._share_links(*self.shared_uploads.send(self.planner.cluster, instruction, self.now))

    def _fetched(self, report: ChunkStaged) -> bool:
        """Return whether workers fetch their data; one that has all of them now trains after its start-up time."""
        for attempt in [attempt for key, attempt in self._fetches if key == report.job]:
            pod, worker = (report.job, attempt), self._workers[report.job, attempt]
            if worker.window.site == report.site:
                self._fetches[pod].discard(report.chunk)
            if not self._fetches[pod]:
                del self._fetches[pod]
                state = self.planner.cluster.jobs[report.job]
                worker.starts = worker.since = self._starts_at(state, worker.window)
                worker.ends = worker.starts + worker.rest_seconds()
                self._begin(worker)
        return self.planner.queue is not None and self.planner.queue.policy.fetches_after_start

    def _end_traffic(self, worker: Worker) -> None:
        """Let a worker that ends leave the links, with the uploads that it waits for."""
        key, window = worker.account.job.key, worker.window
        for sender in (key, (key, window.attempt)):
            if self.traffic is not None and self._senders.pop(sender, None) is not None:
                self._slow_down(self.traffic.end(sender))
        missing = self._fetches.pop((key, window.attempt), None)
        if missing and self.shared_uploads is not None:
            self._share_links(*self.shared_uploads.drop(self.planner.cluster, key, self.now, missing, window.site))

    def _communication(self, state: JobState, window: Window, pace: float) -> float:
        """Return the share of a worker's mini-batches in which the job communicates; 0 for all but one gang member."""
        if self.planner.cluster.level_network is None or (state.job.is_gang and window.index):
            return 0.0
        return self.planner.cluster.communication_seconds(state, window.site, window.node) / pace

    def _communicate(self, worker: Worker) -> None:
        """Let a gang communicate once all of its members have started; at an unlimited site its links are its own."""
        job, cluster = worker.account.job, self.planner.cluster
        state = cluster.jobs.get(job.key)
        if state is None or self.traffic is None:
            return
        if not job.is_gang:
            self._exchange(worker, state)
            return
        members = self._senders.setdefault(job.key, [])
        members.append(worker)
        if len(members) < len(state.runs):
            return
        nodes = [cluster.nodes[member.window.node].node for member in members if member.window.node in cluster.nodes]
        if len(nodes) == len(members):
            alone = cluster.communication_seconds(state, worker.window.site, worker.window.node)
            if self.transfers is not None:
                self._begin_batches(self.transfers, members, nodes, alone)
            else:
                self._slow_down(self.traffic.begin(job.key, nodes, alone, worker.per_batch))

    def _begin_batches(
        self, transfers: SingleTransfers, members: Sequence[Worker], nodes: Sequence[Node], alone: float
    ) -> None:
        """Simulate the mini-batches of a gang one by one, until one of its members has trained all of its own."""
        for worker in members:
            worker.contend(0.0, self.now)
        batches_left = min((worker.ends - self.now) / worker.per_batch for worker in members)
        job, pace = members[0].account.job, members[0].per_batch
        if transfers.begin(job.key, nodes, max(1, job.gpus) * job.chunks, alone, pace, batches_left, self.now):
            for worker in members:
                worker.ends = inf

    def _end_batches(self, job: str, now: float, leaving: Worker | None = None) -> None:
        """Let the members of a gang go on at the pace alone, or end, if its mini-batches were simulated one by one."""
        if self.transfers is None or job not in self.transfers:
            return
        trained = self.transfers.end(job, now)
        for worker in self._senders[job]:
            worker.continue_alone(trained, now)
            if worker is not leaving:
                self._schedule_end(worker)

    def _exchange(self, worker: Worker, state: JobState) -> None:
        """Let a worker that is no member of a gang exchange gradients with the job's parameter servers."""
        job, window, cluster = state.job, worker.window, self.planner.cluster
        server_nodes = [server.planned.node for server in state.servers if not server.planned.is_chief]
        nodes = [cluster.nodes[name].node for name in (window.node, *server_nodes) if name in cluster.nodes]
        outside = window.node not in cluster.nodes
        if not nodes or not server_nodes or self.traffic is None:
            return
        sender, alone = (job.key, window.attempt), worker.communication * worker.per_batch
        self._senders[sender] = [worker]
        self._slow_down(
            self.traffic.begin_exchange(sender, nodes, alone, worker.per_batch, 2 * job.gradient_bits, outside=outside)
        )

    def _share_links(self, due: Iterable[Due], changes: Mapping[Sender, float]) -> None:
        """Schedule the ends of uploads, and carry out changes of contention."""
        for time, report in due:
            self.at(time, report)
        self._slow_down(changes)

    def _slow_down(self, extra: Mapping[Sender, float]) -> None:
        """Let gangs train and uploads run at another pace, given what contention adds (`LinkTraffic.begin`)."""
        for sender, seconds in extra.items():
            if is_upload(sender):
                assert self.shared_uploads is not None
                for time, report in self.shared_uploads.slow_down(sender, seconds, self.now):
                    self.at(time, report)
                continue
            for worker in self._senders.get(sender, ()):
                worker.contend(seconds, self.now)
                if worker.ends < worker.scheduled:  # if it is later, the event that is scheduled schedules the next
                    self._schedule_end(worker)

    def _schedule_end(self, worker: Worker) -> None:
        """Schedule the end of a worker at its present pace; it has none while its mini-batches are simulated."""
        if worker.ends == inf:
            return
        worker.scheduled = worker.ends
        ended = WorkerEnded(worker.account.job.key, worker.window.attempt, "Succeeded", worker.ends)
        self.at(worker.ends, ended)

    def _starts_at(self, state: JobState, window: Window) -> float:
        """Return when the first batch of a window that opens now begins."""
        site = self.planner.cluster.sites.get(window.site)
        node_seconds = site.start_seconds if site is not None and site.unlimited else 0.0
        return self.now + node_seconds + self.restart_seconds + self._transfer_seconds(state, window)

    def _missing(self, state: JobState, window: Window) -> list[int]:
        """Return the chunks whose data the worker has to copy; other policies wait for the upload before the window."""
        job = state.job
        queue = self.planner.queue
        if queue is None or job.data_site is None or not queue.policy.fetches_after_start:
            return []
        return [chunk for chunk in window.chunks if (job.key, chunk, window.site) not in self._staged]

    def _transfer_seconds(self, state: JobState, window: Window) -> float:
        """Return Δ of the missing chunks, one after the other; nothing if uploads contend for links (`_fetch`)."""
        missing = self._missing(state, window) if self.shared_uploads is None else ()
        return len(missing) * self.planner.cluster.transfer_seconds(state, window.site) if missing else 0.0

    def _stop(self, key: str, window: Window) -> None:
        worker = self._workers.get((key, window.attempt))
        if worker is not None:
            self._end_batches(key, self.now, leaving=worker)
            progress = worker.progress(self.now)
            self._leave(worker, "Preempted")
            self._pending_events.append(WorkerEnded(key, window.attempt, "Preempted", self.now, progress, 143))

    def _complete(self, key: str, at: float) -> None:
        state = self.planner.cluster.jobs.get(key)
        account = self._accounts.get(key)
        chief_end = expected_chief_end(key, state) if state is not None else None
        if chief_end is not None:
            self._pending_events.append(chief_end)
        if state is None or account is None or not state.finished:
            return
        if self._speeds is None:
            cluster = self.planner.cluster
            self._speeds = speeds_by_kind([node.node for node in cluster.nodes.values()], cluster.sites.values())
        del self._accounts[key]
        self._waiting -= 1
        use = job_use(self.planner.cluster, state, by_site=self.by_site)
        fastest = fastest_speed(account.job, self._speeds)
        self.completed.append(account.result(at, ideal_seconds(account.job, fastest), use))
        if self.shared_uploads is not None:
            self._share_links(*self.shared_uploads.drop(self.planner.cluster, key, self.now))
        if self.on_completion is not None:
            self.on_completion(len(self.completed))
        if self.forget_finished:
            self._over.append(JobRemoved(key))


def simulate(
    jobs: Iterable[Job],
    nodes: Sequence[Node],
    sites: Sequence[Site],
    policy: Policy,
    *,
    restart_seconds: float = 0.0,
    settings: PlannerSettings | None = None,
) -> SimulationResult:
    """Simulate the jobs until all have completed or no more can run.

    Args:
        jobs: Jobs; each arrives at its `submitted`.
        nodes: Nodes of the cluster.
        sites: Sites with their links.
        policy: Policy of the registry.
        restart_seconds: True ρ, charged at every pod start.
        settings: Settings of the planner.
    """
    simulation = Simulation(Planner(policy, settings), restart_seconds)
    prepare(simulation, jobs, nodes, sites)
    simulation.run()
    return simulation.result()


def prepare(simulation: Simulation, jobs: Iterable[Job], nodes: Sequence[Node], sites: Sequence[Site]) -> None:
    """Send the cluster to the planner, and schedule the arrivals."""
    for site in sites:
        simulation.planner.handle(SiteChanged(site), 0.0)
    for node in nodes:
        simulation.planner.handle(NodeChanged(node), 0.0)
    for job in jobs:
        simulation.at(job.submitted, JobSubmitted(job))
