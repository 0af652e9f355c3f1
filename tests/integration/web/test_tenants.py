"""Two teams on a real API server with RBAC: each sees its own jobs, and other users see nothing."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, System, full_stack
from tranche.auth.user_access import AUDIENCE

TEAMS = {"team-a": "ann", "team-b": "bob"}


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}) as made:
        kubectl = made.cluster.kubectl
        for team, name in TEAMS.items():
            kubectl("create", "namespace", team)
            kubectl("create", "serviceaccount", name, "-n", team)
            who = f"--serviceaccount={team}:{name}"
            kubectl("create", "rolebinding", "look", "--clusterrole=view", who, "-n", team)
        kubectl("create", "serviceaccount", "stranger")
        for team in TEAMS:
            submit(made, team, f"job-of-{team}")
        made.until("both are planned", lambda: len(windows(made)) == 2)
        yield made


def submit(system: System, namespace: str, name: str) -> None:
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    template = {
        "metadata": {"annotations": {"kwok.tranche.dev/batch-seconds": "100"}},
        "spec": {"containers": [{"name": "t", "image": "x", "resources": resources}]},
    }
    spec = {"data": {"chunks": 1, "batchesPerChunk": 50}, "workers": {"maxReplicas": 1, "template": template}}
    body = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
    status, answer = system.cluster.request("POST", f"{API}/namespaces/{namespace}/trainingjobs", body)
    assert status == 201, answer


def windows(system: System) -> list[Any]:
    return [job for job in system.read("jobs")["jobs"] if "1 worker" in job["explanation"]]


def token(system: System, namespace: str, name: str, audience: str = AUDIENCE) -> str:
    audiences = [f"--audience={audience}"] if audience else []
    return system.cluster.kubectl("create", "token", name, "-n", namespace, *audiences).strip()


def get(url: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def ask(system: System, path: str, bearer: str) -> tuple[int, Any]:
    return get(f"{system.stack.page_url}/v1/{path}", Authorization=f"Bearer {bearer}")


@pytest.mark.parametrize(("team", "other"), [("team-a", "team-b"), ("team-b", "team-a")])
def test_each_team_sees_its_own_namespace_only(system: System, team: str, other: str) -> None:
    mine = token(system, team, TEAMS[team])
    status, told = ask(system, "overview", mine)
    assert (status, told["namespaces"]) == (200, [team])
    status, told = ask(system, f"jobs/{team}/job-of-{team}/chunks", mine)
    assert (status, told["total"], told["note"]) == (200, 1, "")
    assert told["chunks"][0]["site"]
    assert ask(system, f"jobs/{other}/job-of-{other}/chunks", mine)[0] == 403
    for path in ("overview", "jobs", "timeline/cluster", f"jobs/{team}/job-of-{team}"):
        status, told = ask(system, path, mine)
        assert status == 200
        text = json.dumps(told)
        assert team in text
        assert other not in text
    for path in (f"jobs/{other}/job-of-{other}", f"jobs/{other}/job-of-{other}/events", f"jobs?namespace={other}"):
        assert ask(system, path, mine)[0] == 403
    assert ask(system, "sites", mine)[0] == 403
    assert ask(system, "overview", mine)[1]["sites"] == [{"name": "cluster"}]


def test_the_events_of_a_job_are_those_of_the_api_server(system: System) -> None:
    mine = token(system, "team-a", "ann")
    path = "jobs/team-a/job-of-team-a/events"
    told = system.until("its events", lambda: ask(system, path, mine)[1]["events"])
    listed = json.loads(system.cluster.kubectl("get", "events", "-n", "team-a", "-o", "json"))["items"]
    known = {event["message"] for event in listed if event["involvedObject"]["kind"] == "TrainingJob"}
    assert {event["message"] for event in told} <= known


def test_page_refuses_tokens_that_fail_token_review(system: System) -> None:
    assert ask(system, "overview", token(system, "team-a", "ann", audience=""))[0] == 200
    refused = {
        "none": get(f"{system.stack.page_url}/v1/overview")[0],
        "nonsense": ask(system, "overview", "nonsense")[0],
        "for reports": ask(system, "overview", token(system, "team-a", "ann", audience="tranche.dev"))[0],
        "for somebody else": ask(system, "overview", token(system, "team-a", "ann", audience="vault"))[0],
    }
    assert set(refused.values()) == {401}, refused


def test_page_token_is_refused_by_api_server(system: System) -> None:
    kubeconfig = ("--server", system.cluster.url, "--insecure-skip-tls-verify", "--kubeconfig=/dev/null")
    mine = token(system, "team-a", "ann")
    said = system.cluster.kubectl("get", "trainingjobs", "-n", "team-a", *kubeconfig, f"--token={mine}", check=False)
    assert "job-of-team-a" not in said


def test_an_account_without_rights_sees_nothing(system: System) -> None:
    status, told = ask(system, "overview", token(system, "default", "stranger"))
    assert (status, told["namespaces"], told["sites"], told["running"]["total"]) == (200, [], [], 0)
