import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from support.extender_objects import Stores, controller, window, worker
from tranche.extender.app import LARGEST_BODY, create_app, create_metrics_app
from tranche.metrics.scheduler import Metrics

POD = {
    "metadata": {
        "name": "cats-worker-0-1",
        "namespace": "ns",
        "labels": {
            "tranche.dev/job": "cats",
            "tranche.dev/role": "worker",
            "tranche.dev/index": "0",
            "tranche.dev/attempt": "1",
        },
        "annotations": {"tranche.dev/plan": "1.1"},
        "ownerReferences": [controller("uid-cats")],
    },
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
}


class Running:
    """The application over stores that a test fills."""

    def __init__(self, *nodes: str, **options: Any) -> None:
        self.stores = Stores(nodes)
        self.metrics = Metrics()
        self.waiting: list[str] = []
        self.client = TestClient(create_app(self.stores, self.metrics, lambda: self.waiting, **options))

    def ask(self, verb: str, names: list[str], pod: dict[str, Any] = POD) -> Any:
        response = self.client.post(f"/{verb}", json={"Pod": pod, "Nodes": None, "NodeNames": names})
        assert response.status_code == 200, response.text
        return response.json()


def test_filter_answers_in_the_wire_format() -> None:
    app = Running("n1", "n2")
    app.stores.add_job("cats", window(0, 1, "n1"))
    assert app.ask("filter", ["n1", "n2"]) == {
        "NodeNames": ["n1"],
        "FailedAndUnresolvableNodes": {"n2": "planned for n1"},
        "Error": "",
    }


def test_prioritize_answers_a_bare_list() -> None:
    app = Running("n1", "n2")
    app.stores.add_job("cats", window(0, 1, "n1"))
    first, second = app.ask("prioritize", ["n1", "n2"])
    assert first == {"Host": "n1", "Score": 10}
    assert set(second) == {"Host", "Score"}


def test_preempt_answers_uids_by_node() -> None:
    app = Running("n1", "n2")
    app.stores.add_job("cats", window(0, 1, "n1"))
    victims = {name: {"Pods": [{"UID": f"u-{name}"}], "NumPDBViolations": 0} for name in ("n1", "n2", "absent")}
    response = app.client.post("/preempt", json={"Pod": POD, "NodeNameToMetaVictims": victims})
    assert response.json() == {"NodeNameToMetaVictims": {"n1": victims["n1"]}}


