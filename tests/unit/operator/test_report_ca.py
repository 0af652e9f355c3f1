"""CA of the report API: where the operator reads it, and which pods it updates."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import Pod
from tranche.kube.client.client import ApiError, Unreachable
from tranche_operator.settings import ReportCa
from tranche_operator.watch import report_ca

OLD, NEW = "-----OLD", "-----NEW"


class Api:
    """A ConfigMap and the patches that were sent."""

    def __init__(self, *published: str) -> None:
        self.published = list(published)
        self.patched: list[tuple[str, Any]] = []
        self.done = asyncio.Event()

    async def request(self, method: str, path: str, *, body: Any = None, content_type: str = "") -> dict[str, Any]:
        if method == "PATCH":
            self.patched.append((path.rpartition("/")[2], body))
            if "gone" in path:
                raise ApiError(404, "NotFound", "gone")
            if "denied" in path:
                raise ApiError(403, "Forbidden", "a policy became stricter")
            if "unreachable" in path:
                raise Unreachable("Timeout", "no answer")
            return {}
        assert path == "/api/v1/namespaces/system/configmaps/tranche-reports-ca"
        if len(self.published) == 1:
            self.done.set()
            await asyncio.Event().wait()
        return {"data": {"ca.crt": self.published.pop(0)}}


def pod(name: str, pem: str | None) -> Pod:
    annotations = {"tranche.dev/report-ca": pem} if pem is not None else {}
    metadata = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, Pod)


def followed(*published: str, pods: list[Pod]) -> tuple[Api, ReportCa]:
    async def listed() -> AsyncIterator[Pod]:
        for one in pods:
            if one.metadata.name == "unreadable":
                raise msgspec.ValidationError("Expected `str`, got `int` - at `$.spec.nodeName`")
            yield one

    async def scenario() -> tuple[Api, ReportCa]:
        api, authority = Api(*published, ""), ReportCa()
        following = report_ca.follow(api, authority, "system", "tranche-reports-ca", listed)  # type: ignore[arg-type]
        task, done = asyncio.create_task(following), asyncio.create_task(api.done.wait())
        await asyncio.wait([task, done], return_when=asyncio.FIRST_COMPLETED)
        if not task.cancel():
            task.result()
        return api, authority

    waits = report_ca.CHECK_SECONDS, report_ca.FIRST_CHECK_SECONDS
    report_ca.CHECK_SECONDS = report_ca.FIRST_CHECK_SECONDS = 0.0
    try:
        return asyncio.run(scenario())
    finally:
        report_ca.CHECK_SECONDS, report_ca.FIRST_CHECK_SECONDS = waits


def test_certificates_are_read_once_they_are_published() -> None:
    assert followed("", NEW, pods=[])[1].pem == NEW


def test_pods_with_earlier_certificates_are_updated() -> None:
    pods = [pod("old", OLD), pod("gone", OLD), pod("new", NEW), pod("silent", None)]
    api, _ = followed(NEW, pods=pods)
    assert [name for name, _ in api.patched] == ["old", "gone"]
    assert api.patched[0][1] == {"metadata": {"uid": "uid-old", "annotations": {"tranche.dev/report-ca": NEW}}}


def test_pod_that_cannot_be_updated_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    pods = [pod("denied", OLD), pod("denied-too", OLD), pod("last", OLD)]
    api, _ = followed(NEW, NEW, pods=pods)
    assert [name for name, _ in api.patched] == 2 * ["denied", "denied-too", "last"]  # repeated at the next check
    assert "cannot be given to 2 pods, the first of them lab/denied: 403" in caplog.text


def test_unreachable_api_server_stops_the_update() -> None:
    api, _ = followed(NEW, pods=[pod("unreachable", OLD), pod("last", OLD)])
    assert [name for name, _ in api.patched] == ["unreachable"]


def test_list_with_an_unreadable_pod_is_read_again() -> None:
    api, _ = followed(NEW, NEW, pods=[pod("first", OLD), pod("unreadable", OLD)])
    assert [name for name, _ in api.patched] == ["first", "first"]


def test_unchanged_certificates_cause_no_request_for_pods() -> None:
    api, _ = followed(OLD, OLD, OLD, pods=[pod("old", "-----EVEN OLDER")])
    assert len(api.patched) == 1
