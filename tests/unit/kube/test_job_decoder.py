"""TrainingJobs with values that only another release of the CRD knows."""

import json
from typing import Any

import pytest

from support.operator_objects import training_job
from tranche.kube.api.job_decoder import UnreadableJob, decode_job


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


def test_job_with_unknown_value_in_status_is_an_error() -> None:
    """The watch then keeps the version before, which the planner continues with."""
    found = json.loads(written()) | {"status": {"phase": "Paused"}}
    with pytest.raises(ValueError, match="phase"):
        decode_job(json.dumps(found).encode())
