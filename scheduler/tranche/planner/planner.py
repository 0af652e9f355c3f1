"""The state machine: events in, instructions out. It knows no clock, no network and no randomness.

After dask's worker_state_machine.py: every instruction carries its cause, and ``validate=True`` re-checks all
invariants after each event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tranche.model import JobPlan, JobProgress, format_chunks
from tranche.planner import data_staging, dispatch, invariants
from tranche.planner.context import PlannerContext
from tranche.planner.events import Event, JobRemoved, JobSubmitted, Tick
from tranche.planner.forecast.counterfactual import affordable, verified
from tranche.planner.forecast.estimates import Estimate, forecast
from tranche.planner.forecast.explanation import explain
from tranche.planner.forecast.steps import Steps, run_to_completion
from tranche.planner.forecast.wait_reason import wait_reason_of
from tranche.planner.handlers import job
from tranche.planner.instructions import Instruction, PublishPlan
from tranche.planner.job_actions import release_idle_servers
from tranche.planner.job_queue import JobQueue
from tranche.planner.scheduling.queue_scheduler import run_cycle
from tranche.planner.scheduling.slot_scheduler import serve_nodes
from tranche.planner.settings import PlannerSettings
from tranche.policies import Policy
from tranche.state import progress_ledger
from tranche.state.cluster import ClusterState


class Planner:
    """Decides which chunks run where; see `handle`."""

    def __init__(self, policy: Policy, settings: PlannerSettings | None = None) -> None:
        self.context = PlannerContext(policy, settings or PlannerSettings())
        self.estimates: dict[str, Estimate] = {}
        """Of the last forecast, by job."""
        self.rollouts_left = 0
        """How many `estimate_of` may play until the next forecast; a caller with a clock may allow fewer."""

    @property
    def policy(self) -> Policy:
        """The scheduling algorithm."""
        return self.context.policy

    @property
    def settings(self) -> PlannerSettings:
        """What was set."""
        return self.context.settings

    @property
    def cluster(self) -> ClusterState:
        """Jobs, nodes and sites as the planner knows them."""
        return self.context.cluster

    @property
    def queue(self) -> JobQueue | None:
        """The queue of a queue policy."""
        return self.context.queue

    @property
    def changed(self) -> Iterable[str]:
        """Jobs whose plans or ledgers the last decision changed, in order."""
        return self.context.published

    # ---- interface of the host

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take note of a fact and say what to do about it.

        Args:
            event: What happened.
            now: Clock in seconds; must not decrease by more than noise, a step back only delays timers.
        """
        return self.handle_all((event,), now)

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take note of all that has happened, in order, and decide once."""
        self.context.begin(now)
        return self._step(events)

    def restore(self, jobs: Iterable[JobSubmitted], now: float, events: Iterable[Event] = ()) -> list[Instruction]:
        """Take over jobs that an earlier planner left, hear what has become of them (asked for then), and decide."""
        self.context.begin(now)
        self.context.cause = Tick()
        for submitted in sorted(jobs, key=lambda e: (e.job.submitted, e.job.key)):
            job.admit(self.context, submitted)
        return self._step(events)

    def blank(self, settings: PlannerSettings) -> "Planner":
        """A planner of the same policy that knows nothing, and notes nothing."""
        return Planner(self.policy, settings)

    def remember(self, event: JobSubmitted) -> None:
        """Learn from a job that had completed before this planner was there; before `restore`."""
        job.remember(self.context, event)

    def next_wakeup(self) -> float | None:
        """When a `Tick` is due at the latest."""
        return self.context.timers.next()

    def forecast(self, now: float) -> dict[str, Estimate]:
        """Play the plan forward and remember the estimates for `plan_of`."""
        run_to_completion(self.forecasting(now))
        return self.estimates

    def forecasting(self, now: float) -> Steps[None]:
        """The same in pieces; events may be handled between them, and do not count before the next time."""
        self.estimates = yield from forecast(self.context, self.blank, now)
        self.rollouts_left = affordable(self.cluster)

    def estimate_of(self, key: str, now: float) -> Estimate | None:
        """The job's estimate of the last forecast; if it waits behind another, without that one it starts earlier.

        Made sure of once a forecast, for those who come first, as long as the rollouts that this takes are not used
        up (`tranche.planner.forecast.counterfactual`).
        """
        state, estimate = self.cluster.jobs[key], self.estimates.get(key)
        if estimate is None or not state.active:
            return None
        if self.queue is not None and self.rollouts_left and not (state.runs or estimate.verified):
            if wait_reason_of(self.cluster, self.policy, state, estimate, now).behind is not None:
                estimate, used = verified(self.context, self.blank, state, estimate, now, self.rollouts_left)
                self.rollouts_left -= used
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
            staging=data_staging.planned(state),
            unplannable=state.unplannable[0] if state.unplannable else "",
        )

    def progress_of(self, key: str) -> JobProgress:
        """The job's ledger as a value."""
        return progress_ledger.progress_of(self.cluster.jobs[key], self.cluster.speed_model.job_factor(key))

    def _step(self, events: Iterable[Event]) -> list[Instruction]:
        """Apply events, and decide once on what they have changed."""
        context = self.context
        for event in events:
            context.cause = event
            dispatch.apply(context, event)
            if isinstance(event, JobRemoved):
                self.estimates.pop(event.job, None)
        due = list(context.timers.due(context.now))
        for key in due:
            if key in context.cluster.jobs:
                context.touch(context.cluster.jobs[key])
                context.publish(key)
        if context.queue is not None:
            run_cycle(context, context.queue, context.now)
            context.work.jobs.clear()
            context.work.nodes.clear()
        if context.binding is not None:
            serve_nodes(context, context.binding, context.now)
        if due:
            release_idle_servers(context, due)
        if context.work.unstaged:
            context.outbox += data_staging.begin(context, context.now)
        published = [PublishPlan(key, context.cause) for key in context.published if key in context.cluster.jobs]
        out = [*context.outbox, *published]
        if context.settings.validate:
            invariants.check_decision(context, out, context.now)
        return out
