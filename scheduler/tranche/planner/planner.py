"""Planner: a state machine that takes events and returns instructions, without clock, network or randomness.

Modelled on dask's worker_state_machine.py: every instruction carries its cause, and ``validate=True`` checks all
invariants after each event.
"""

from collections.abc import Iterable
from dataclasses import replace

from tranche.model import JobPlan, JobProgress, Node, format_chunks
from tranche.planner import data_staging, dispatch, invariants, node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import Event, JobRemoved, JobSubmitted, Tick
from tranche.planner.forecast.counterfactual import rollout_budget, verify_estimate
from tranche.planner.forecast.estimates import Estimate, forecast
from tranche.planner.forecast.explanation import explain, ignored_claims
from tranche.planner.forecast.steps import Steps, run_to_completion
from tranche.planner.forecast.wait_reason import VERIFIED, wait_reason_of
from tranche.planner.handlers import job
from tranche.planner.handlers.cluster import with_kind
from tranche.planner.handlers.helper import replace_servers
from tranche.planner.instructions import Instruction, PublishPlan
from tranche.planner.job_actions import release_idle_servers
from tranche.planner.job_queue import JobQueue
from tranche.planner.scheduling.queue_scheduler import run_cycle
from tranche.planner.scheduling.slot_scheduler import serve_nodes
from tranche.planner.scheduling.worker_distribution import grant_of
from tranche.planner.settings import PlannerSettings
from tranche.planner.unplaced_pods import end_preemption_pause, end_restraints, unplaced_pods
from tranche.policies import Policy
from tranche.state import progress_ledger
from tranche.state.cluster import ClusterState

UNSCHEDULABLE = "Unschedulable"
"""Reason of condition Planned=False for a job that no change of the queue can start, only one of its specification, of
the nodes or of a quota."""


