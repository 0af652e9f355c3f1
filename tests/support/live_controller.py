"""Controllers on watch stores that are filled by hand."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.kube.api.core_types import NodeObject, Pod, QuotaObject
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.planner_config import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.planner.journal import Fact

NOW = 1_800_000_000.0


class Stopwatch:
    """Monotonic seconds that pass between the events of a watch only, so that a slow machine cuts no forecast short."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def resource(name: str, duration: str | None = "1h", **more: Any) -> TrainingJob:
    """Return a job; keyword arguments outside its specification belong to its status."""
    own = ("data", "parameterServers", "runPolicy", "checkpoint", "communication")
    spec = {field: more.pop(field) for field in own if field in more}
    requests = {"nvidia.com/gpu": "1", "cpu": "1"}
    template = {"spec": {"containers": [{"name": "t", "resources": {"requests": requests}}]}}
    created = datetime.fromtimestamp(NOW, UTC).isoformat()
    return TrainingJob.model_validate(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created},
            "spec": {
                "data": {"chunks": 2},
                "estimatedDuration": duration,
                "workers": {"maxReplicas": 2, "template": template},
                **spec,
            },
            "status": more,
        }
    )


async def taken_over(
    *jobs: TrainingJob,
    sites: tuple[SiteObject, ...] = (),
    quotas: tuple[QuotaObject, ...] = (),
    pods: tuple[Pod, ...] = (),
    policy: str = "chunk-faithful",
    term: int = 2,
    nodes: int = 1,
    gpus: int = 2,
    validate: bool = True,
    config: PlannerConfig | None = None,
    note: Callable[[Fact], None] | None = None,
) -> Controller:
    """A controller that has just read these objects, and nodes with `gpus` GPUs each.

    The client is never used: nothing is sent. With `validate`, the planner checks its invariants after each event; it
    notes the events of windows with `note`.
    """
    watches = Informers(None)  # type: ignore[arg-type]
    for job in jobs:
        watches.jobs.store[job.key] = job
    for site in sites:
        watches.sites.store[site.metadata.name] = site
    for quota in quotas:
        watches.quotas.store[f"{quota.metadata.namespace}/{quota.metadata.name}"] = quota
    for pod in pods:
        watches.pods.store[pod.key] = pod
    for name in (f"n{number + 1}" for number in range(nodes)):
        node = {
            "metadata": {"name": name, "labels": {"zone": "good"}},
            "status": {
                "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": str(gpus)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        watches.nodes.store[name] = msgspec.convert(node, NodeObject)
    planner = (config or PlannerConfig(policy)).planner(note, validate=validate)
    controller = Controller(None, watches, planner, Metrics(), clock=lambda: NOW, stopwatch=Stopwatch())  # type: ignore[arg-type]
    controller.term = term
    controller.restore()
    return controller


def created(pod: Pod, age: float) -> Pod:
    """Return a pod that is some seconds old."""
    metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=datetime.fromtimestamp(NOW - age, UTC))
    return msgspec.structs.replace(pod, metadata=metadata)


def written(controller: Controller, name: str, namespace: str = "default") -> dict[str, Any]:
    build = controller.writer._builds[f"/apis/tranche.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}/status"]
    body = build()
    assert body is not None
    return dict(body["status"])


def condition_alone(controller: Controller, name: str) -> dict[str, Any]:
    """Return the status of an object that the writer would apply under its own field manager."""
    body = controller.writer._conditions[f"/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/{name}/status"]()
    assert body is not None
    return dict(body["status"])


def reported(controller: Controller, kind: str, key: str, new: Any) -> None:
    """Send the controller an event of a watch, one second after the one before, and let it decide."""
    noted(controller, kind, key, new)
    controller.step()


def noted(controller: Controller, kind: str, key: str, new: Any) -> None:
    """Send the controller an event of a watch, one second after the one before."""
    if isinstance(controller.stopwatch, Stopwatch):
        controller.stopwatch.seconds += 1.0
    store = controller.watches.by_kind(kind).store
    old = store.pop(key, None)
    if new is not None:
        store[key] = new
    controller.note_change(kind, key, old, new)
