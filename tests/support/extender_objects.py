"""Watches without an API server, and the objects in them, for tests of the extender."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from tranche.extender.view import View
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import ROLE_WORKER, pod_name
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.client.reflector import Stats

T = TypeVar("T")
GPU = "nvidia.com/gpu"
PRIORITY = -9


class Store(Generic[T]):
    """Stand-in for a reflector."""

    def __init__(self) -> None:
        self.store: dict[str, T] = {}
        self.stats = Stats()
        self.age = 0.0
        self._callbacks: list[Callable[[str, T | None, T | None], None]] = []

    def subscribe(self, callback: Callable[[str, T | None, T | None], None]) -> None:
        self._callbacks.append(callback)
        for key, held in self.store.items():
            callback(key, None, held)

    def put(self, key: str, new: T | None) -> None:
        old = self.store.pop(key, None)
        if new is not None:
            self.store[key] = new
        for callback in self._callbacks:
            callback(key, old, new)


class Stores:
    """Stores of the four watches, with short methods to fill them."""

    def __init__(self, nodes: Sequence[str] = (), gpus: int = 8, gpu_resources: tuple[str, ...] = (GPU,)) -> None:
        self.pods: Store[Pod] = Store()
        self.nodes: Store[NodeObject] = Store()
        self.jobs: Store[TrainingJob] = Store()
        self.sites: Store[SiteObject] = Store()
        self.view = View(self, gpu_resources)
        for name in nodes:
            self.add_node(name, gpus)

    def add_node(self, name: str, gpus: int = 8, cpu: str = "64", ready: bool = True, **labels: str) -> None:
        offered = {"cpu": cpu, "memory": "256Gi", "pods": "110", GPU: str(gpus)}
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        whole = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": offered, "conditions": conditions},
        }
        self.nodes.put(name, msgspec.convert(whole, NodeObject))

    def add_pod(self, made: Pod) -> Pod:
        self.pods.put(made.key, made)
        return made

    def add_job(self, name: str, *workers: dict[str, Any], **more: Any) -> TrainingJob:
        made = job(name, *workers, **more)
        self.jobs.put(made.key, made)
        return made

    def add_site(self, name: str, **labels: str) -> None:
        spec = {"nodeSelector": labels, "tier": "Edge"}
        self.sites.put(name, SiteObject.model_validate({"metadata": {"name": name}, "spec": spec}))


def asks(gpus: int, cpu: str = "1") -> dict[str, Any]:
    """Return a pod's specification."""
    requests = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


def window(index: int, attempt: int, node: str | None, *fallbacks: str, **more: Any) -> dict[str, Any]:
    """Return an entry of status.plan.workers."""
    return {
        "index": index,
        "attempt": attempt,
        "site": "edge-a",
        "node": node,
        "fallbacks": fallbacks,
        "chunks": [0],
        **more,
    }


def job(
    name: str,
    *workers: dict[str, Any],
    gpus: int = 1,
    servers: Sequence[dict[str, Any]] = (),
    chief: dict[str, Any] | None = None,
    stamp: tuple[int, int] = (1, 1),
    homes: dict[str, str] | None = None,
    phase: str | None = None,
    tier: str = "tranche-normal",
    planned: bool = True,
    spec: dict[str, Any] | None = None,
    **metadata: Any,
) -> TrainingJob:
    """Return a job with a plan of these windows and parameter servers."""
    plan = {
        "term": stamp[0],
        "revision": stamp[1],
        "observedGeneration": 1,
        "homes": homes or {},
        "workers": workers,
        "parameterServers": servers,
        **({"chief": chief} if chief is not None else {}),
    }
    whole: dict[str, Any] = {
        "workers": {"maxReplicas": 4, "template": {"spec": asks(gpus)}},
        "priorityClassName": tier,
        "parameterServers": {"replicas": 1, "template": {"spec": asks(0)}},
        **({"chief": {"template": {"spec": asks(1)}}} if chief is not None else {}),
        **(spec or {}),
    }
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata}
    status = {"phase": phase, "plan": plan if planned else None}
    return TrainingJob.model_validate({"metadata": meta, "spec": whole, "status": status})


def worker(
    name: str,
    index: int,
    attempt: int,
    node: str = "",
    *,
    gpus: int = 1,
    role: str = ROLE_WORKER,
    plan: str = "1.1",
    status: dict[str, Any] | None = None,
    **metadata: Any,
) -> Pod:
    """Return a pod of a job, which controls it unless `ownerReferences` says otherwise."""
    labels = {
        "tranche.dev/job": name,
        "tranche.dev/role": role,
        "tranche.dev/index": str(index),
        "tranche.dev/attempt": str(attempt),
    }
    meta = {
        "name": pod_name(name, role, index, attempt),
        "namespace": "ns",
        "labels": labels,
        "annotations": {"tranche.dev/plan": plan},
        "ownerReferences": [controller(f"uid-{name}")],
        **metadata,
    }
    spec = {**asks(gpus), "nodeName": node, "priority": PRIORITY}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status or {}}, Pod)


def controller(uid: str) -> dict[str, Any]:
    """Return the owner reference of a pod that the TrainingJob with this UID controls."""
    return {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": uid, "controller": True}


def stranger(name: str, node: str = "", *, gpus: int = 1, priority: int | None = 0, **metadata: Any) -> Pod:
    """Return a pod that tranche does not manage."""
    spec = {**asks(gpus), "nodeName": node, "priority": priority}
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns", **metadata}, "spec": spec}, Pod)