def test_preempt_weighs_training_by_the_clock_of_the_api_server() -> None:
    """The clock of this machine is behind, as if no worker had trained yet."""
    now = time.time() + 3600.0
    app = Running("n1", "n2", clock=lambda: now)
    for node, seconds in (("n1", 900.0), ("n2", 100.0)):
        began = datetime.fromtimestamp(now - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"containerStatuses": [{"name": "main", "state": {"running": {"startedAt": began}}}]}
        app.stores.add_job(f"on-{node}", window(0, 1, node), spec={"data": {"chunks": 4}, "parameterServers": None})
        app.stores.add_pod(worker(f"on-{node}", 0, 1, node, gpus=1, status=status, uid=f"u-{node}"))
    victims = {name: {"Pods": [{"UID": f"u-{name}"}], "NumPDBViolations": 0} for name in ("n1", "n2")}
    requests = {"nvidia.com/gpu": "1"}
    pod = {
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"containers": [{"resources": {"requests": requests}}]},
    }
    response = app.client.post("/preempt", json={"Pod": pod, "NodeNameToMetaVictims": victims})
    assert list(response.json()["NodeNameToMetaVictims"]) == ["n2"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_a_malformed_body_is_400_with_a_reason(verb: str) -> None:
    response = Running().client.post(f"/{verb}", content=b"{")
    assert response.status_code == 400
    assert "the body: " in response.json()["error"]


def test_verb_body_over_limit_is_413_with_or_without_length() -> None:
    app = Running()
    piece = b" " * (LARGEST_BODY // 4)
    assert app.client.post("/filter", content=piece * 4 + b" ").status_code == 413
    assert app.client.post("/filter", content=iter([piece] * 5)).status_code == 413
    assert app.client.post("/filter", content=iter([piece] * 4)).status_code == 400


def test_ready_says_what_it_waits_for() -> None:
    app = Running()
    assert app.client.get("/readyz").text == "ok\n"
    app.waiting = ["pods", "jobs"]
    response = app.client.get("/readyz")
    assert (response.status_code, response.text) == (503, "waiting for pods, jobs\n")
    assert app.client.get("/healthz").status_code == 200


def test_metrics_tell_of_requests_watches_and_jobs() -> None:
    app = Running("n1", "n2")
    app.stores.add_job("cats", window(0, 1, "n1"), phase="Running")
    app.stores.pods.stats.events = 5
    app.ask("filter", ["n1", "n2"])
    app.metrics.count_status_write("written")
    app.metrics.count_preemption("planned", 3.0)
    with app.metrics.time_plan():
        pass
    text = app.client.get("/metrics").text
    for line in (
        'tranche_extender_nodes_total{result="passed",verb="filter"} 1.0',
        'tranche_extender_nodes_total{result="rejected",verb="filter"} 1.0',
        'tranche_extender_request_seconds_count{verb="filter"} 1.0',
        'tranche_jobs{phase="Running"} 1.0',
        'tranche_jobs{phase="Failed"} 0.0',
        'tranche_watch_objects{kind="nodes"} 2.0',
        'tranche_watch_events_total{kind="pods"} 5.0',
        'tranche_watch_age_seconds{kind="pods"} 0.0',
        'tranche_watch_relists_total{kind="sites"} 0.0',
        'tranche_watch_errors_total{kind="jobs"} 0.0',
        'tranche_status_writes_total{result="written"} 1.0',
        'tranche_preemptions_total{reason="planned"} 1.0',
        "tranche_plan_seconds_count 1.0",
        'tranche_preempted_worker_seconds_bucket{le="4.0"} 1.0',
        'tranche_site_gpus{resource="nvidia.com/gpu",site="cluster"} ',
        "tranche_build_info{",
    ):
        assert line in text


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
TEXTS = st.text(max_size=10) | st.sampled_from(["0", "1", "cats", "worker", "ps", "1.1", "9.9", "1" * 5000])
LIKE_OURS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {
                "namespace": st.just("ns"),
                "labels": st.fixed_dictionaries(
                    {f"tranche.dev/{name}": TEXTS for name in ("job", "role", "index", "attempt")}
                ),
                "annotations": st.dictionaries(st.just("tranche.dev/plan"), TEXTS),
            }
        ),
        "spec": st.fixed_dictionaries({"overhead": st.dictionaries(st.sampled_from(["cpu", "memory"]), TEXTS)}),
    }
)
FUZZED = Running("n1", "n2")
FUZZED.stores.add_job("cats", window(0, 1, "n1", "n2"), window(1, 1, None), servers=[window(0, 1, "n2")])


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@given(pod=ANY_JSON | LIKE_OURS, names=ANY_JSON | st.lists(TEXTS, max_size=3), victims=ANY_JSON)
def test_no_json_makes_a_verb_fail(verb: str, pod: Any, names: Any, victims: Any) -> None:
    content = json.dumps({"Pod": pod, "NodeNames": names, "NodeNameToVictims": victims})
    assert FUZZED.client.post(f"/{verb}", content=content).status_code in (200, 400)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@given(content=st.binary(max_size=50) | ANY_JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_make_a_verb_fail(verb: str, content: bytes) -> None:
    assert FUZZED.client.post(f"/{verb}", content=content).status_code in (200, 400)


def test_metrics_app_serves_only_probes_and_metrics() -> None:
    waiting: list[str] = ["pods"]
    client = TestClient(create_metrics_app(Metrics(), lambda: waiting))
    assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 503]
    waiting.clear()
    assert client.get("/readyz").status_code == 200
    assert "tranche_build_info" in client.get("/metrics").text
    assert [client.get(path).status_code for path in ("/v1/jobs", "/openapi.json")] == [404, 404]
    assert client.post("/filter", json={}).status_code == 404
    assert client.get("/v1/jobs").json() == {"error": "GET /v1/jobs: Not Found", "detail": "Not Found"}


def test_method_that_a_verb_does_not_have_is_named() -> None:
    answer = FUZZED.client.get("/filter")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json() == {"error": "GET /filter: Method Not Allowed", "detail": "Method Not Allowed"}
