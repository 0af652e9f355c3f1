"""Real nodes for the tests: `make e2e` runs them, `make test` does not."""

import pytest

from tranche_testcluster.node import unavailable


@pytest.fixture(scope="session", autouse=True)
def real_nodes() -> None:
    """Skip everything on a machine that cannot have real nodes."""
    if reason := unavailable():
        pytest.skip(reason)
