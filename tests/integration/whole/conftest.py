"""tranche as a whole: planner, extender, a real kube-scheduler and the operator, as processes."""

from collections.abc import Iterator

import pytest

from support.full_stack import Whole
from tranche.demo.local_stack import Stack, apply_manifests
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with Cluster() as cluster:
        apply_manifests(cluster)
        cluster.add_site("edge-a", nodes=2, gpus=1)
        cluster.add_site("edge-b", nodes=1, gpus=8)
        with Stack(cluster, scheduler_options=["--validate", "--estimate-seconds", "1"]) as stack:
            yield Whole(cluster, stack)
