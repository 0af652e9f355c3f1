"""The cluster and the shell in which the tests run the commands of the documentation."""

from collections.abc import Iterator

import pytest

from support.doc_shell import Shell
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """Three sites' nodes, no tranche yet."""
    with Cluster() as cluster:
        for site in ("edge-a", "edge-b", "edge-c", "cloud"):
            cluster.add_site(site, nodes=1, gpus=2)
        cluster.start_scheduler()
        yield cluster


@pytest.fixture(scope="module")
def shell(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(own, tmp_path_factory.mktemp("shell"))
