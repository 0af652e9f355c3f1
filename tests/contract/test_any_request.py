"""Every route answers any request that schemathesis draws, and never with an internal error."""

import json
import re
from math import inf
from typing import Any

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st
from starlette.routing import Route

from support.extender_objects import Stores, stranger, window, worker
from support.extender_requests import document, report_document, with_token
from support.structural_objects import FUZZ, SEED
from tranche.auth.pod_token import TokenReviewer
from tranche.extender.app import create_app
from tranche.extender.bind import add_bind
from tranche.kube.api.resources import MAX_CHUNKS
from tranche.kube.client.client import ApiError
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkGrant, ChunkRequest, Report
from tranche.planner_api.receiver import PlannerReceiver
from tranche.web.app import create_page_app
from tranche.worker_api.app import create_report_app

BOUNDED = settings(
    max_examples=60 * FUZZ,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class Api:
    """An API server that accepts a token of the form ``namespace/pod/uid``, and binds only pods that it knows."""

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


class Sink:
    leading = True

    def take(self, report: Report) -> bool:
        return report.attempt == 7


class Questions:
    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        if request.attempt == 7:
            raise TimeoutError
        return ChunkGrant((1,), request.fence + 1, {1: 0.5}) if request.durable else None


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
    PlannerReceiver(Sink(), Questions()),
    TokenReviewer(Api()),
    Metrics(),
    iter(range(10**9)).__next__,
)
PAGE = create_page_app(STORES.view, STORES, Api(), actions=True)  # type: ignore[arg-type]
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
    assert answer.status_code in (200, 304, 401, 403, 404, 405, 422), answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"][0]


AMOUNTS = (
    st.floats(0, 1e6) | st.integers(0, 100) | st.floats() | st.integers(-5, 10**30) | st.none() | st.text(max_size=2)
)
VECTORS = st.dictionaries(
    st.sampled_from(["0", "1", "1999", "2000", "-1", "x", "1.5", "4294967296"]), AMOUNTS, max_size=3
)
REPORT_BODIES = st.fixed_dictionaries(
    {"attempt": st.just(7) | st.integers() | AMOUNTS},
    optional={
        "applied": VECTORS | AMOUNTS,
        "durable": VECTORS,
        **dict.fromkeys(("batchSeconds", "fetchSeconds", "computeSeconds"), AMOUNTS),
    },
)


class Notes(Sink):
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.taken: list[Report] = []

    def take(self, report: Report) -> bool:
        self.taken.append(report)
        return True


def sensible(body: Any) -> bool:
    """Return whether a report can be true of the pod that sends it: an oracle beside the checks of the route."""
    if not isinstance(body, dict) or type(body.get("attempt")) is not int or body["attempt"] != 7:
        return False
    for vector in (body.get("applied", {}), body.get("durable", {})):
        if not isinstance(vector, dict) or not all(re.fullmatch("0|[1-9][0-9]{0,3}", chunk) for chunk in vector):
            return False
        if not all(is_amount(batches) and int(chunk) < MAX_CHUNKS for chunk, batches in vector.items()):
            return False
    times = (body.get(name) for name in ("batchSeconds", "fetchSeconds", "computeSeconds"))
    return all(seconds is None or is_amount(seconds) for seconds in times)


def is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < inf


@seed(SEED)
@settings(BOUNDED, max_examples=300 * FUZZ)
@given(REPORT_BODIES)
@example({"attempt": 7, "applied": {"0": 20, "1999": 3.5}, "durable": {"0": 15}, "batchSeconds": 2.5})
@example({"attempt": 7, "applied": {"0": -1}})
@example({"attempt": 7, "durable": {"0": -0.5}})
@example({"attempt": 7, "applied": {"-1": 1}})
@example({"attempt": 7, "durable": {"4294967296": 1}})
@example({"attempt": 7, "batchSeconds": -1.0})
@example({"attempt": 8})
def test_a_report_that_is_taken_makes_sense(body: Any) -> None:
    """A valid report is accepted from the pod that may send it."""
    sink = Notes()
    stores_ = (STORES.pods.store, STORES.jobs.store)
    app = create_report_app(*stores_, PlannerReceiver(sink, Questions()), TokenReviewer(Api()), Metrics())
    with TestClient(app) as client:
        headers = {"Authorization": "Bearer ns/cats-ps-0-7/u7"}
        answer = client.post("/v1/jobs/ns/cats/progress", content=json.dumps(body), headers=headers)
    assert answer.status_code in (204, 409, 422), answer.text
    assert bool(sink.taken) == (answer.status_code == 204) == sensible(body)
    for report in sink.taken:
        assert {**report.applied, **report.durable}.keys() <= set(range(MAX_CHUNKS))
        assert all(is_amount(batches) for batches in (*report.applied.values(), *report.durable.values()))
