"""Paths of requests to the API server."""

import pytest

from tranche.client import NoSuchJob
from tranche.client.api_session import job_path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "no TrainingJob '' in namespace lab"),
        ("tj/first", "no TrainingJob tj/first in namespace lab: give the name alone, without its kind or namespace"),
    ],
)
def test_name_that_no_job_can_have_is_no_path(name: str, says: str) -> None:
    with pytest.raises(NoSuchJob) as raised:
        job_path("lab", name)
    assert str(raised.value) == says
