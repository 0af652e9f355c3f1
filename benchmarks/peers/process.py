"""Process of a system under test, with administrator rights, which ends with its context."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tranche_testcluster import Cluster, spawn, stop

STOP_SECONDS = 5.0


@contextmanager
def started(cluster: Cluster, name: str, *command: str) -> Iterator[int]:
    """Run a command with the cluster's administrator in ``KUBECONFIG``; yield the id of its process."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = spawn(command, log=cluster.directory / "logs" / f"{name}.log", env=environment)
    try:
        yield process.pid
    finally:
        stop([process], STOP_SECONDS)
