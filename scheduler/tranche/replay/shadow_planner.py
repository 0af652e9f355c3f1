"""Decisions that tranche would make now for waiting jobs of any scheduler, from a planner that writes nothing."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import msgspec

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import GpuResources
from tranche.kube.api.timestamp import whole_second
from tranche.kube.convert.pod_shape import pod_constraints, pod_requests
from tranche.kube.convert.pod_state import is_over, started_at
from tranche.kube.convert.site_membership import site_of
from tranche.live.cluster_translator import restore_planner
from tranche.live.informers import ClusterObjects
from tranche.live.planner_config import PlannerConfig
from tranche.model import UNKNOWN_DURATION_SECONDS, Job, JobPlan, PodShape, Window
from tranche.planner import JobSubmitted
from tranche.replay.pod_history import group_key, is_foreign


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """Decision for one waiting job."""

    at: datetime
    job: str
    """``namespace/name``."""
    decision: Literal["start", "wait"]
    nodes: list[str]
    """Nodes where its workers would start."""
    planned_start: datetime | None
    planned_completion: datetime | None
    """Planned completion. Jobs of other schedulers count as one hour long."""
    explanation: str


def decide(objects: ClusterObjects, config: PlannerConfig, now: float) -> list[Decision]:
    """Plan all waiting jobs, those of other schedulers included, from the present state of the cluster.

    Args:
        objects: The objects of the cluster; pods of other schedulers with all their fields.
        config: Planner configuration.
        now: Seconds since the epoch.
    """
    nodes = objects.nodes.items()
    sites = {name: site_of(node.metadata.labels, objects.sites) for name, node in nodes}
    groups = _groups(objects, config.gpu_resources)
    foreign = [_submission(key, pods, sites, config.gpu_resources) for key, pods in sorted(groups.items())]
    planner = config.planner()
    restore_planner(planner, _without(objects, groups), config.gpu_resources, now, foreign=foreign)
    running = {event.job.key for event in foreign if event.plan is not None}
    planner.forecast(now)
    states = planner.cluster.jobs.items()
    begun = {key for key, state in states if any(run.started is not None for run in state.runs.values())}
    waiting = [key for key, state in states if state.active and key not in running and key not in begun]
    return [_decision(key, planner.plan_of(key, now), now) for key in waiting]


def _groups(objects: ClusterObjects, gpu_resources: GpuResources) -> dict[str, list[Pod]]:
    """Return the pods of other schedulers that have not ended, by job."""
    groups: dict[str, list[Pod]] = {}
    for pod in objects.pods.values():
        if is_foreign(pod, gpu_resources) and not is_over(pod):
            groups.setdefault(group_key(pod), []).append(pod)
    return groups


def _without(objects: ClusterObjects, groups: Mapping[str, list[Pod]]) -> ClusterObjects:
    """Return the objects without these pods: they are planned as jobs, so they must not count as foreign usage too."""
    planned = {id(pod) for pods in groups.values() for pod in pods}
    return replace(objects, pods={key: pod for key, pod in objects.pods.items() if id(pod) not in planned})


def _submission(
    key: str, pods: list[Pod], sites: Mapping[str, str | None], gpu_resources: GpuResources
) -> JobSubmitted:
    """Convert a job of another scheduler to a gang with windows on the nodes of its pods; its duration is unknown."""
    created = [pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp]
    largest = max(pods, key=lambda pod: pod_requests(pod, gpu_resources).gpus)
    job = Job(
        key=key,
        uid=f"shadow-{key}",
        submitted=min((at.timestamp() for at in created), default=0.0),
        worker=PodShape(pod_requests(largest, gpu_resources), pod_constraints(largest)),
        chunks=len(pods),
        max_workers=len(pods),
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
        planned_start=whole_second(plan.estimated_start),
        planned_completion=whole_second(plan.estimated_completion),
        explanation=plan.explanation,
    )
