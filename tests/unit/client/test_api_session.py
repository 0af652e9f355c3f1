"""Paths of requests to the API server, and messages of its errors."""

import pytest

from tranche.client import NoSuchJob
from tranche.client.api_session import job_path
from tranche.client.errors import refusal
from tranche.kube.client.errors import Unreachable


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


def test_missing_configuration_names_what_to_set() -> None:
    error = refusal("list TrainingJobs", Unreachable("NoConfiguration", "Invalid kube-config file.\nNone found."))
    words = "Invalid kube-config file. None found: use --kubeconfig or --context, or set KUBECONFIG"
    assert str(error) == f"no cluster is configured: {words}"
