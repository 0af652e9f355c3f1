"""Whatever is sent to any route, it is answered, and never with a fault of ours (drawn by schemathesis)."""

import json
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings
from starlette.routing import Route

from any_requests import document, report_document, with_token
from extender_objects import Stores, stranger, window, worker
from structural_objects import FUZZ, SEED
from tranche.extender.apps import create_app
from tranche.extender.binds import add_bind
from tranche.extender.reports import create_report_app
from tranche.extender.tokens import TokenReviewer
from tranche.kube.clients import ApiError
from tranche.kube.metrics import Metrics
from tranche.model import Allotment, ChunkRequest, Report
from tranche.web.apps import create_page_app

BOUNDED = settings(
    max_examples=60 * FUZZ,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class Api:
    """An API server that believes a token that reads ``namespace/pod/uid``, and binds only what it knows."""

    async def request(self, method: str, path: str, *, body: Any = None, timeout: float = 0.0) -> dict[str, Any]:
        if path.endswith("/tokenreviews"):
            namespace, *rest = body["spec"]["token"].split("/")
            extra = {f"authentication.kubernetes.io/pod-{k}": [v] for k, v in zip(("name", "uid"), rest, strict=False)}
            user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
            return {"status": {"authenticated": True, "audiences": body["spec"]["audiences"], "user": user}}
        if path.endswith("/subjectaccessreviews"):
            return {"status": {"allowed": True}}
        raise ApiError(409 if "cats" in path else 404, "Refused", path)

    async def get(self, path: str, **params: str | int) -> bytes:
        return b'{"items": [{"reason": "Pending", "count": 2}]}'


class Desk:
    leading = True

    def take(self, report: Report) -> bool:
        return report.attempt == 7


class Questions:
    async def ask(self, request: ChunkRequest) -> Allotment | None:
        if request.attempt == 7:
            raise TimeoutError
        return Allotment((1,), request.fence + 1, {1: 0.5}) if request.durable else None


def stores() -> Stores:
    """A job whose worker and parameter server run, a gang that waits, and a pod of others."""
    made = Stores(["n1", "n2"])
    made.add_site("edge-a", zone="a")
    made.add_job("cats", window(0, 8, "n1"), servers=[window(0, 7, "n2")])
    made.add_job("gang", window(0, 1, "n2", "n1"), planned=True)
    made.add_pod(worker("cats", 0, 7, "n2", role="ps", uid="u7"))
    made.add_pod(worker("cats", 0, 8, "n1", uid="u8"))
    made.add_pod(stranger("web", "n1", uid="u9"))
    return made


def loaded(app: Any, description: dict[str, Any]) -> Any:
    schema = schemathesis.openapi.from_dict(description)
    schema.app = app
    return schema


STORES = stores()
APP = create_app(STORES, Metrics(), list)
add_bind(APP, Api(), Metrics())  # type: ignore[arg-type]
REPORTS = create_report_app(
    STORES.pods.store,
    STORES.jobs.store,
    Desk(),
    Questions(),
    TokenReviewer(Api()),
    Metrics(),
    iter(range(10**9)).__next__,
)
PAGE = create_page_app(STORES.view, STORES, Api())  # type: ignore[arg-type]
schema = loaded(APP, document(APP.openapi()))
pages = loaded(PAGE, with_token(PAGE.openapi()))
reports = loaded(REPORTS, report_document())


def test_no_route_is_left_out() -> None:
    for app, described in ((APP, schema), (REPORTS, reports)):
        served = {route.path for route in app.routes if isinstance(route, Route)} - {"/openapi.json"}
        assert served
        assert served | set(app.openapi()["paths"]) == set(described)


@schema.parametrize()  # type: ignore[untyped-decorator]
@seed(SEED)
@BOUNDED
def test_any_request_is_answered(case: "schemathesis.Case[Any]") -> None:
    answer = case.call()
    assert answer.status_code in (200, 400, 404, 405, 413, 422), answer.text
    if answer.status_code >= 400 and answer.headers.get("content-type") == ["application/json"]:
        assert json.loads(answer.content)


@reports.parametrize()  # type: ignore[untyped-decorator]
@seed(SEED)
@BOUNDED
def test_any_report_is_answered(case: "schemathesis.Case[Any]") -> None:
    answer = case.call()
    assert answer.status_code in (200, 204, 400, 401, 403, 404, 405, 409, 422, 429, 503), answer.text


@pages.parametrize()  # type: ignore[untyped-decorator]
@seed(SEED)
@BOUNDED
def test_any_visit_is_answered(case: "schemathesis.Case[Any]") -> None:
    answer = case.call()
    assert answer.status_code in (200, 304, 401, 404, 405, 422), answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"][0]
