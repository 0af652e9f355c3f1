"""No visitor sees objects that RBAC does not let them read; without a token there is only the login."""

import re
from types import SimpleNamespace

import pytest

from support.extender_objects import window
from support.page_visitor import PEOPLE, Visited
from tranche.auth.user_access import AUDIENCE
from tranche.web.app import Planning

DATA = [
    "overview", "timeline/edge-a", "jobs", "sites", "jobs/ns/cats", "jobs/ns/cats/events", "jobs/ns/cats/chunks",
    "openapi.json",
]  # fmt: skip


@pytest.fixture
def app() -> Visited:
    """With a job of Ann's namespace and one of Bob's, on the same node."""
    made = Visited("n1")
    made.stores.add_job("cats", window(0, 1, "n1"), phase="Running")
    made.stores.add_job("secret", window(0, 1, "n1"), phase="Running", namespace="other")
    return made


def test_the_list_of_routes_here_is_whole(app: Visited) -> None:
    paths = {re.sub(r"\{(\w+)\}", r"\1", path) for path in app.app.openapi()["paths"]} | {"/v1/openapi.json"}
    assert paths == {f"/v1/{p}".replace("edge-a", "site").replace("ns/cats", "namespace/name") for p in DATA}


@pytest.mark.parametrize("route", DATA)
def test_without_a_good_token_there_is_nothing_but_a_refusal(app: Visited, route: str) -> None:
    for who in ("", "stranger", "x" * 20_000):
        response = app.ask(route, who)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert set(response.json()) == {"error"}
    assert app.http.get(f"/v1/{route}", headers={"Authorization": "Basic YWRtaW46"}).status_code == 401
    assert app.http.get(f"/v1/{route}?token=admin", headers={"Cookie": "token=admin"}).status_code == 401


@pytest.mark.parametrize("route", DATA)
def test_user_without_rights_sees_no_names(app: Visited, route: str) -> None:
    text = app.ask(route, "outsider").text
    assert "secret" not in text
    assert "n1" not in text
    if "cats" not in route:
        assert "cats" not in text


def test_everybody_sees_the_jobs_of_his_namespaces_only(app: Visited) -> None:
    for who, own, hidden in (("ann", "cats", "secret"), ("bob", "secret", "cats")):
        for route in ("overview", "jobs", "timeline/edge-a", "overview?limit=1", "jobs?limit=1"):
            text = app.ask(route, who).text
            assert own in text, (who, route)
            assert hidden not in text, (who, route)
    assert app.told("overview", "ann")["namespaces"] == ["ns"]
    assert [job["name"] for job in app.told("jobs")["jobs"]] == ["cats", "secret"]


def test_other_namespace_is_forbidden_whether_or_not_job_exists(app: Visited) -> None:
    for route in ("jobs/other/secret", "jobs/other/absent", "jobs/other/secret/events", "jobs?namespace=other",
                  "overview?namespace=other", "timeline/edge-a?namespace=other"):  # fmt: skip
        response = app.ask(route, "ann")
        assert response.status_code == 403, route
        assert "trainingjobs.tranche.dev in namespace other" in response.json()["error"]


def test_timeline_hides_expected_starts_of_jobs_of_others(app: Visited) -> None:
    place = SimpleNamespace(start=1.0, completion=2.0, site="edge-a", node="n1")
    planned = Visited("n1", planning=Planning(expected=lambda key: place))
    planned.stores.add_job("hidden", namespace="other")
    planned.stores.add_job("shown")
    lanes = planned.told("timeline/edge-a", "ann")["lanes"]
    assert [(lane["node"], [bar["job"] for bar in lane["bars"]]) for lane in lanes] == [("n1", ["shown"])]
    assert planned.told("timeline/edge-a", "outsider")["lanes"] == []


def test_a_find_or_a_page_does_not_tell_of_hidden_jobs(app: Visited) -> None:
    assert app.told("overview?find=secret", "ann")["running"]["total"] == 0
    assert app.told("overview", "ann")["running"]["total"] == 1


