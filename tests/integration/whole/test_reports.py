"""Progress reports on a real control plane: tokens bound to real pods, reviewed by the real API server.

kwok's nodes run no containers, so the test reports on the pods' behalf.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import System, full_stack

BATCHES = 50
LONG = 6000.0
"""Seconds of the chunk: between two looks at the job, its estimated progress grows by less than a batch."""
SERVER = {"containers": [{"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}) as made:
        yield made


@pytest.fixture
def cats(system: System) -> Iterator[System]:
    """With a job of one long chunk and a parameter server, both running."""
    system.submit("cats", seconds=LONG, parameterServers={"template": {"spec": SERVER}})
    system.until("server and worker run", lambda: len(running(system)) == 2)
    yield system
    system.delete("cats")


def running(system: System) -> dict[str, dict[str, Any]]:
    return {
        pod["metadata"]["labels"]["tranche.dev/role"]: pod
        for pod in system.pods("cats")
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def attempt(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["tranche.dev/attempt"])


def told(system: System) -> dict[str, Any]:
    return dict(system.read("jobs/default/cats")["trained"])


def test_reporting_pod_has_report_address_and_worker_does_not(cats: System) -> None:
    pods = running(cats)
    spec = pods["ps"]["spec"]
    environment = {v["name"]: v.get("value") for v in spec["containers"][0]["env"]}
    assert environment["TRANCHE_API"] == cats.stack.report_url
    sources = [v["projected"]["sources"] for v in spec["volumes"] if v["name"] == "tranche-token"]
    assert sources[0][0]["serviceAccountToken"]["audience"] == "tranche.dev"
    assert all(v["name"] != "TRANCHE_API" for v in pods["worker"]["spec"]["containers"][0]["env"])


def test_report_by_own_pod_counts_and_other_reports_are_refused(cats: System) -> None:
    pods = running(cats)
    assert cats.until("the job has been seen to train", lambda: told(cats)["estimated"])
    body = {"attempt": attempt(pods["ps"]), "applied": {"0": 20}, "durable": {"0": 15}, "batchSeconds": 2.5}
    assert cats.report_when_known("cats", cats.pod_token(pods["ps"]), body) == 204
    known = cats.until("the planner has counted it", lambda: told(cats)["reported"] and told(cats))
    assert known["batches"] == pytest.approx(20, abs=1)
    assert (known["of"], known["estimated"], known["timings"]["batch_seconds"]) == (BATCHES, False, 2.5)
    refused = {
        "no token": (cats.report("cats", "nonsense", body)[0], 401),
        "of another audience": (cats.report("cats", cats.pod_token(pods["ps"], "https://elsewhere"), body)[0], 401),
        "bound to no pod": (cats.report("cats", cats.pod_token(None), body)[0], 401),
        "of a worker": (cats.report("cats", cats.pod_token(pods["worker"]), body)[0], 403),
        "for another job": (cats.report("dogs", cats.pod_token(pods["ps"]), body)[0], 403),
        "of an older attempt": (cats.report("cats", cats.pod_token(pods["ps"]), {**body, "attempt": 0})[0], 409),
        "of another attempt": (cats.report("cats", cats.pod_token(pods["ps"]), {**body, "attempt": 99})[0], 409),
        "malformed": (cats.report("cats", cats.pod_token(pods["ps"]), {"attempt": "x"})[0], 422),
        "of less than nothing": (
            cats.report("cats", cats.pod_token(pods["ps"]), {**body, "applied": {"0": -1}})[0],
            422,
        ),
        "of no chunk": (cats.report("cats", cats.pod_token(pods["ps"]), {**body, "applied": {"-1": 1}})[0], 422),
        "before it began": (cats.report("cats", cats.pod_token(pods["ps"]), {**body, "batchSeconds": -1})[0], 422),
    }
    assert {what: got for what, (got, _) in refused.items()} == {what: due for what, (_, due) in refused.items()}


def reviews(system: System) -> float:
    """How many tokens the API server has been asked about."""
    lines = str(system.cluster.request("GET", "/metrics")[1]).splitlines()
    counters = [line for line in lines if line.startswith("apiserver_request_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in counters if 'resource="tokenreviews"' in line)


def lone_pod(system: System, like: dict[str, Any], number: int) -> str:
    """Create a pod with the labels and the owner of that one, as another attempt; return its token."""
    name = like["metadata"]["name"].rpartition("-")[0] + f"-{number}"
    labels = {**like["metadata"]["labels"], "tranche.dev/attempt": str(number)}
    path = "/api/v1/namespaces/default/pods"
    system.cluster.request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
    system.until("the name is free", lambda: system.cluster.request("GET", f"{path}/{name}")[0] == 404)
    spec = {"nodeName": like["spec"]["nodeName"], "containers": [{"name": "c", "image": "x"}]}
    metadata = {"name": name, "labels": labels, "ownerReferences": like["metadata"]["ownerReferences"]}
    status, made = system.cluster.request("POST", path, {"metadata": metadata, "spec": spec})
    assert status == 201, made
    return system.pod_token(made)


def test_token_is_reviewed_once_and_invalid_for_replaced_pod(cats: System) -> None:
    like, body = running(cats)["ps"], {"attempt": 99, "applied": {"0": 20}}
    cats.stack.kill("operator")  # it deletes pods that are not in the plan
    old = lone_pod(cats, like, 99)
    cats.until("it is known", lambda: cats.report("cats", old, body)[0] != 503)
    before = reviews(cats)
    assert {cats.report("cats", old, body)[0] for _ in range(3)} == {204}, "it is no older attempt"
    assert reviews(cats) == before
    new = lone_pod(cats, like, 99)
    cats.until("the other one is known", lambda: cats.report("cats", new, body)[0] != 503)
    assert cats.report("cats", old, body)[0] == 503
    assert reviews(cats) == before + 1, "of the other one's"
    path = f"/api/v1/namespaces/default/pods/{like['metadata']['name'].rpartition('-')[0]}-99"
    cats.cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
    cats.stack.start_operator()


def test_lost_server_resets_ledger_to_checkpoint_after_restart(cats: System) -> None:
    old = running(cats)["ps"]
    bearer = cats.pod_token(old)
    body = {"attempt": attempt(old), "applied": {"0": 30}, "durable": {"0": 25}}
    assert cats.report_when_known("cats", bearer, body) == 204
    saved = cats.until("the checkpoint is written", lambda: cats.status("cats")["progress"].get("checkpoint"))
    assert (saved["attempt"], saved["done"], batches(saved)) == (attempt(old), "", [(0, 25)])
    cats.stack.kill("scheduler")
    cats.stack.start_scheduler()
    path = f"/api/v1/namespaces/default/pods/{old['metadata']['name']}"
    cats.cluster.request("DELETE", path, {"gracePeriodSeconds": 0})

    def successor() -> dict[str, Any] | None:
        pod = running(cats).get("ps")
        return pod if pod is not None and attempt(pod) > attempt(old) else None

    new = cats.until("another server runs", successor)
    assert batches(cats.status("cats")["progress"]) == [(0, 25)]
    assert cats.report("cats", bearer, body)[0] in (401, 403, 503), "its pod is gone"
    found = {
        "attempt": attempt(new),
        "applied": {"0": 22},
        "durable": {"0": 22},
    }  # an older checkpoint than was reported
    assert cats.report_when_known("cats", cats.pod_token(new), found) == 204
    cats.until("the checkpoint wins", lambda: batches(cats.status("cats")["progress"]) == [(0, 22)])


def batches(ledger: dict[str, Any]) -> list[tuple[int, float]]:
    return [(one["chunk"], one["batches"]) for one in ledger["running"]]
