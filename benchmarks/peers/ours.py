"""tranche with TrainingJobs of one-GPU workers: scheduler, second kube-scheduler and operator as processes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from peers.system import Objects, System
from tranche import __version__
from tranche.demo.local_stack import API, KUBE_SCHEDULER, Stack, apply_manifests
from tranche_testcluster import Cluster
from tranche_testcluster.site import GPU

JOBS = f"{API}/namespaces/default/trainingjobs"


def tranche() -> System:
    """Return tranche with its default policy; durations are known, as its users declare them."""
    return System(f"tranche {__version__}", "TrainingJobs, defaults, durations declared", _start, _job)


def _job(name: str, pods: int, run_seconds: float) -> Objects:
    return [(JOBS, training_job(name, pods, run_seconds))]


def training_job(name: str, workers: int, run_seconds: float) -> dict[str, Any]:
    """Return a TrainingJob whose workers all run at the same time, each for `run_seconds` from its own start."""
    requests = {"cpu": "1", "memory": "1Gi", GPU: "1"}
    container = {
        "name": "train",
        "image": f"registry.example/{name}:1",
        "resources": {"requests": requests, "limits": {GPU: "1"}},
    }
    template = {
        "metadata": {"annotations": {"kwok.tranche.dev/run-seconds": f"{run_seconds:.6f}"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    return {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "workers": {"maxReplicas": workers, "template": template},
            "estimatedDuration": f"{1000 * run_seconds:.3f}ms",
        },
    }


@contextmanager
def _start(cluster: Cluster, gpus: int) -> Iterator[Mapping[str, int]]:
    del gpus
    apply_manifests(cluster)
    with Stack(cluster) as stack:
        own = {name: process.pid for name, process in stack.processes.items()}
        yield own | {"kube-scheduler": cluster.pid(KUBE_SCHEDULER)}
