"""Condition KubeSchedulerSilent of a Site."""

from datetime import UTC, datetime

from tranche.kube.api.resources import Condition
from tranche.kube.convert.scheduler_condition import silence_condition

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
BEFORE = datetime(2026, 11, 25, 11, tzinfo=UTC)
SILENT = Condition(type="KubeSchedulerSilent", status="True", reason="NoDecision", last_transition_time=BEFORE)


def test_site_has_no_condition_while_kube_scheduler_responds() -> None:
    assert silence_condition([], NOW.timestamp(), silent=False) is None


def test_condition_keeps_the_time_of_the_transition() -> None:
    found = silence_condition([SILENT], NOW.timestamp(), silent=True)
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "NoDecision")
    assert found["lastTransitionTime"] == "2026-11-25T11:00:00Z"


def test_condition_becomes_false_when_kube_scheduler_responds() -> None:
    found = silence_condition([SILENT], NOW.timestamp(), silent=False)
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "Responds")
    assert found["lastTransitionTime"] == "2026-11-25T12:00:00Z"
