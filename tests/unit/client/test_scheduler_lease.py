"""Detection of a missing leader from the Lease."""

import asyncio
import time
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from support.fake_api_server import FakeApi, run
from tranche.client import Client
from tranche.client.scheduler_lease import absence
from tranche.kube.api.timestamp import rfc3339

NOW = datetime(2026, 11, 23, 12, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize("second", ["00:30", "00:58", "01:20"])
def test_lease_that_ended_less_than_the_margin_ago_is_held(second: str) -> None:
    assert not absence({"spec": {"renewTime": f"2026-11-23T12:{second}.000000Z", "leaseDurationSeconds": 8}}, NOW)


def test_expired_lease_names_the_last_renewal() -> None:
    sentence = absence({"spec": {"renewTime": "2026-11-23T12:00:02.123456Z", "leaseDurationSeconds": 8}}, NOW)
    assert sentence.startswith("no scheduler has led since 2026-11-23 12:00:02Z: ")


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_wrong_clock_of_the_user_makes_no_leader_absent(tmp_path: Path, ahead: float) -> None:
    """The leader has renewed the Lease just now, by the clock of the API server."""

    async def scenario(api: FakeApi, config: str) -> None:
        at = time.time() + ahead
        spec = {"renewTime": rfc3339(at, microseconds=True), "leaseDurationSeconds": 8}
        api.answers += [(200, {"spec": spec}, {"Date": formatdate(at, usegmt=True)})] * 2
        client = await asyncio.to_thread(Client, kubeconfig=config)
        assert not await asyncio.to_thread(client.scheduler_absence)
        await asyncio.to_thread(client.close)

    run(tmp_path, scenario)


@pytest.mark.parametrize("spec", [None, {}, {"renewTime": None}, {"renewTime": "soon", "leaseDurationSeconds": 8}])
def test_unreadable_lease_says_nothing(spec: dict[str, Any] | None) -> None:
    assert not absence({"spec": spec} if spec is not None else {}, NOW)
