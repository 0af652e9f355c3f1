"""Detection of a missing leader from the Lease."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tranche.client.scheduler_lease import absence

NOW = datetime(2026, 11, 23, 12, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize("second", ["00:30", "00:58", "01:20"])
def test_lease_that_ended_less_than_the_margin_ago_is_held(second: str) -> None:
    assert not absence({"spec": {"renewTime": f"2026-11-23T12:{second}.000000Z", "leaseDurationSeconds": 8}}, NOW)


def test_expired_lease_names_the_last_renewal() -> None:
    told = absence({"spec": {"renewTime": "2026-11-23T12:00:02.123456Z", "leaseDurationSeconds": 8}}, NOW)
    assert told.startswith("no scheduler has led since 2026-11-23 12:00:02Z: ")


@pytest.mark.parametrize("spec", [None, {}, {"renewTime": None}, {"renewTime": "soon", "leaseDurationSeconds": 8}])
def test_unreadable_lease_says_nothing(spec: dict[str, Any] | None) -> None:
    assert not absence({"spec": spec} if spec is not None else {}, NOW)