class Planner:
    """State machine that decides which chunks run on which nodes; see `handle`."""

    def __init__(self, policy: Policy, settings: PlannerSettings | None = None) -> None:
        self.context = PlannerContext(policy, settings or PlannerSettings())
        self.estimates: dict[str, Estimate] = {}
        """Estimates of the last forecast, by job."""
        self.rollouts_left = 0
        """Rollouts that `estimate_of` may still use before the next forecast; callers with a clock may lower it."""

    @property
    def policy(self) -> Policy:
        """Scheduling policy."""
        return self.context.policy

    @property
    def settings(self) -> PlannerSettings:
        """Settings of this planner."""
        return self.context.settings

    @property
    def cluster(self) -> ClusterState:
        """State of jobs, nodes and sites."""
        return self.context.cluster

    @property
    def queue(self) -> JobQueue | None:
        """Queue of a queue policy; None under a binding policy."""
        return self.context.queue

    @property
    def changed(self) -> Iterable[str]:
        """Keys of jobs whose plans or ledgers the last decision changed, in order."""
        return self.context.published

    def is_current(self, node: Node) -> bool:
        """Return whether the node, as it is now, is known, so that an event about it would change nothing."""
        known = self.cluster.nodes.get(node.name)
        return known is not None and known.node == with_kind(self.context, node)

    # ---- interface of the host

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply an event, and return the instructions that follow.

        Args:
            event: Event to apply.
            now: Clock in seconds; must not decrease by more than noise: a step back only delays timers.
        """
        return self.handle_all((event,), now)

    def handle_all(self, events: Iterable[Event], now: float) -> list[Instruction]:
        """Apply events (read lazily) in order, and decide once."""
        self.context.begin(now)
        return self._step(events)

    def restore(self, jobs: Iterable[JobSubmitted], now: float, events: Iterable[Event] = ()) -> list[Instruction]:
        """Take over jobs of an earlier planner, then apply the events (read lazily) since its last plan, and decide."""
        self.context.begin(now)
        self.context.cause = Tick()
        for submitted in sorted(jobs, key=lambda e: (e.job.submitted, e.job.key)):
            job.admit(self.context, submitted)
        return self._step(events)

    def blank(self, settings: PlannerSettings) -> "Planner":
        """Make an empty planner of the same policy, without a journal."""
        return Planner(self.policy, settings)

    def learn_from_completed(self, event: JobSubmitted) -> None:
        """Learn from a job that completed before this planner started; call it before `restore`."""
        job.learn_from_completed(self.context, event)

    def next_wakeup(self) -> float | None:
        """Return the latest time at which the host must send a `Tick`, in seconds; None if there is none."""
        return self.context.timers.next()

    def forecast(self, now: float) -> dict[str, Estimate]:
        """Forecast the plan, and keep the estimates for `plan_of`."""
        run_to_completion(self.forecasting(now))
        return self.estimates

    def forecasting(self, now: float) -> Steps[None]:
        """Forecast in steps; events handled between two steps have no effect before the next forecast."""
        self.estimates = yield from forecast(self.context, self.blank, now)
        for key, one in self.estimates.items():
            state = self.cluster.jobs.get(key)
            if state is not None and state.active:
                self.cluster.forecast_errors.planned(key, now, one.start, one.completion, state.size_sigma)
        self.rollouts_left = rollout_budget(self.cluster)

    def estimate_of(self, key: str, now: float) -> Estimate | None:
        """Return the job's estimate of the last forecast, and verify the job or the quota that it waits for.

        A verified job is one without which the waiting job would start earlier. Jobs at the head of the queue are
        verified once per forecast, while `rollouts_left` lasts (`tranche.planner.forecast.counterfactual`).
        """
        state, estimate = self.cluster.jobs[key], self.estimates.get(key)
        if estimate is None or not state.active:
            return None
        if self.rollouts_left and not (state.runs or estimate.verified):
            reason = wait_reason_of(self.cluster, self.policy, state, estimate, now)
            if reason.kind in VERIFIED and not reason.is_permanent and estimate.start > now:
                estimate, used = verify_estimate(
                    self.context, self.blank, state, estimate, now, self.rollouts_left, reason.shortages
                )
                self.rollouts_left -= used
            estimate = self.estimates[key] = replace(estimate, verified=True)
        return estimate

    def plan_of(self, key: str, now: float) -> JobPlan:
        """Return the job's plan as a value."""
        state, errors = self.cluster.jobs[key], self.cluster.forecast_errors
        estimate = self.estimate_of(key, now)
        homes: dict[str, list[int]] = {}
        for chunk, site in state.homes(now) if state.active else ():
            homes.setdefault(site, []).append(chunk)
        runs = sorted(state.runs.values(), key=lambda run: (run.window.index, run.window.attempt))
        explanation = explain(self.cluster, self.policy, state, estimate, now)
        reason = explanation.reason
        unplannable = state.unplannable[0] if state.unplannable else ""
        if not unplannable and reason is not None and reason.is_permanent:
            unplannable = UNSCHEDULABLE
        return JobPlan(
            generation=state.job.generation,
            explanation=explanation.text,
            waits_for=reason.kind.value if reason is not None else "",
            waits_behind=(reason.behind or "") if reason is not None else "",
            ignored_claims=ignored_claims(self.policy, state.job),
            attempts=state.attempts,
            estimated_start=estimate.start if estimate else None,
            estimated_completion=estimate.completion if estimate else None,
            start_interval=errors.start(now, estimate.start) if estimate else None,
            completion_interval=errors.completion(now, estimate.completion, state.size_sigma) if estimate else None,
            homes={site: format_chunks(chunks) for site, chunks in sorted(homes.items())},
            windows=tuple(run.window for run in runs),
            servers=tuple(server.planned for server in state.servers),
            staging=data_staging.planned(state),
            unplaced=unplaced_pods(state, now),
            grant=grant_of(self.context, state),
            unplannable=unplannable,
        )

    def progress_of(self, key: str) -> JobProgress:
        """Return the job's ledger as a value."""
        return progress_ledger.progress_of(self.cluster.jobs[key], self.cluster.speed_model.job_factor(key))

    def _step(self, events: Iterable[Event]) -> list[Instruction]:
        """Apply events, and decide once on the jobs and nodes that they changed."""
        context = self.context
        for event in events:
            context.cause = event
            dispatch.apply(context, event)
            if isinstance(event, JobRemoved):
                self.estimates.pop(event.job, None)
                context.cluster.forecast_errors.forget(event.job)
        cluster, work, settings, now = context.cluster, context.work, context.settings, context.now
        if work.unserved:
            replace_servers(context)
        due = context.timers.due(now)
        if cluster.health.exclusions:
            node_exclusion.review(context, is_due="" in due)
        end_restraints(context)
        for key in filter(cluster.jobs.__contains__, due):
            end_preemption_pause(context, cluster.jobs[key])
            data_staging.end_give_ups(context, cluster.jobs[key])
            context.touch(cluster.jobs[key])
            context.publish(key)
        if context.queue is not None:
            run_cycle(context, context.queue, now)
            work.jobs.clear()
            work.nodes.clear()
        if context.binding is not None:
            serve_nodes(context, context.binding, now)
        if due:
            release_idle_servers(context, due)
        if work.unstaged or work.unstaged_at_limit:
            context.outbox += data_staging.start_pods(context, now)
        out = context.outbox
        if settings.publishes:
            out = [*out, *(PublishPlan(key, context.cause) for key in context.published if key in cluster.jobs)]
        if settings.validate:
            invariants.check_decision(context, out, context.now)
        return out
