"""Kubernetes' own kube-scheduler without a queue: with batch/v1 Jobs, and with bare pods."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from peers.batch_job import JOBS, batch_job
from peers.pod_times import PODS
from peers.system import Objects, System
from tranche_testcluster import Cluster
from tranche_testcluster.binaries import binary_cache


def default_scheduler() -> System:
    """Return the default kube-scheduler."""
    return System(_title(), "batch/v1 Jobs, defaults, 5,000 QPS", _start, _job)


def bare_pods() -> System:
    """Return the default kube-scheduler with pods that nothing controls: what Kubernetes itself needs for a start."""
    return System(f"{_title()}, bare pods", "defaults, 5,000 QPS", _start, _pods)


def _title() -> str:
    return f"kube-scheduler {binary_cache.version('kube-scheduler').lstrip('v')}"


def _job(name: str, pods: int, run_seconds: float) -> Objects:
    return [(JOBS, batch_job(name, pods, run_seconds))]


def _pods(name: str, pods: int, run_seconds: float) -> Objects:
    template = batch_job(name, 1, run_seconds)["spec"]["template"]
    names = [f"{name}-{index}" for index in range(pods)] if pods > 1 else [name]
    heads = ({**template["metadata"], "name": pod, "namespace": "default"} for pod in names)
    return [(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": template["spec"]}) for head in heads]


@contextmanager
def _start(cluster: Cluster, gpus: int) -> Iterator[Mapping[str, int]]:
    del gpus
    cluster.start_scheduler()
    yield {"kube-scheduler": cluster.pid("kube-scheduler")}
