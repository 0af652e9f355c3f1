"""Paths of requests to the API server, and messages of its errors."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.operator_objects import training_job
from tranche.client import ClusterError, NoSuchJob, api_session
from tranche.client.api_session import Session, job_path
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


class Answers:
    """API server with one answer to each request."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    async def get(self, path: str, **params: str | int) -> bytes:
        return json.dumps(self._answer).encode()


def written(name: str, scope: str) -> dict[str, Any]:
    """Return a job as JSON, with this scope of its checkpoint."""
    found: dict[str, Any] = training_job().model_dump(mode="json", by_alias=True)
    spec = found["spec"] | {"checkpoint": {"scope": scope}}
    return found | {"metadata": found["metadata"] | {"name": name}, "spec": spec}


def test_job_of_another_release_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """A field of another release of the CRD may have a value that this one does not know."""
    items = [written("cats", "Cluster"), written("dogs", "Planet")]
    session = Session(Answers({"metadata": {}, "items": items}))  # type: ignore[arg-type]
    assert [job.metadata.name for job in asyncio.run(session.jobs("lab"))] == ["cats"]
    (line,) = caplog.messages
    assert line.startswith("TrainingJob dogs in namespace lab cannot be read and is left out: spec.checkpoint.scope: ")


class Reopened:
    """API server whose watch ends at once, and where the job is created again before the next one."""

    def __init__(self) -> None:
        self._uids = iter(("first", "second"))

    async def get(self, path: str, **params: str | int) -> bytes:
        uid = next(self._uids)
        job = training_job(uid=uid, status={"phase": "Running" if uid == "first" else "Succeeded"})
        return job.model_dump_json(by_alias=True).encode()

    @asynccontextmanager
    async def stream(self, path: str, params: dict[str, Any]) -> AsyncIterator[AsyncIterator[bytes]]:
        async def nothing() -> AsyncIterator[bytes]:
            for line in list[bytes]():
                yield line

        yield nothing()


def test_wait_ends_if_the_job_was_replaced_between_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_session, "REOPEN_SECONDS", 0.0)
    with pytest.raises(NoSuchJob):
        asyncio.run(Session(Reopened()).wait("lab", "cats"))  # type: ignore[arg-type]


def test_job_of_another_release_is_an_error_of_one_line() -> None:
    session = Session(Answers(written("dogs", "Planet")))  # type: ignore[arg-type]
    with pytest.raises(
        ClusterError, match=r"^TrainingJob dogs in namespace lab cannot be read: spec\.checkpoint\.scope: "
    ):
        asyncio.run(session.job("lab", "dogs"))
