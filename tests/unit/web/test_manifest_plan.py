from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

from support.extender_objects import job
from support.page_visitor import Visited
from tranche.auth.review_cache import BusyError
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiError
from tranche.model import Delay, WhatIf
from tranche.planner_api.receiver import NotLeadingError
from tranche.web.app import Planning
from tranche.web.manifest_plan import BURST, read_job, read_manifest

MANIFEST = """
apiVersion: tranche.dev/v1alpha1
kind: TrainingJob
metadata: {name: new, namespace: ns}
spec:
  data: {chunks: 4, batchesPerChunk: 10}
  workers:
    maxReplicas: 2
    template: {spec: {containers: [{name: train, image: x}]}}
"""
DELAYS = (Delay("other/theirs", 100.0, 400.0), Delay("ns/mine", 100.0, 200.0))
PLAN = WhatIf(50.0, 500.0, "edge-a", "ns/mine", "waits for 1 GPU", 0, DELAYS, cut_short=False)


class Planner:
    """Planner with one answer, or an error."""

    def __init__(self, answer: WhatIf | Exception = PLAN) -> None:
        self.answer = answer
        self.asked: list[TrainingJob] = []

    async def what_if(self, body: bytes) -> WhatIf:
        self.asked.append(TrainingJob.model_validate_json(body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def asking(planner: Planner) -> Visited:
    app = Visited(planning=Planning(what_if=planner.what_if))
    app.stores.add_job("mine")
    app.stores.jobs.put("other/theirs", job("theirs", namespace="other"))
    return app


def test_the_answer_has_start_end_and_visible_delayed_jobs() -> None:
    planner = Planner()
    answer = asking(planner).send("what-if", {"manifest": MANIFEST}).json()
    assert (answer["name"], answer["plannedStart"], answer["plannedCompletion"]) == (
        "new",
        "1970-01-01T00:00:50Z",
        "1970-01-01T00:08:20Z",
    )
    (delay,) = answer["delays"]
    assert (delay["name"], delay["after"], answer["delayed"]) == ("mine", "1970-01-01T00:03:20Z", 1)
    assert (planner.asked[0].spec.data.chunks, planner.asked[0].spec.data.epochs) == (4, 1)  # type: ignore[union-attr]


def test_who_may_not_create_jobs_may_not_ask() -> None:
    planner = Planner()
    app = asking(planner)
    for who in ("ann", "bob", "outsider"):
        assert app.send("what-if", {"manifest": MANIFEST}, who).status_code == 403
    assert app.send("what-if", {"manifest": MANIFEST.replace("namespace: ns", "namespace: other")}).status_code == 403
    assert planner.asked == []


def test_another_site_cannot_ask() -> None:
    app = asking(Planner())
    assert app.send("what-if", {"manifest": MANIFEST}, **{"Tranche-Request": ""}).status_code == 403


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("batchesPerChunk", "batchPerChunk"), 'unknown field "spec.data.batchPerChunk"'),
        (("maxReplicas: 2", "maxReplicas: 0"), "spec.workers.maxReplicas: Input should be greater than or equal to 1"),
        (("kind: TrainingJob", "kind: Job"), "the manifest is a Job, not a TrainingJob"),
        (("name: new, ", ""), "metadata.name is missing"),
        (("chunks: 4", "chunks: ["), "not valid YAML"),
        (("metadata: {", "metadata: &a {other: *a, "), "the manifest must not have aliases"),
        (("chunks: 4", f"chunks: {'[' * 60}{']' * 60}"), "the manifest is nested more than 50 times"),
        (("spec:", "---\nspec:"), "the manifest contains 2 objects"),
        (("image: x", "image: x, null: 1"), "the manifest has no form in JSON"),
        (("image: x", f"image: 1{':1' * 2500}"), "Exceeds the limit"),
        (("image: x", f"image: 1{':1' * 2500}.5"), "not valid YAML: int too large"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused(change: tuple[str, str], message: str) -> None:
    response = asking(Planner()).send("what-if", {"manifest": MANIFEST.replace(*change, 1)})
    assert (response.status_code, message in response.json()["error"]) == (422, True), response.json()


def test_the_name_of_an_existing_job_is_refused() -> None:
    response = asking(Planner()).send("what-if", {"manifest": MANIFEST.replace("name: new", "name: mine")})
    assert (response.status_code, "already exists" in response.json()["error"]) == (409, True)


@pytest.mark.parametrize(
    ("error", "status"),
    [(BusyError(), 503), (NotLeadingError("no replica leads"), 503), (ValueError("use kubectl tranche whatif"), 422)],
)
def test_errors_of_the_planner_reach_the_user(error: Exception, status: int) -> None:
    assert asking(Planner(error)).send("what-if", {"manifest": MANIFEST}).status_code == status


@pytest.mark.parametrize(
    ("rejection", "status", "message"),
    [
        (ApiError(422, "Invalid", "spec.data.chunks:\n  too many"), 422, "spec.data.chunks: too many"),
        (ApiError(403, "Forbidden", "exceeded quota: jobs, used: count=1"), 422, "exceeded quota"),
        (ApiError(504, "Timeout", "webhook"), 503, "the API server does not check the job: Timeout"),
    ],
)
def test_job_that_the_api_server_rejects_is_not_planned(rejection: ApiError, status: int, message: str) -> None:
    planner = Planner()
    app = asking(planner)
    app.api.rejection = rejection
    response = app.send("what-if", {"manifest": MANIFEST})
    assert (response.status_code, message in response.json()["error"]) == (status, True), response.json()
    assert planner.asked == []


def test_dry_run_has_the_manifest_as_written() -> None:
    app = asking(Planner())
    assert app.send("what-if", {"manifest": MANIFEST}).json()["note"] == ""
    ((method, path, body),) = app.api.written
    assert (method, path) == ("POST", "/apis/tranche.dev/v1alpha1/namespaces/ns/trainingjobs")
    assert body["spec"]["data"] == {"chunks": 4, "batchesPerChunk": 10}
    assert (body["kind"], body["metadata"]) == ("TrainingJob", {"name": "new", "namespace": "ns"})


def test_without_the_right_to_dry_runs_a_note_says_so() -> None:
    app = asking(Planner())
    app.api.rejection = ApiError(403, "Forbidden", 'User "x" cannot create resource "trainingjobs" in API group')
    assert "not checked by the API server" in app.send("what-if", {"manifest": MANIFEST}).json()["note"]


def test_bodies_are_bounded_and_requests_limited() -> None:
    app = asking(Planner())
    assert app.send("what-if", {"manifest": "x" * 100_000}).status_code == 413
    statuses = [app.send("what-if", {"manifest": MANIFEST}).status_code for _ in range(BURST + 1)]
    assert statuses == [200] * BURST + [429]


def test_without_the_option_there_is_no_what_if() -> None:
    app = Visited()
    assert app.send("what-if", {"manifest": MANIFEST}).status_code == 404
    assert app.told("overview")["whatIf"] is False


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    VALUES, lambda tree: st.lists(tree, max_size=3) | st.dictionaries(st.text(max_size=5), tree, max_size=3)
)


@seed(1)
@settings(max_examples=300)
@given(st.text() | st.tuples(st.sampled_from(MANIFEST.split()), TREES | st.text(max_size=20)))
@example(("4,", "9" * 5000))
@example(("4,", "!!python/object:os.system"))
@example(("2", "2026-01-01"))
def test_any_manifest_is_read_or_refused(change: Any) -> None:
    text = change
    if not isinstance(change, str):
        word, value = change
        text = MANIFEST.replace(word, value if isinstance(value, str) else str(value), 1)
    with suppress(ValueError):
        assert read_job(read_manifest(text, "ns")).model_dump_json()


def test_a_manifest_without_a_namespace_takes_the_chosen_one() -> None:
    read: Any = read_job(read_manifest(MANIFEST.replace(", namespace: ns", ""), "lab"))
    assert read.key == "lab/new"
