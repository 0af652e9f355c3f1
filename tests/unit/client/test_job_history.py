"""Attempts that ended, as `kubectl tranche history` names them."""

from datetime import UTC, datetime

import pytest

from support.doc_pages import pages
from support.operator_objects import training_job
from tranche.client.job_history import attempts_of
from tranche.model.attempt_record import KEPT_ATTEMPTS


@pytest.mark.parametrize(("entry", "pod"), [({"role": "chief"}, "cats-chief-0-7"), ({}, "cats-worker-0-7")])
def test_ended_attempt_has_the_name_of_its_pod(entry: dict[str, str], pod: str) -> None:
    ended = {"index": 0, "attempt": 7, "node": "n1", "reason": "Failed", "exitCode": 1, **entry}
    (attempt,) = attempts_of(training_job(status={"progress": {"attempts": [ended]}}), [], datetime.now(UTC))
    assert (attempt.pod, attempt.role) == (pod, entry.get("role", "worker"))


def test_documentation_gives_the_number_of_kept_attempts() -> None:
    texts = " ".join(page.read_text(encoding="utf-8") for page in pages())
    assert f"The ledger keeps the last {KEPT_ATTEMPTS} attempts" in texts
