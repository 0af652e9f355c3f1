"""TrainingJobs with values that only another release of the CRD knows."""

import json
from typing import Any

import pytest

from support.operator_objects import training_job
from tranche.kube.api.job_decoder import UnreadableJob, decode_job, decode_new_job


def written(**fields: Any) -> bytes:
    """Return a job as JSON, with these fields of its specification."""
    found: dict[str, Any] = training_job().model_dump(mode="json", by_alias=True)
    return json.dumps(found | {"spec": found["spec"] | fields}).encode()


def test_job_with_unknown_value_keeps_what_can_be_read() -> None:
    unknown = {"preemption": {"policy": "AtNight"}, "checkpoint": {"scope": "Rack", "interval": "5m"}}
    job = decode_job(written(**unknown))
    assert isinstance(job, UnreadableJob)
    assert job.problem.startswith("spec.checkpoint.scope: ")
    plain = decode_job(written(checkpoint={"interval": "5m"}))
    assert not isinstance(plain, UnreadableJob)
    assert (job.metadata, job.spec, job.status) == (plain.metadata, plain.spec, plain.status)


@pytest.mark.parametrize("fields", [{"workers": {"template": {}}}, {"workers": 3}, {"data": {"chunks": "many"}}])
def test_job_without_readable_required_field_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="spec"):
        decode_job(written(**fields))


PLAN = {"term": 3, "revision": 1, "observedGeneration": 1}
WINDOW = {"index": 0, "attempt": 1, "site": "edge", "node": "n1", "chunks": [0], "state": "Open"}


def with_status(**fields: Any) -> bytes:
    return json.dumps(json.loads(written()) | {"status": fields}).encode()


def test_job_with_unknown_value_in_status_is_an_error() -> None:
    """The watch then keeps the version before, which the planner continues with."""
    with pytest.raises(ValueError, match="phase"):
        decode_job(with_status(phase="Paused"))


def test_new_job_with_unknown_value_in_status_is_kept() -> None:
    windows = [{**WINDOW, "state": "Draining"}, {**WINDOW, "index": 1, "attempt": 2, "state": "Draining"}]
    job = decode_new_job(with_status(phase="Paused", plan={**PLAN, "workers": windows}, progress={"done": "0"}))
    assert isinstance(job, UnreadableJob)
    assert job.problem.startswith("status.phase: ")
    assert (job.status.phase, job.status.plan) == (None, None), "no plan that lacks one of its windows"
    assert job.status.progress is not None
    assert job.status.progress.done == "0"


def test_new_job_with_unreadable_metadata_is_an_error() -> None:
    found = json.loads(with_status(phase="Paused"))
    found["metadata"]["creationTimestamp"] = "yesterday"
    with pytest.raises(ValueError, match="creationTimestamp"):
        decode_new_job(json.dumps(found).encode())
