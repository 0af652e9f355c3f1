"""The state machine: events in, instructions out. It knows no clock, no network and no randomness.

After dask's worker_state_machine.py: every instruction carries its cause, and ``validate=True`` re-checks all
invariants after each event.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tranche.estimate import NetworkPrior
from tranche.model import JobPlan, JobProgress, Resources, Window, WindowState, format_chunks
from tranche.planner import arrivals, changes, farewells, invariants, ledgers, releases, site_uses, stagings
from tranche.planner.constraints import binding_constraint
from tranche.planner.counterfactuals import affordable, verified
from tranche.planner.estimates import Estimate, forecast
from tranche.planner.events import Event, JobSubmitted, Tick
from tranche.planner.explanations import explain
from tranche.planner.instructions import (
    CloseParameterServer,
    CloseWindow,
    Instruction,
    OpenWindow,
    PlaceParameterServer,
    PublishPlan,
    RenewWindow,
    StageData,
)
from tranche.planner.pieces import Pieces, at_once
from tranche.planner.queues import JobQueue
from tranche.planner.rooms import fallbacks
from tranche.planner.selections import serve_nodes
from tranche.planner.servers import missing_requests, place_servers
from tranche.planner.timers import Timers
from tranche.planner.turns import serve_queue
from tranche.policies import (
    BindingPolicy,
    ClusterState,
    Home,
    JobState,
    Policy,
    QueuePolicy,
    Run,
    Server,
)


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What can be set."""

    seed: int = 0
    """Of random choices (parameter server hosts of the faithful policy)."""
    validate: bool = False
    """Re-check all invariants after every event; costs time in proportion to the cluster."""
    fallbacks: int = 2
    """Other nodes of the site on a window's short list."""
    network: NetworkPrior = NetworkPrior()
    """What is assumed where no Site describes the network."""
    uploads_reported: bool = False
    """Copies of data count when `ChunkStaged` says so; else they are believed to be there after Δ."""
    avoid_seconds: float = 300.0
    """How long a node that could not take a job's pod is not tried again for this job."""
    spare_seconds: float = 300.0
    """How long a job whose pods could not be evicted is not asked again to make way."""
    server_idle_seconds: float = 300.0
    """So long without windows, servers of a chunked job save and stop, if later ones find what was saved."""
    failure_backoff_seconds: float = 10.0
    """Pause after a job's first failed pod; doubles with each, as Kubernetes Jobs do."""
    rejection_backoff_seconds: float = 30.0
    """Pause after the API server refused a job's pod; doubles with each refusal."""
    longest_backoff_seconds: float = 360.0
    farewell_seconds: float = 5.0
    """How long GPUs of a gang's members that are done wait at most for the other members before they are given away."""
    share_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """What tenants (namespaces) are entitled to where recent shares count, relative to others; 1 if not given."""

    def backoff_seconds(self, first_seconds: float, before: int) -> float:
        """Pause after a failure that so many others came before: it doubles with each, up to the longest."""
        return min(first_seconds * 2.0 ** min(before, 30), self.longest_backoff_seconds)


