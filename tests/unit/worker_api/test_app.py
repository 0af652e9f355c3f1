import json
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from support.extender_objects import Stores, asks, controller, job, stranger, window, worker
from tranche.auth.pod_token import TRUSTED_SECONDS, TokenReviewer
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiError
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkGrant, ChunkRequest, Report, Timings
from tranche.planner_api.receiver import PlannerReceiver
from tranche.worker_api.app import BURST, LARGEST_REPORT, create_report_app

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
URL = "/v1/jobs/ns/cats/progress"
BODY: dict[str, Any] = {"attempt": 7, "applied": {"0": 12}, "durable": {"0": 10}}


class Reviews:
    """An API server that knows tokens by the pods that they are bound to: ``namespace/pod/uid``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fault: ApiError | None = None
        self.audience = "tranche.dev"

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        assert (method, path) == ("POST", PATH)
        self.asked.append(body["spec"]["token"])
        if self.fault is not None:
            raise self.fault
        namespace, *rest = body["spec"]["token"].split("/")
        if self.audience not in body["spec"]["audiences"] or not rest:
            return {"status": {"authenticated": False, "error": "invalid"}}
        extra = {f"authentication.kubernetes.io/pod-{k}": [v] for k, v in zip(("name", "uid"), rest, strict=False)}
        user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": [self.audience], "user": user}}


class Sink:
    def __init__(self) -> None:
        self.leading = True
        self.over = False
        self.taken: list[Report] = []
        self.asked: list[ChunkRequest] = []
        self.given: ChunkGrant | None = ChunkGrant((5,), 9, {5: 20.0})
        self.slow = False

    def take(self, report: Report) -> bool:
        if not self.over:
            self.taken.append(report)
        return not self.over

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        self.asked.append(request)
        if self.slow:
            raise TimeoutError
        return self.given


class Running:
    """The application; a job ``cats`` whose parameter server is attempt 7."""

    def __init__(self) -> None:
        self.stores, self.reviews, self.sink, self.metrics = Stores(), Reviews(), Sink(), Metrics()
        self.now = 0.0
        reviewer = TokenReviewer(self.reviews, lambda: self.now)
        stores, sink = self.stores, self.sink
        app = create_report_app(
            stores.pods.store, stores.jobs.store, PlannerReceiver(sink, sink), reviewer, self.metrics, lambda: self.now
        )
        self.client = TestClient(app)
        self.stores.add_job("cats", window(0, 8, "n1"), servers=[window(0, 7, "n2")])
        self.stores.add_pod(worker("cats", 0, 7, "n2", role="ps", uid="u7"))
        self.stores.add_pod(worker("cats", 0, 8, "n1", uid="u8"))

    def post(self, body: Any = BODY, token: str | None = "ns/cats-ps-0-7/u7", url: str = URL) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.post(url, content=content, headers=headers)
        if answer.status_code == 204:
            return 204, ""
        body = answer.json()
        assert set(body) == {"error"}
        assert "\n" not in body["error"]
        return answer.status_code, body["error"]


def test_a_report_of_the_jobs_own_pod_is_taken() -> None:
    app = Running()
    body = {**BODY, "batchSeconds": 0.5, "fetchSeconds": 0.1, "computeSeconds": 0.4, "later": "is ignored"}
    assert app.post(body) == (204, "")
    assert app.sink.taken == [Report("ns/cats", 7, {0: 12}, {0: 10}, Timings(0.5, 0.1, 0.4), "uid-cats")]
    assert 'tranche_reports_total{result="accepted"} 1.0' in app.metrics.render().decode()


@pytest.mark.parametrize(
    ("method", "url", "status", "reason"),
    [("GET", URL, 405, "Method Not Allowed"), ("POST", "/v1/jobs/ns/cats/progres", 404, "Not Found")],
)
def test_unknown_path_or_method_is_named_in_the_error(method: str, url: str, status: int, reason: str) -> None:
    answer = Running().client.request(method, url)
    assert (answer.status_code, answer.json()) == (status, {"error": f"{method} {url}: {reason}", "detail": reason})


@pytest.mark.parametrize("token", [None, "", "nonsense", "ns/cats-ps-0-7", "x" * 20_000])
def test_without_a_token_that_is_bound_to_a_pod_it_is_401(token: str | None) -> None:
    app = Running()
    assert app.post(token=token)[0] == 401
    assert app.sink.taken == []


def test_a_token_of_another_audience_is_401() -> None:
    app = Running()
    app.reviews.audience = "https://kubernetes.default.svc"
    assert app.post()[0] == 401


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("ns/web/u1", "belongs to no TrainingJob"),
        ("ns/dogs-worker-0-1/u9", "belongs to TrainingJob ns/dogs"),
        ("ns/cats-worker-0-8/u8", "parameter server 0 reports"),
        ("ns/cats-ps-1-9/u10", "parameter server 0 reports"),
        ("ns/liar/u11", "belongs to no TrainingJob"),
        ("ns/cats-ps-0-5/u5", "has ended"),
    ],
)
def test_a_pod_that_does_not_report_for_the_job_is_403(token: str, reason: str) -> None:
    app = Running()
    app.stores.add_pod(stranger("web", uid="u1"))
    app.stores.add_pod(worker("dogs", 0, 1, uid="u9"))
    app.stores.add_pod(worker("cats", 1, 9, role="ps", uid="u10"))
    lying = worker("cats", 0, 7, role="ps", uid="u11")
    metadata = msgspec.structs.replace(lying.metadata, name="liar")
    app.stores.add_pod(msgspec.structs.replace(lying, metadata=metadata))
    app.stores.add_pod(worker("cats", 0, 5, role="ps", uid="u5", status={"phase": "Failed"}))
    status, error = app.post(token=token)
    assert (status, reason in error) == (403, True), error
    assert app.sink.taken == []


@pytest.mark.parametrize(
    ("token", "name"), [("ns/cats-ps-0-7/new", "cats-ps-0-7"), ("ns/cats-ps-0-9/new", "cats-ps-0-9")]
)
def test_pod_that_the_watch_does_not_show_yet_may_report_again(token: str, name: str) -> None:
    """A worker gives up its last report after a 403, and the watch may lag by seconds or minutes."""
    app = Running()
    body = {**BODY, "attempt": int(name[-1])}
    assert app.post(body, token=token) == (503, f"pod {name} is not known yet: retry")
    app.stores.add_pod(worker("cats", 0, int(name[-1]), role="ps", uid="new"))
    assert app.post(body, token=token)[0] == 204


@pytest.mark.parametrize(
    "owners", [[], [controller("uid-of-an-earlier-cats")], [controller("uid-cats") | {"controller": False}]]
)
def test_report_of_a_pod_of_another_owner_is_403(owners: list[dict[str, Any]]) -> None:
    app = Running()
    app.stores.add_pod(worker("cats", 0, 7, "n2", role="ps", uid="u7", ownerReferences=owners))
    status, reason = app.post()
    assert (status, app.sink.taken) == (403, [])
    assert "not controlled by TrainingJob ns/cats" in reason


def test_rank_0_reports_for_gang_and_each_worker_without_servers() -> None:
    app = Running()
    for name, data in (("gang", None), ("free", {"chunks": 4})):
        spec = {"workers": {"maxReplicas": 4, "template": {"spec": asks(1)}}, "data": data}
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
        made = TrainingJob.model_validate({"metadata": metadata, "spec": spec})
        app.stores.jobs.put(made.key, made)
        for index in (0, 1):
            app.stores.add_pod(worker(name, index, 7, uid=f"u-{name}-{index}"))

    def status(name: str, index: int) -> int:
        return app.post(token=f"ns/{name}-worker-{index}-7/u-{name}-{index}", url=f"/v1/jobs/ns/{name}/progress")[0]

    assert [status("gang", 0), status("gang", 1), status("free", 0), status("free", 1)] == [204, 403, 204, 204]


def test_a_job_that_is_gone_is_404() -> None:
    app = Running()
    app.stores.jobs.put("ns/cats", None)
    assert app.post() == (404, "TrainingJob ns/cats does not exist")


def test_a_stale_attempt_is_409() -> None:
    app = Running()
    assert app.post({**BODY, "attempt": 6})[0] == 409
    app.sink.over = True
    assert app.post() == (409, "attempt 7 has ended: exit")


def test_report_body_over_limit_is_413_with_or_without_length() -> None:
    app = Running()
    assert app.post(b" " * (LARGEST_REPORT + 1))[0] == 413
    headers = {"Authorization": "Bearer ns/cats-ps-0-7/u7"}
    pieces = iter([b" " * LARGEST_REPORT, b" "])
    assert app.client.post(URL, content=pieces, headers=headers).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", {}, {"attempt": "7"}, {"attempt": 7, "applied": [1]},
        {"attempt": 7, "applied": {"x": 1}}, {"attempt": 7, "applied": {"-1": 1}},
        {"attempt": 7, "applied": {"2000": 1}},
        {"attempt": 7, "applied": {"0": -1}}, b'{"attempt": 7, "durable": {"0": 1e999}}',
        {"attempt": 7, "batchSeconds": -1}, b"\xff", b"[" * 100_000,
        {"attempt": 7, "applied": {str(n): 1 for n in range(2001)}},
        {"attempt": 10**40}, {"attempt": 7, "fence": 2**63}, {"attempt": 7, "fence": -1},
    ],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_422(body: Any) -> None:
    app = Running()
    status, error = app.post(body)
    assert (status, error.startswith("request body: ")) == (422, True)
    assert app.sink.taken == []


def test_report_without_a_leader_is_503() -> None:
    app = Running()
    app.sink.leading = False
    assert app.post()[0] == 503
    assert app.sink.taken == []


def test_report_without_api_server_is_503_and_retried_review() -> None:
    app = Running()
    app.reviews.fault = ApiError(500, "InternalError", "etcd")
    assert app.post() == (503, "the token cannot be reviewed now: InternalError")
    app.reviews.fault = None
    assert app.post()[0] == 204


def test_too_frequent_reports_are_429_for_that_pod_only() -> None:
    app = Running()
    assert [app.post()[0] for _ in range(BURST + 1)] == [204] * BURST + [429]
    dogs = TrainingJob.model_validate(job("dogs", servers=[window(0, 7, "n2")]).model_dump(by_alias=True))
    app.stores.jobs.put("ns/dogs", dogs)
    app.stores.add_pod(worker("dogs", 0, 7, role="ps", uid="u12"))
    assert app.post(token="ns/dogs-ps-0-7/u12", url="/v1/jobs/ns/dogs/progress")[0] == 204
    app.now += 1.0
    assert [app.post()[0] for _ in range(2)] == [204, 429]


def test_token_review_is_cached_and_pod_is_checked_each_time() -> None:
    app = Running()
    assert [app.post()[0] for _ in range(3)] == [204] * 3
    assert len(app.reviews.asked) == 1
    app.now += TRUSTED_SECONDS
    assert app.post()[0] == 204
    assert len(app.reviews.asked) == 2
    app.stores.pods.put("ns/cats-ps-0-7", None)
    assert app.post()[0] == 503


NEXT = "/v1/jobs/ns/free/next"
ASKS: dict[str, Any] = {"attempt": 7, "fence": 8, "durable": {"0": 10}}


def chunked() -> Running:
    """With a job ``free`` of four chunks, of which attempt 7 is a worker."""
    app = Running()
    metadata = {"name": "free", "namespace": "ns", "uid": "uid-free"}
    spec = {"workers": {"maxReplicas": 4, "template": {"spec": asks(1)}}, "data": {"chunks": 4}}
    app.stores.jobs.put("ns/free", TrainingJob.model_validate({"metadata": metadata, "spec": spec}))
    app.stores.add_pod(worker("free", 0, 7, uid="u-free"))
    return app


def ask(app: Running, body: Any = ASKS, token: str = "ns/free-worker-0-7/u-free", url: str = NEXT) -> tuple[int, Any]:
    answer = app.client.post(url, content=json.dumps(body).encode(), headers={"Authorization": f"Bearer {token}"})
    return answer.status_code, answer.json()


def test_chunk_request_returns_chunks_fence_and_resume() -> None:
    app = chunked()
    assert ask(app) == (200, {"chunks": [5], "fence": 9, "resume": {"5": 20.0}})
    assert app.sink.asked == [ChunkRequest("ns/free", 7, 8, {0: 10}, "uid-free")]
    app.sink.given = ChunkGrant()
    assert ask(app, {"attempt": 7}) == (200, {"chunks": [], "fence": 0, "resume": {}})
    assert app.sink.asked[1].fence == 7, "of a pod that says nothing else it is its attempt"
    metrics = app.metrics.render().decode()
    assert 'tranche_chunk_requests_total{result="continued"} 1.0' in metrics
    assert 'tranche_chunk_requests_total{result="exit"} 1.0' in metrics


def test_unauthorized_or_late_chunk_request_is_refused() -> None:
    app = chunked()
    assert ask(app, token="nonsense")[0] == 401
    assert ask(app, token="ns/cats-ps-0-7/u7", url="/v1/jobs/ns/cats/next")[0] == 403
    assert ask(app, url="/v1/jobs/ns/cats/next")[0] == 403
    assert ask(app, {**ASKS, "attempt": 6})[0] == 409
    assert ask(app, {**ASKS, "durable": {"x": 1}})[0] == 422
    assert app.sink.asked == []
    app.sink.given = None
    assert ask(app) == (409, {"error": "attempt 7 has ended: exit"})
    app.sink.slow = True
    assert ask(app)[0] == 503
    app.sink.leading = False
    assert ask(app)[0] == 503


def test_one_pod_that_asks_too_often_is_429() -> None:
    app = chunked()
    assert [ask(app)[0] for _ in range(BURST + 1)] == [200] * BURST + [429]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
NUMBERS = st.integers() | st.floats() | st.sampled_from(["0", 10**400, -0.0])
LIKE_OURS = st.fixed_dictionaries(
    {"attempt": NUMBERS | st.just(7)},
    optional={
        "applied": st.dictionaries(st.text(max_size=3) | st.integers().map(str), NUMBERS, max_size=3),
        "durable": st.dictionaries(st.integers(0, 3).map(str), NUMBERS, max_size=3),
        "batchSeconds": NUMBERS,
    },
)
FUZZED = Running()


@settings(max_examples=300)
@given(body=ANY_JSON | LIKE_OURS | st.binary(max_size=50), token=st.sampled_from(["ns/cats-ps-0-7/u7", "a/b/c", "a"]))
def test_no_body_makes_it_fail(body: Any, token: str) -> None:
    FUZZED.now += 10.0
    FUZZED.sink.taken.clear()
    status, _ = FUZZED.post(body, token)
    assert status in (204, 401, 403, 409, 422, 503)
    assert (status == 204) == bool(FUZZED.sink.taken)


@settings(max_examples=100)
@given(header=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_no_header_makes_it_fail(header: str) -> None:
    FUZZED.now += 10.0
    answer = FUZZED.client.post(URL, content=b"{}", headers={"Authorization": header})
    assert answer.status_code in (401, 403, 503)


def test_gang_with_chief_accepts_reports_of_the_chief_only() -> None:
    app = Running()
    app.stores.add_job(
        "cats", window(0, 8, "n1"), servers=[window(0, 7, "n2")], chief={**window(0, 9, "n1"), "chunks": []}
    )
    app.stores.add_pod(worker("cats", 0, 9, "n1", role="chief", uid="u9"))
    assert app.post({**BODY, "attempt": 9}, token="ns/cats-chief-0-9/u9") == (204, "")
    assert [report.attempt for report in app.sink.taken] == [9]
    assert app.post() == (403, "only the chief reports progress for this job")


def test_a_report_is_answered_with_the_shares_of_the_workers() -> None:
    app = Running()
    communication = {"bandwidthShares": "equal", "serverBandwidth": "8M"}
    spec = {"data": {"chunks": 2}, "model": {"gradientSize": "1M"}, "communication": communication}
    app.stores.add_job("cats", {**window(0, 8, "n1"), "chunks": [0]}, servers=[window(0, 7, "n2")], spec=spec)
    body = {"attempt": 7, "iterations": {"0": [[1, 0.5, 0]]}}
    answer = app.client.post(URL, json=body, headers={"Authorization": "Bearer ns/cats-ps-0-7/u7"})
    assert (answer.status_code, answer.json()) == (200, {"workers": {"0": {"bitsPerSecond": 8e6}}})


@pytest.mark.parametrize(
    "iterations", [{"0": [[1, -1, 0]]}, {"0": [[1, 1e300, 0]]}, {"0": [[1e-300, 1, 0]]}, {"0": [[1, 1, 1]] * 65}]
)
def test_iterations_out_of_range_are_422(iterations: dict[str, Any]) -> None:
    assert Running().post({**BODY, "iterations": iterations})[0] == 422