def test_user_without_site_rights_sees_own_windows_but_no_usage(app: Visited) -> None:
    assert app.ask("sites", "ann").status_code == 403
    assert app.told("overview", "ann")["sites"] == [{"name": "edge-a"}]
    lanes = app.told("timeline/edge-a", "ann")["lanes"]
    assert [(lane["node"], lane["gpus"], lane["usedGpus"]) for lane in lanes] == [("n1", None, None)]
    assert app.told("overview", "outsider")["sites"] == []


def test_events_need_the_right_to_list_events(app: Visited) -> None:
    event = {"type": "Normal", "reason": "Pending", "message": "waits", "lastTimestamp": "2026-01-01T00:00:00Z"}
    app.api.events = [event, {**event, "lastTimestamp": "2026-01-01T00:00:05Z", "message": "still", "count": 3}]
    answer = app.told("jobs/ns/cats/events", "ann")["events"]
    assert [(e["message"], e["count"]) for e in answer] == [("still", 3), ("waits", 1)]
    app.api.asked.clear()
    answer = app.told("jobs/other/secret/events", "bob")
    assert (answer["events"], "is not allowed to list events in namespace other" in answer["refused"]) == ([], True)
    assert not any("/events" in path for path in app.api.asked)


def test_token_is_accepted_in_header_that_service_proxy_forwards(app: Visited) -> None:
    assert app.ask("overview", "", **{"Tranche-Token": "ann"}).json()["user"] == "ann"


def test_token_for_the_api_server_is_accepted(app: Visited) -> None:
    app.api.audiences = ["https://kubernetes.default.svc"]
    app.api.request, audiences = _without_audiences(app)  # type: ignore[method-assign]
    assert app.told("overview", "ann")["user"] == "ann"
    assert audiences == [[AUDIENCE], None]


def test_access_answers_are_cached_for_a_minute(app: Visited) -> None:
    app.told("overview", "ann")
    before = len(app.api.asked)
    app.told("overview", "ann")
    app.told("jobs", "ann")
    assert app.api.asked[before:] == []
    app.now += 61
    app.told("overview", "ann")
    assert "tokenreviews" in app.api.asked[before:]
    assert "subjectaccessreviews" in app.api.asked[before:]
    PEOPLE["late"] = set()
    try:
        assert app.ask("jobs/ns/cats", "late").status_code == 403
        PEOPLE["late"] = PEOPLE["ann"]
        assert app.ask("jobs/ns/cats", "late").status_code == 403
        app.now += 61
        assert app.ask("jobs/ns/cats", "late").status_code == 200
    finally:
        del PEOPLE["late"]


def test_a_right_that_is_taken_away_ends_within_a_minute(app: Visited) -> None:
    assert app.ask("jobs/ns/cats", "ann").status_code == 200
    taken, PEOPLE["ann"] = PEOPLE["ann"], set()
    try:
        app.now += 61
        assert app.ask("jobs/ns/cats", "ann").status_code == 403
        assert "cats" not in app.ask("overview", "ann").text
    finally:
        PEOPLE["ann"] = taken


def test_unreachable_api_server_gives_503_with_retry_after(app: Visited) -> None:
    app.api.down = True
    response = app.ask("overview")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    app.api.down = False
    assert app.ask("overview").status_code == 200


def test_every_answer_carries_the_headers_that_keep_others_out(app: Visited) -> None:
    answers = [app.http.get("/"), app.http.get("/absent"), app.ask("overview"), app.ask("overview", ""),
               app.ask("overview?limit=x"), app.http.post("/v1/jobs"), app.http.get("/page.js")]  # fmt: skip
    assert [a.status_code for a in answers] == [200, 404, 200, 401, 422, 405, 200]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_nothing_can_be_changed(app: Visited) -> None:
    for route in DATA:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = app.http.request(method, f"/v1/{route}", headers={"Authorization": "Bearer admin"})
            assert answer.status_code == 405


def _without_audiences(app: Visited):  # type: ignore[no-untyped-def]
    """An API server that knows no token of our audience."""
    audiences: list[list[str] | None] = []
    original = app.api.request

    async def request(method: str, path: str, *, body: object = None) -> dict[str, object]:
        if path.endswith("tokenreviews"):
            audiences.append(body["spec"].get("audiences"))  # type: ignore[index]
        return await original(method, path, body=body)

    return request, audiences
