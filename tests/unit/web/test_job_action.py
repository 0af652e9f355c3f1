from pathlib import Path
from typing import Any

import pytest

from support.page_visitor import PEOPLE, Visited
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiError
from tranche.web.job_action import ACTIONS_BURST

JOBS = "/apis/tranche.dev/v1alpha1/namespaces/ns/trainingjobs/cats"
PATH = "jobs/ns/cats/actions"
SUSPEND = {"action": "suspend", "uid": "uid-cats"}


def acting() -> Visited:
    app = Visited(actions=True)
    app.stores.add_job("cats", phase="Running")
    return app


@pytest.mark.parametrize(
    ("action", "spec"),
    [("suspend", {"suspend": True}), ("resume", {"suspend": False}), ("weight", {"weight": 2.5})],
)
def test_an_action_patches_its_one_field_of_this_very_job(action: str, spec: dict[str, Any]) -> None:
    app = acting()
    body = {"action": action, "uid": "uid-cats", **({"weight": 2.5} if action == "weight" else {})}
    assert app.send(PATH, body).status_code == 200
    assert app.api.written == [("PATCH", JOBS, {"metadata": {"uid": "uid-cats"}, "spec": spec})]


def test_who_may_patch_may_not_delete() -> None:
    app = acting()
    response = app.send(PATH, {"action": "delete", "uid": "uid-cats"})
    assert (response.status_code, app.api.written) == (403, [])
    assert response.json() == {"error": "eva is not allowed to delete trainingjobs.tranche.dev in namespace ns (RBAC)"}


@pytest.mark.parametrize("who", ["ann", "bob", "outsider"])
def test_who_may_only_read_cannot_act(who: str) -> None:
    app = acting()
    assert (app.send(PATH, SUSPEND, who).status_code, app.api.written) == (403, [])


def test_a_right_that_was_removed_a_moment_ago_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    app = acting()
    assert app.told("jobs/ns/cats", "eva")["actions"] == ["suspend", "resume", "weight"]
    monkeypatch.setitem(PEOPLE, "eva", {"get trainingjobs ns"})
    assert app.send(PATH, SUSPEND).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Tranche-Request": ""}, 403),
        ({"Tranche-Request": "other"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "http://proxy.example", "X-Forwarded-Host": "proxy.example"}, 200),
        ({"Origin": "http://proxy.example", "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_requests_that_another_site_could_cause_are_refused(headers: dict[str, str], status: int) -> None:
    app = acting()
    assert app.send(PATH, SUSPEND, **headers).status_code == status
    assert bool(app.api.written) == (status == 200)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"action": "scale", "uid": "u"}, 400),
        ({"action": "suspend"}, 400),
        ({"action": "weight", "uid": "u"}, 400),
        ({"action": "suspend", "uid": "u", "spec": {}}, 400),
        ({"action": "suspend", "uid": "u" * 5000}, 413),
    ],
)
def test_bodies_that_are_no_action_are_refused(body: Any, status: int) -> None:
    app = acting()
    assert (app.send(PATH, body).status_code, app.api.written) == (status, [])


def test_words_of_the_api_server_reach_the_user() -> None:
    app = acting()
    app.api.rejection = ApiError(422, "Invalid", "spec.weight: Invalid value: should be greater than 0")
    response = app.send(PATH, {"action": "weight", "uid": "uid-cats", "weight": 0})
    assert (response.status_code, response.json()["error"]) == (422, app.api.rejection.message)
    app.api.rejection = ApiError(401, "Unauthorized", "the account of the page")
    assert app.send(PATH, SUSPEND).status_code == 502


def test_an_unknown_job_is_not_written() -> None:
    app = Visited(actions=True)
    assert (app.send(PATH, SUSPEND).status_code, app.api.written) == (404, [])


def test_actions_of_one_user_are_limited_in_rate() -> None:
    app = acting()
    statuses = [app.send(PATH, SUSPEND).status_code for _ in range(ACTIONS_BURST + 1)]
    assert statuses == [200] * ACTIONS_BURST + [429]
    app.now += 1.0
    assert app.send(PATH, SUSPEND).status_code == 200


def test_without_the_option_there_are_no_actions() -> None:
    app = Visited()
    app.stores.add_job("cats", phase="Running")
    assert app.send(PATH, SUSPEND).status_code == 404
    assert app.told("jobs/ns/cats", "eva")["actions"] == []


def test_admission_policy_covers_every_field_of_the_spec() -> None:
    policy = (Path(__file__).parents[3] / "manifests/page-policy.yaml").read_text()
    spec: Any = TrainingJob.model_fields["spec"].annotation
    names = {field.alias or name for name, field in spec.model_fields.items()} - {"suspend", "weight"}
    assert [name for name in names if f"object.spec.?{name} == oldObject.spec.?{name}" not in policy] == []
