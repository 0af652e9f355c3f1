"""Attempts that ended, as `kubectl tranche history` names them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.doc_pages import pages
from support.operator_objects import training_job
from tranche.client.job_history import attempts_of, events_of
from tranche.model.attempt_record import KEPT_ATTEMPTS


@pytest.mark.parametrize(("entry", "pod"), [({"role": "chief"}, "cats-chief-0-7"), ({}, "cats-worker-0-7")])
def test_ended_attempt_has_the_name_of_its_pod(entry: dict[str, str], pod: str) -> None:
    ended = {"index": 0, "attempt": 7, "node": "n1", "reason": "Failed", "exitCode": 1, **entry}
    (attempt,) = attempts_of(training_job(status={"progress": {"attempts": [ended]}}), [], datetime.now(UTC))
    assert (attempt.pod, attempt.role) == (pod, entry.get("role", "worker"))


def test_documentation_gives_the_number_of_kept_attempts() -> None:
    texts = " ".join(page.read_text(encoding="utf-8") for page in pages())
    assert f"The ledger keeps the last {KEPT_ATTEMPTS} attempts" in texts


def event(reason: str, version: str, at: str | None = "2026-11-24T10:31:43Z", uid: str = "u") -> dict[str, Any]:
    known = {"metadata": {"resourceVersion": version}, "involvedObject": {"uid": uid}, "reason": reason}
    return known | {"lastTimestamp": at, "message": "m"}


def test_events_of_one_second_are_in_order_of_writing() -> None:
    items = [
        event("Preempted", "1002"),
        event("Preempting", "999"),
        event("Completed", "7", "2026-11-24T10:31:44Z"),
        event("Other", "1", uid="v"),
        event("Undated", "2000", None),
    ]
    assert [one.reason for one in events_of(items, "u")] == ["Undated", "Preempting", "Preempted", "Completed"]
