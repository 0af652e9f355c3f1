"""Prometheus of Debian: `make observability` unpacks it."""

import os
from pathlib import Path

import pytest

from tranche_testcluster.binaries.debian_package import PROMETHEUS, find


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """Prometheus and promtool; without them the tests are skipped, but never in CI."""
    found = find(PROMETHEUS)
    if found is None:
        text = "there is no prometheus and promtool: make observability"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return found
