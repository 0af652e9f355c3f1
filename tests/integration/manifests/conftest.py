from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.yaml_text import load_yaml
from tranche_testcluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
Answer = tuple[int, Any]


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with everything of ``manifests``, applied as a user would."""
    cluster.kubectl("apply", "-k", str(ROOT / "manifests"))
    return cluster


@pytest.fixture
def job() -> dict[str, Any]:
    """A valid TrainingJob with data and a parameter server."""
    obj: dict[str, Any] = load_yaml(
        """
        apiVersion: tranche.dev/v1alpha1
        kind: TrainingJob
        metadata: {name: mnist, namespace: default}
        spec:
          data: {chunks: 4, epochs: 2, batchesPerChunk: 10}
          workers:
            maxReplicas: 2
            template: {spec: {containers: [{name: worker, image: train}]}}
          parameterServers:
            template: {spec: {containers: [{name: server, image: train}]}}
        """
    )
    return obj


@pytest.fixture
def gang() -> dict[str, Any]:
    """A valid gang, the smallest useful job."""
    obj: dict[str, Any] = load_yaml(
        """
        apiVersion: tranche.dev/v1alpha1
        kind: TrainingJob
        metadata: {name: allreduce, namespace: default}
        spec:
          workers:
            maxReplicas: 2
            template: {spec: {containers: [{name: worker, image: train}]}}
        """
    )
    return obj


@pytest.fixture
def site() -> dict[str, Any]:
    """A valid Site."""
    obj: dict[str, Any] = load_yaml(
        """
        apiVersion: tranche.dev/v1alpha1
        kind: Site
        metadata: {name: edge-a}
        spec:
          nodeSelector: {topology.kubernetes.io/zone: edge-a}
          links: [{to: cloud, bandwidth: 500M, latency: 20ms}]
        """
    )
    return obj


@pytest.fixture
def create(installed: Cluster) -> Callable[[dict[str, Any]], Answer]:
    """Create an object without keeping it."""

    def post(obj: dict[str, Any]) -> Answer:
        return installed.request("POST", f"{_collection(obj)}?dryRun=All&fieldValidation=Strict", obj)

    return post


@pytest.fixture
def update(installed: Cluster) -> Callable[[dict[str, Any], dict[str, Any]], Answer]:
    """Create the first object, try to replace it by the second, and delete it again."""

    def put(old: dict[str, Any], new: dict[str, Any]) -> Answer:
        path = f"{_collection(old)}/{old['metadata']['name']}"
        status, created = installed.request("POST", _collection(old), old)
        assert status == 201, created
        try:
            metadata = {**new["metadata"], "resourceVersion": created["metadata"]["resourceVersion"]}
            return installed.request("PUT", f"{path}?dryRun=All", {**new, "metadata": metadata})
        finally:
            installed.request("DELETE", path)

    return put


def _collection(obj: dict[str, Any]) -> str:
    if obj["kind"] == "Site":
        return "/apis/tranche.dev/v1alpha1/sites"
    return f"/apis/tranche.dev/v1alpha1/namespaces/{obj['metadata']['namespace']}/trainingjobs"
