"""Kubernetes' own kube-scheduler with batch/v1 Jobs, without a queue."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from peers.batch_job import JOBS, batch_job
from peers.system import Objects, System
from tranche_testcluster import Cluster
from tranche_testcluster.binaries import binary_cache


def default_scheduler() -> System:
    """Return the default kube-scheduler."""
    title = f"kube-scheduler {binary_cache.version('kube-scheduler').lstrip('v')}"
    return System(title, "batch/v1 Jobs, defaults, 5,000 QPS", _start, _job)


def _job(name: str, pods: int, run_seconds: float) -> Objects:
    return [(JOBS, batch_job(name, pods, run_seconds))]


@contextmanager
def _start(cluster: Cluster, gpus: int) -> Iterator[Mapping[str, int]]:
    del gpus
    cluster.start_scheduler()
    yield {"kube-scheduler": cluster.pid("kube-scheduler")}
