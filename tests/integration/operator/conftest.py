"""Fixtures of the operator's tests on a real control plane."""

from collections.abc import Iterator

import pytest

from support.operator_lab import SITE, Lab, Process, operator_command
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[list[str]]:
    yield cluster.add_site(SITE, nodes=2, gpus=8)
    cluster.remove_site(SITE)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, nodes: list[str]) -> Iterator[Process]:
    process = Process(operator_command(cluster), cluster.directory / "operator-tests.log")
    yield process
    process.kill()


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Lab:
    return Lab(cluster, namespace)
