"""State of a job beside its progress bar."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.operator_objects import plan, training_job
from tranche.client.progress_bar import state_of

NOW = datetime(2026, 11, 22, 23, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"phase": "Waiting"}, "Waiting, starts 23:58:00Z"),
        ({"phase": "Running"}, "Running, done 2026-11-25 14:20:00Z"),
        ({"phase": "Suspended"}, "Suspended"),
    ],
)
def test_time_of_another_day_has_its_date(status: dict[str, Any], text: str) -> None:
    times = {"estimatedStart": "2026-11-22T23:58:00Z", "estimatedCompletion": "2026-11-25T14:20:00Z"}
    assert state_of(training_job(status={**status, "plan": {**plan(), **times}}), NOW) == text
