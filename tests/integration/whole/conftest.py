"""tranche as a whole: planner, extender, a real kube-scheduler and the operator, as processes."""

from collections.abc import Iterator

import pytest

from support.full_stack import System, full_stack


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}, "edge-b": {"nodes": 1, "gpus": 8}}) as made:
        yield made