class Planner:
    """Decides which chunks run where; see `handle`."""

    def __init__(self, policy: Policy, settings: PlannerSettings | None = None) -> None:
        self.policy = policy
        self.settings = settings or PlannerSettings()
        self.cluster = ClusterState(network=self.settings.network, seed=self.settings.seed)
        self.binding = policy if isinstance(policy, BindingPolicy) else None
        self.queue = JobQueue(policy, self.cluster) if isinstance(policy, QueuePolicy) else None
        if self.queue is not None:
            self.cluster.shares.halflife_seconds = self.queue.policy.share_halflife()
            self.cluster.shares.weights = self.settings.share_weights
        self.estimates: dict[str, Estimate] = {}
        self.rehearsals = 0
        """That are left until the next forecast, for `estimate_of`; who has a clock may allow fewer."""
        self.dirty_nodes: set[str] = set()
        self.dirty_jobs: set[str] = set()
        """Jobs with chunks to dispatch or (unlimited sites) to start."""
        self.changed: dict[str, None] = {}
        """Jobs to publish, in order."""
        self.unbound: set[str] = set()
        """Jobs with chunks that found no place; tried again when nodes or sites change."""
        self.unhosted: set[str] = set()
        """Jobs whose parameter servers found no place; tried again when there is room."""
        self.unstaged: dict[str, None] = {}
        """Jobs with data to bring to a site, and perhaps no pod that does."""
        self.rejections: dict[str, int] = {}
        self.avoiding: dict[str, set[str]] = {}
        """Jobs whose pods a node has refused, by node."""
        self.farewells: dict[str, farewells.Farewell] = {}
        self.timers = Timers()
        self._cause: Event = Tick()
        self._now = 0.0
        """Clock at the event that is handled."""
        self._out: list[Instruction] = []

    # ---- the outside

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take note of a fact and say what to do about it.

        Args:
            event: What happened.
            now: Clock in seconds; must not decrease by more than noise, a step back only delays timers.
        """
        return self.handle_all((event,), now)

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take note of all that has happened, in order, and decide once."""
        self._begin(now)
        return self._apply(events, now)

    def restore(self, jobs: Iterable[JobSubmitted], now: float, events: Iterable[Event] = ()) -> list[Instruction]:
        """Take over jobs that an earlier planner left, hear what has become of them (asked for then), and decide."""
        self._begin(now)
        self._cause = Tick()
        for submitted in sorted(jobs, key=lambda e: (e.job.submitted, e.job.key)):
            arrivals.admit(self, submitted, now)
        return self._apply(events, now)

    def blank(self, settings: PlannerSettings) -> "Planner":
        """A planner of the same policy that knows nothing, and notes nothing."""
        return Planner(self.policy, settings)

    def remember(self, event: JobSubmitted) -> None:
        """Learn from a job that had completed before this planner was there; before `restore`."""
        arrivals.remember(self, event)

    def next_wakeup(self) -> float | None:
        """When a `Tick` is due at the latest."""
        return self.timers.next()

    def forecast(self, now: float) -> dict[str, Estimate]:
        """Play the plan forward and remember the estimates for `plan_of`."""
        at_once(self.forecasting(now))
        return self.estimates

    def forecasting(self, now: float) -> Pieces[None]:
        """The same in pieces; events may be handled between them, and do not count before the next time."""
        self.estimates = yield from forecast(self, now)
        self.rehearsals = affordable(self.cluster)

    def estimate_of(self, key: str, now: float) -> Estimate | None:
        """The job's estimate of the last forecast; if it waits behind another, without that one it starts earlier.

        Made sure of once a forecast, for those who come first, as long as the rehearsals that this takes are not used
        up (`tranche.planner.counterfactuals`).
        """
        state, estimate = self.cluster.jobs[key], self.estimates.get(key)
        if estimate is None or not state.active:
            return None
        if self.queue is not None and self.rehearsals and not (state.runs or estimate.verified):
            if binding_constraint(self.cluster, self.policy, state, estimate, now).behind is not None:
                estimate, used = verified(self, state, estimate, now, self.rehearsals)
                self.rehearsals -= used
            estimate = self.estimates[key] = replace(estimate, verified=True)
        return estimate

    def plan_of(self, key: str, now: float) -> JobPlan:
        """The job's plan as a value."""
        state = self.cluster.jobs[key]
        estimate = self.estimate_of(key, now)
        homes: dict[str, list[int]] = {}
        for chunk, site in state.homes(now) if state.active else ():
            homes.setdefault(site, []).append(chunk)
        runs = sorted(state.runs.values(), key=lambda run: (run.window.index, run.window.attempt))
        explanation, waits_for = explain(self.cluster, self.policy, state, estimate, now)
        return JobPlan(
            generation=state.job.generation,
            explanation=explanation,
            waits_for=waits_for,
            attempts=state.attempts,
            estimated_start=estimate.start if estimate else None,
            estimated_completion=estimate.completion if estimate else None,
            homes={site: format_chunks(chunks) for site, chunks in sorted(homes.items())},
            windows=tuple(run.window for run in runs),
            servers=tuple(server.planned for server in state.servers),
            staging=stagings.planned(state),
            unplannable=state.unplannable[0] if state.unplannable else "",
        )

    def progress_of(self, key: str) -> JobProgress:
        """The job's ledger as a value."""
        return ledgers.progress_of(self.cluster.jobs[key], self.cluster.lessons.job_factor(key))

    # ---- for the modules that apply events

    @property
    def cause(self) -> Event:
        """The event that is handled."""
        return self._cause

    @property
    def now(self) -> float:
        """Clock at that event."""
        return self._now

    def publish(self, key: str) -> None:
        """Have the job's status written at the end of this event."""
        self.changed[key] = None

    def wake(self, at: float, key: str) -> None:
        """Have the job looked at again at that time."""
        self.timers.wake(at, key)

    def stage(self, state: JobState, chunks: tuple[int, ...], site: str) -> None:
        """Have data of chunks copied to a site."""
        site_uses.copied(self.cluster, state, chunks, site)
        self.publish(state.job.key)
        self.instruct(StageData(state.job.key, chunks, site, self._cause))

    def instruct(self, instruction: Instruction) -> None:
        """Have this done."""
        self._out.append(instruction)

    def touch(self, state: JobState) -> None:
        """Something about this job may let it start or make others start: look at its nodes again."""
        self.dirty_jobs.add(state.job.key)
        if self.queue is not None:
            self.queue.stale[state.job.key] = None
        else:
            self.dirty_nodes.update(e.home.node for e in state.entries.values() if e.home.node is not None)

    def room_grew(self, node: str | None) -> None:
        """Somebody may find room now, on that node or anywhere."""
        if node is not None:
            self.dirty_nodes.add(node)
        if self.queue is None:
            for key in self.unhosted & self.cluster.jobs.keys():
                self.touch(self.cluster.jobs[key])
        else:
            known = self.cluster.nodes.get(node or "")
            self.queue.grown.add(known.node.site if known is not None else "")

    def rank_fell(self, state: JobState) -> None:
        """The job's windows may have to make way for somebody for whom they had not before."""
        self.room_grew(None)
        if self.queue is not None:
            self.queue.fall(state)

    def quota_grew(self, namespace: str) -> None:
        """Less counts against the quotas of a namespace: those whom they held back may start, at any site."""
        if namespace not in self.cluster.quotas.by_namespace:
            return
        if self.queue is not None:
            self.queue.grown.add("")
        for state in self.cluster.jobs.values() if self.queue is None else ():
            if state.job.namespace == namespace:
                self.touch(state)

    def reconsider_unbound(self) -> None:
        """Capacity or sites changed: chunks that found no place may find one now."""
        self.dirty_jobs |= self.unbound
        if self.queue is not None and (self.queue.policy.sited or self.queue.policy.uploads_ahead()):
            self.queue.stale.update(dict.fromkeys(self.cluster.jobs))  # data may be at a site that has lost its nodes
        self.room_grew(None)

    def close(self, state: JobState, run: Run, preempted_by: str = "") -> None:
        """Have a window's pod stopped, with the rest of its gang; what it reserves is free for planning at once.

        Args:
            state: The window's job.
            run: The window.
            preempted_by: Job for which it makes way, or a foreign pod, as in `Window`; empty for another reason.
        """
        for one in list(state.runs.values()) if state.job.rigid else (run,):
            if not one.closing:
                self._close(state, one, preempted_by)
        if state.job.rigid:
            releases.close(self, state, preempted_by)

    def _close(self, state: JobState, run: Run, preempted_by: str) -> None:
        run.window = replace(run.window, state=WindowState.CLOSING, preempted_by=preempted_by)
        run.closed = self._now
        node = self.cluster.nodes.get(run.home.node or "")
        if node is not None:
            node.leaving[(state.job.key, run.window.attempt)] = run
            node.reserved = node.reserved - state.job.worker.requests
            self.room_grew(node.node.name)
        self.count_share(state, -1)
        self.touch(state)
        self.publish(state.job.key)
        self._out.append(CloseWindow(state.job.key, run.window, self._cause))

    def count_share(self, state: JobState, windows: int) -> None:
        """So many more windows of the job's tenant are open."""
        if self.queue is not None and (self.queue.policy.counts_held or self.cluster.shares.halflife_seconds):
            request = state.job.worker.requests
            held = request if windows > 0 else Resources() - request
            self.cluster.shares.change(state.job.tenant, held, self._now)

    # ---- deciding

    def _begin(self, now: float) -> None:
        self._out, self.changed, self._now = [], {}, now

    def _apply(self, events: Iterable[Event], now: float) -> list[Instruction]:
        for event in events:
            self._cause = event
            changes.apply(self, event, now)
        return self._decide(now)

    def _decide(self, now: float) -> list[Instruction]:
        due = list(self.timers.due(now))
        for key in due:
            if key in self.cluster.jobs:
                self.touch(self.cluster.jobs[key])
                self.publish(key)
        if self.queue is not None:
            serve_queue(self, self.queue, now)
            self.dirty_jobs.clear()
            self.dirty_nodes.clear()
        if self.binding is not None:
            serve_nodes(self, self.binding, now)
        releases.release_idle(self, due, now)
        self._out += stagings.begin(self, now)
        out = [*self._out, *(PublishPlan(key, self._cause) for key in self.changed if key in self.cluster.jobs)]
        if self.settings.validate:
            invariants.check(self.cluster)
            opened = [instruction for instruction in out if isinstance(instruction, OpenWindow | RenewWindow)]
            if self.queue is not None:
                invariants.check_queue(self.queue, now)
                invariants.check_data(self.queue, [(one.job, one.window) for one in opened], now)
            invariants.check_quotas(self.cluster, {one.job for one in opened})
            invariants.check_room(self.cluster, {one.window.node for one in opened if one.window.node is not None})
        return out

    def place_servers(self, state: JobState) -> bool:
        """Give the job's parameter servers a place when its first window opens; False if there is none yet."""
        if state.leaving:
            return False
        if len(state.servers) >= state.job.helpers:
            return True
        if self.cluster.quotas.shortage(state.job, 0, missing_requests(state)) is not None:
            return False
        placed = place_servers(self.cluster, state, self.policy, self.settings.seed, self._now)
        state.unhosted = placed is None
        if placed is None:
            self.unhosted.add(state.job.key)
            return False
        self.unhosted.discard(state.job.key)
        self.install(state, placed)
        return True

    def install(self, state: JobState, placed: Sequence[Server]) -> None:
        """Have the pods of parameter servers and chief started where room is reserved for them."""
        for server in placed:
            self.cluster.quotas.take(state.job, server.planned.attempt, server.requests)
        state.servers += placed
        releases.watch(self, state)
        self.publish(state.job.key)
        self._out += [PlaceParameterServer(state.job.key, server.planned, self._cause) for server in placed]

    def stop_server(self, state: JobState, server: Server) -> None:
        """Have a parameter server's pod stopped; it keeps its room until it has ended."""
        self.touch(state)
        self.publish(state.job.key)
        self._out.append(CloseParameterServer(state.job.key, server.planned, self._cause))

    def open(self, state: JobState, home: Home, chunks: Sequence[int], now: float) -> None:
        """Open a window on some of the job's waiting chunks."""
        index = state.free_index()
        if index is None:
            return
        state.attempts += 1
        per_batch = self.cluster.batch_seconds(state, home.site, node=home.node)
        seconds = state.batches_left(chunks) * per_batch
        window = Window(
            index=index,
            attempt=state.attempts,
            site=home.site,
            node=home.node,
            chunks=tuple(chunks),
            fallbacks=fallbacks(self.cluster, state, home, self.settings.fallbacks, now),
            start=now,
            end=now + state.job.restart_seconds + seconds,
            generation=state.job.generation,
        )
        told = self.cluster.told_batch_seconds(state, home.site, node=home.node)
        run = Run(window, home, now, per_batch, told, handover=self._occupied(home))
        changes.attach(self, state, run)
        if self.queue is not None and self.queue.policy.fetches_data:
            site_uses.brought(self.cluster, state, chunks, home.site)
        self.publish(state.job.key)
        self._out.append(OpenWindow(state.job.key, window, self._cause))

    def _occupied(self, home: Home) -> bool:
        """Whether a worker that is to stop still holds the slots (any of the node, if the policy binds none)."""
        node = self.cluster.nodes.get(home.node or "")
        leaving = node.leaving.values() if node else ()
        return any(not home.slots or set(home.slots) & set(run.home.slots) for run in leaving)
