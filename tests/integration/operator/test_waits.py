"""`kubectl describe` shows why a job waits."""

from typing import Any

import pytest

from support.operator_lab import Lab, window
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")

BEHIND = "waits for 1 GPU at op until {}, behind team-b/vgg16, which has less work left"
QUOTA = "waits for the quota lab/small: 4 of 4 gpu in use, and 1 needed"


def pending(lab: Lab) -> dict[str, Any]:
    return lab.events().get("Pending", {})


def test_pending_event_is_repeated_only_for_another_constraint(lab: Lab) -> None:
    lab.create()
    lab.plan(explanation=BEHIND.format("14:20:00Z"))
    event = eventually(lambda: pending(lab))
    assert (event["type"], event["message"], event["count"]) == ("Normal", BEHIND.format("14:20:00Z"), 1)
    described = lab.cluster.kubectl("describe", "tj", "cats", "--namespace", lab.namespace)
    events = described[described.index("Events:") :]
    assert "Pending" in events
    assert BEHIND.format("14:20:00Z") in events

    lab.plan(explanation=BEHIND.format("2026-12-01 10:00:00Z"))
    lab.plan(explanation=QUOTA)
    event = eventually(lambda: pending(lab)["message"] == QUOTA and pending(lab))
    assert event["count"] == 2, "a moment that moved was no event"


def test_a_job_that_starts_at_once_has_no_such_event(lab: Lab) -> None:
    lab.create()
    lab.plan(explanation="waits for 1 GPU: the policy chunk has not placed it yet")
    lab.plan(window(0, 1), explanation="1 worker (1 at op); 0 of 4 chunks done")
    eventually(lambda: lab.status().get("phase") == "Starting")
    eventually(lambda: "Started" in lab.events())
    lab.plan(window(0, 1, "Closing"), explanation=BEHIND.format("14:20:00Z"))
    lab.plan(explanation=QUOTA)
    event = eventually(lambda: pending(lab))
    assert (event["message"], event["count"]) == (QUOTA, 1)
