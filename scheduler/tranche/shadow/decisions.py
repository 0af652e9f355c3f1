"""What tranche would do now, if it took over: a planner on paper for jobs that wait under any scheduler."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Literal

import msgspec

from tranche.kube.converts import LATEST
from tranche.kube.histories import group_key, is_foreign
from tranche.kube.memberships import site_of
from tranche.kube.metrics import Metrics
from tranche.kube.objects import is_over, pod_constraints, pod_requests, started_at
from tranche.kube.structs import Pod
from tranche.live import Controller, ControllerSettings
from tranche.live.choices import PlannerChoice
from tranche.live.views import Watches
from tranche.model import UNKNOWN_DURATION_SECONDS, Job, JobPlan, PodShape, Window
from tranche.planner import Event, Instruction, JobSubmitted, Planner, WorkerStarted
from tranche.policies import get_live_policy


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What would be done with one waiting job."""

    at: datetime
    job: str
    """``namespace/name``."""
    decision: Literal["start", "wait"]
    nodes: list[str]
    """Where its workers would start."""
    planned_start: datetime | None
    planned_completion: datetime | None
    """If it took an hour, unless it is a TrainingJob that says more."""
    explanation: str


class _PaperPlanner(Planner):
    """Takes over jobs of other schedulers as if they were ours."""

    def __init__(self, choice: PlannerChoice, others: list[JobSubmitted]) -> None:
        super().__init__(get_live_policy(choice.policy), choice.settings())
        self._others = others

    def restore(self, jobs: Iterable[JobSubmitted], now: float, events: Iterable[Event] = ()) -> list[Instruction]:
        """Take over ours and theirs."""
        return super().restore([*jobs, *self._others], now, chain(events, self._starts()))

    def _starts(self) -> Iterator[Event]:
        """Since when workers of theirs train."""
        for event in self._others:
            for window in event.plan.windows if event.plan is not None else ():
                if window.start:
                    yield WorkerStarted(event.job.key, window.attempt, window.start)


def decide(watches: Watches, choice: PlannerChoice, now: float) -> list[Decision]:
    """Take over what the watches show, jobs of other schedulers included, and plan all that wait.

    Args:
        watches: In step; their pods hold all fields of pods of other schedulers.
        choice: Which planner.
        now: Seconds since the epoch.
    """
    still = watches.still()
    sites = {name: site_of(node.metadata.labels, still.sites.store) for name, node in still.nodes.store.items()}
    groups = _groups(still, choice.gpu_resource)
    others = [_submission(key, pods, sites, choice.gpu_resource) for key, pods in sorted(groups.items())]
    planner = _PaperPlanner(choice, others)
    nobody: Any = None  # nothing is sent
    settings = ControllerSettings(choice.gpu_resource)
    Controller(nobody, still, planner, Metrics(), settings, clock=lambda: now).restore()
    running = {event.job.key for event in others if event.plan is not None}
    planner.forecast(now)
    states = planner.cluster.jobs.items()
    begun = {key for key, state in states if any(run.started is not None for run in state.runs.values())}
    waiting = [key for key, state in states if state.active and key not in running and key not in begun]
    return [_decision(key, planner.plan_of(key, now), now) for key in waiting]


def _groups(still: Watches, gpu_resource: str) -> dict[str, list[Pod]]:
    """Jobs of other schedulers that are not over; their pods are taken out: they are no room that is lost for ever."""
    groups: dict[str, list[Pod]] = {}
    pods = still.pods.store
    for key in [key for key, pod in pods.items() if is_foreign(pod, gpu_resource) and not is_over(pod)]:
        pod = pods.pop(key)
        groups.setdefault(group_key(pod), []).append(pod)
    return groups


def _submission(key: str, pods: list[Pod], sites: Mapping[str, str | None], gpu_resource: str) -> JobSubmitted:
    """A gang of another scheduler, with windows where its pods are; nobody knows how long it takes."""
    created = [pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp]
    largest = max(pods, key=lambda pod: pod_requests(pod, gpu_resource).gpus)
    job = Job(
        key=key,
        uid=f"shadow-{key}",
        submitted=min((at.timestamp() for at in created), default=0.0),
        worker=PodShape(pod_requests(largest, gpu_resource), pod_constraints(largest)),
        chunks=len(pods),
        max_workers=len(pods),
        min_workers=len(pods),
        is_gang=True,
        step_seconds=UNKNOWN_DURATION_SECONDS,
        size_declared=False,
    )
    placed = [pod for pod in pods if sites.get(pod.spec.node_name)]
    if len(placed) < len(pods):
        return JobSubmitted(job)
    windows = tuple(_window(number, pod, sites) for number, pod in enumerate(placed))
    return JobSubmitted(job, JobPlan(1, "runs under another scheduler", attempts=len(windows), windows=windows))


def _window(number: int, pod: Pod, sites: Mapping[str, str | None]) -> Window:
    began = started_at(pod) or 0.0
    return Window(
        index=number,
        attempt=number + 1,
        site=sites[pod.spec.node_name] or "",
        node=pod.spec.node_name,
        chunks=(number,),
        start=began,
        end=began + UNKNOWN_DURATION_SECONDS,
        generation=1,
    )


def _decision(key: str, plan: JobPlan, now: float) -> Decision:
    return Decision(
        at=datetime.fromtimestamp(now, UTC),
        job=key,
        decision="start" if plan.windows else "wait",
        nodes=[window.node or window.site for window in plan.windows],
        planned_start=_moment(plan.estimated_start),
        planned_completion=_moment(plan.estimated_completion),
        explanation=plan.explanation,
    )


def _moment(at: float | None) -> datetime | None:
    return datetime.fromtimestamp(min(at, LATEST), UTC) if at else None
