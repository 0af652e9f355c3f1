"""Real nodes for the tests: `make e2e` runs them, `make test` does not."""

from collections.abc import Iterator

import pytest

from support.real_lab import Installed, installed_chart
from tranche_testcluster.node import unavailable


@pytest.fixture(scope="session", autouse=True)
def real_nodes() -> None:
    """Skip everything on a machine that cannot have real nodes."""
    if reason := unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """tranche, installed by its chart on three real nodes; afterwards the machine is as before."""
    folder = tmp_path_factory.mktemp("installed")
    for parent in (folder, *folder.parents[:2]):  # pytest's folders are for this user only, the containers have another
        parent.chmod(0o755)
    with installed_chart(folder) as found:
        yield found
