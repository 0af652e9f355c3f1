"""A scheduling system under test: how it is started on a test cluster, and the objects that make up one of its jobs."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import yaml

from tranche_testcluster import Cluster, ClusterError

Objects = list[tuple[str, dict[str, Any]]]
"""Pairs of an API path and the object to create there, in order."""
READY_SECONDS = 60.0


@dataclass(frozen=True)
class System:
    """One row of a comparison."""

    title: str
    """Name and version."""
    settings: str
    start: Callable[[Cluster, int], AbstractContextManager[Mapping[str, int]]]
    """Starts the system on a cluster with this number of GPUs; yields the ids of its processes by name."""
    job: Callable[[str, int, float], Objects]
    """Returns the objects of a job, from its name, its number of one-GPU pods and the run time of each in seconds."""


def create(cluster: Cluster, path: str, body: Mapping[str, Any]) -> None:
    """Create an object; one whose webhook or CRD is not served yet is tried again.

    Raises:
        ClusterError: It is still rejected after `READY_SECONDS`.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        status, answer = cluster.request("POST", path, body)
        if status in (201, 409):
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"POST {path}: {status} {answer}")
        time.sleep(0.5)


def install_kinds(cluster: Cluster, documents: list[dict[str, Any]]) -> None:
    """Create CRDs, and wait until they are served."""
    for document in documents:
        create(cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
    names = [f"crd/{document['metadata']['name']}" for document in documents]
    cluster.kubectl("wait", "--for=condition=Established", f"--timeout={READY_SECONDS:g}s", *names)


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a YAML file."""
    return [document for document in yaml.safe_load_all(text) if document]
