import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from support.extender_objects import job, stranger, window, worker
from support.page_visitor import Visited
from tranche.auth.user_access import Scope
from tranche.kube.api.resources import Progress, TrainingJob, TrainingJobStatus
from tranche.model import AttemptRecord, PlannedWindow, Timings
from tranche.model.attempt_record import pack
from tranche.planner.handlers.progress import TrainingProgress
from tranche.runtime.batching import PORTION
from tranche.web.app import Planning
from tranche.web.overview_index import MAX_ROWS, Board, Selection
from tranche.web.site_timeline import Timelines


def test_jobs_are_listed_a_page_at_a_time() -> None:
    app = Visited()
    for name in ("cats", "ants", "bees"):
        app.stores.add_job(name, window(0, 1, "n1"))
    first = app.told("jobs?limit=2")
    assert [job["name"] for job in first["jobs"]] == ["ants", "bees"]
    rest = app.told(f"jobs?limit=2&after={first['next']}")
    assert [job["name"] for job in rest["jobs"]] == ["cats"]
    assert rest["next"] is None


def test_jobs_are_chosen_by_namespace_and_phase() -> None:
    app = Visited()
    app.stores.add_job("cats", phase="Running")
    app.stores.add_job("dogs")
    assert [j["name"] for j in app.told("jobs?phase=Waiting")["jobs"]] == ["dogs"]
    assert app.told("jobs?namespace=other")["jobs"] == []


@pytest.mark.parametrize("path", ["jobs", "overview"])
def test_phase_that_does_not_exist_is_refused(path: str) -> None:
    app = Visited()
    assert app.ask(f"{path}?phase=Waiting").status_code == 200
    assert app.ask(f"{path}?phase=waiting").status_code == 422


def test_job_with_windows_is_starting_before_the_operator_says() -> None:
    app = Visited()
    app.stores.add_job("cats", window(0, 1, "n1"), phase="Waiting")
    app.stores.add_job("dogs", window(0, 2, "n1", state="Closing"), phase="Waiting")
    app.stores.add_job("eels", phase="Waiting")
    assert [job["phase"] for job in app.told("jobs")["jobs"]] == ["Starting", "Waiting", "Waiting"]
    assert (app.told("overview")["totals"]["running"], app.told("jobs/ns/cats")["phase"]) == (1, "Starting")


def test_bars_of_a_job_with_assumed_duration_are_marked() -> None:
    app = Visited("n1")
    note = "; its duration is unknown, and 1 h is assumed: set spec.estimatedDuration"
    for name, attempt, text in (("cats", 1, note), ("dogs", 2, "")):
        known = app.stores.add_job(name, window(0, attempt, "n1"), phase="Running")
        plan = known.status.plan.model_copy(update={"explanation": f"1 worker{text}"})  # type: ignore[union-attr]
        status = known.status.model_copy(update={"plan": plan})
        app.stores.jobs.put(f"ns/{name}", known.model_copy(update={"status": status}))
    (lane,) = app.told("timeline/edge-a")["lanes"]
    assert {bar["job"]: bar["assumed"] for bar in lane["bars"]} == {"cats": True, "dogs": False}


def test_job_detail_includes_its_plan() -> None:
    app = Visited()
    app.stores.add_job("cats", window(0, 1, "n1", "n2"), homes={"edge-a": "0-3"}, phase="Running")
    answer = app.told("jobs/ns/cats")
    assert (answer["phase"], answer["plan"]) == ("Running", "1.1")
    assert answer["homes"] == {"edge-a": "0-3"}
    assert (answer["weight"], answer["suspended"], answer["maxWorkers"], answer["gpus"]) == (1.0, False, 4, 1)
    assert answer["windows"] == [
        {
            "index": 0,
            "attempt": 1,
            "site": "edge-a",
            "node": "n1",
            "fallbacks": ["n2"],
            "chunks": [0],
            "state": "Open",
        }
    ]


def test_one_job_is_told_with_its_preemptors() -> None:
    app = Visited()
    closing = window(0, 2, "n1", state="Closing", preemptedBy="ns/dogs")
    known = app.stores.add_job("cats", closing, phase="Running")
    ended = {"index": 0, "attempt": 1, "node": "n1", "reason": "Preempted", "preemptedBy": "ns/dogs"}
    progress = Progress.model_validate({"attempts": [ended]})
    status = known.status.model_copy(update={"progress": progress})
    app.stores.jobs.put("ns/cats", known.model_copy(update={"status": status}))
    answer = app.told("jobs/ns/cats")
    assert [one["preemptedBy"] for one in (*answer["windows"], *answer["attempts"])] == ["ns/dogs"] * 2


def test_job_detail_has_all_kept_attempts_and_victims() -> None:
    app = Visited()
    known = app.stores.add_job("cats", phase="Waiting")
    cause: dict[str, Any] = {"preempted_by": "ns/dogs", "why": "which has less work left", "lost_seconds": 12.0}
    records = [
        AttemptRecord(0, n, "n1", "Preempted", 143, started=60.0 * n, ended=60.0 * n + 30, **cause) for n in range(9)
    ]
    records.append(AttemptRecord(0, 9, "n2", "Failed", 1, role="ps", why="OOMKilled", ended=999.0, log="a\nKilled"))
    progress = Progress.model_validate(
        {
            "history": [pack(one) for one in records],
            "attemptTotals": {"Preempted": 70, "Failed": 1},
            "victims": [{"job": "ns/ants", "workers": 2, "at": "2026-11-22T14:00:00Z"}],
            "preemptedWorkers": 5,
        }
    )
    status = known.status.model_copy(update={"progress": progress})
    app.stores.jobs.put("ns/cats", known.model_copy(update={"status": status}))
    answer = app.told("jobs/ns/cats")
    assert [one["attempt"] for one in answer["attempts"]] == list(range(10))
    assert answer["attempts"][1] == {
        "role": "worker",
        "index": 0,
        "attempt": 1,
        "node": "n1",
        "reason": "Preempted",
        "exitCode": 143,
        "preemptedBy": "ns/dogs",
        "why": "which has less work left",
        "start": "1970-01-01T00:01:00Z",
        "end": "1970-01-01T00:01:30Z",
        "lostSeconds": 12.0,
        "text": "preempted by ns/dogs, which has less work left; about 12 s of work lost",
    }
    last = answer["attempts"][-1]
    assert (last["role"], last["text"], last["log"]) == ("ps", "OOMKilled", ["a", "Killed"])
    assert (answer["attemptCount"], answer["attemptTotals"]) == (71, {"Preempted": 70, "Failed": 1})
    assert answer["victims"] == [{"job": "ns/ants", "workers": 2, "at": "2026-11-22T14:00:00Z"}]
    assert answer["preemptedWorkers"] == 5


def test_job_detail_includes_its_site_use() -> None:
    app = Visited()
    use(app, app.stores.add_job("cats", phase="Running"), {"site": "cloud", "gpuSeconds": 90, "chunks": 1})
    (used,) = app.told("jobs/ns/cats")["sites"]
    assert (used["site"], used["gpuSeconds"], used["chunks"], used["copiedBytes"]) == ("cloud", 90, 1, 0)


def test_job_detail_of_unplanned_job_has_empty_plan() -> None:
    app = Visited()
    app.stores.add_job("cats", planned=False)
    answer = app.told("jobs/ns/cats")
    assert (answer["phase"], answer["plan"], answer["windows"], answer["plannedStart"]) == ("Waiting", "", [], None)


def test_job_that_cannot_be_planned_says_why_in_lists() -> None:
    """A specification that cannot be read gets no plan, only the condition Planned."""
    app, reason = Visited(), "cannot be read: 'xxx' is not a duration such as 1h30m, 20s or 120ms"
    made = app.stores.add_job("cats", planned=False)
    planned = {"type": "Planned", "status": "False", "reason": "InvalidSpec", "message": reason}
    status = {"conditions": [{**planned, "lastTransitionTime": "2026-11-22T14:00:00Z"}]}
    app.stores.jobs.put(made.key, made.model_copy(update={"status": TrainingJobStatus.model_validate(status)}))
    assert app.told("jobs")["jobs"][0]["explanation"] == reason
    assert app.told("overview")["waiting"]["jobs"][0]["explanation"] == reason
    assert app.told("jobs/ns/cats")["explanation"] == reason


def test_an_unknown_job_is_404() -> None:
    response = Visited().ask("jobs/ns/cats")
    assert (response.status_code, response.json()) == (404, {"error": "TrainingJob ns/cats does not exist"})


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "namespace=" + "x" * 64])
def test_a_query_out_of_bounds_is_refused(query: str) -> None:
    name, _, value = query.partition("=")
    for route in ("jobs", "overview"):
        response = Visited().ask(f"{route}?{query}")
        assert response.status_code == 422
        assert response.json()["error"].startswith(f"{name}={value!r}: ")
        assert response.json()["detail"][0]["loc"] == ["query", name]


def test_path_that_does_not_exist_has_the_key_error() -> None:
    response = Visited().ask("nothing")
    assert response.status_code == 404
    assert response.json() == {"error": "GET /v1/nothing: Not Found", "detail": "Not Found"}


def test_sites_tell_what_they_have_use_and_hold() -> None:
    app = Visited()
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        app.stores.add_node(name, gpus=4, ready=name != "a2", zone=zone)
    app.stores.add_site("a", zone="a")
    app.stores.add_pod(stranger("web", "a1", gpus=3))
    app.stores.add_job("cats", window(0, 1, "a1"), window(1, 2, "a2"))
    app.stores.add_pod(worker("cats", 1, 2, "a2"))
    assert app.told("sites")["sites"] == [
        {"name": "a", "tier": "Edge", "unlimited": False, "nodes": 2, "readyNodes": 1, "gpus": 8, "usedGpus": 4,
         "reservedGpus": 1,
         "gpuResources": [{"resource": "nvidia.com/gpu", "gpus": 8, "usedGpus": 4, "reservedGpus": 1}]}
    ]  # fmt: skip


def test_without_sites_all_nodes_are_one() -> None:
    sites = Visited("n1", "n2").told("sites")["sites"]
    assert [(site["name"], site["nodes"]) for site in sites] == [("cluster", 2)]


def test_the_api_describes_itself_to_visitors() -> None:
    app = Visited()
    assert "/v1/jobs" in app.told("openapi.json")["paths"]
    assert app.ask("openapi.json", who="").status_code == 401


class TestOverview:
    def test_overview_groups_jobs_by_planned_start_with_total_count(self) -> None:
        app = Visited()
        for name, start in (("late", "2026-01-02T00:00:00Z"), ("soon", "2026-01-01T00:00:00Z"), ("never", None)):
            add_waiting(app, name, start)
        app.stores.add_job("busy", window(0, 1, "n1"), phase="Running")
        app.stores.add_job("done", phase="Succeeded")
        answer = app.told("overview?limit=2")
        assert [job["name"] for job in answer["waiting"]["jobs"]] == ["soon", "late"]
        assert answer["waiting"]["total"] == 3
        assert [job["name"] for job in answer["running"]["jobs"]] == ["busy"]
        assert [job["name"] for job in answer["finished"]["jobs"]] == ["done"]

    def test_the_reason_is_the_sentence_of_the_status(self) -> None:
        app = Visited()
        sentence = "waits for 1 GPU at edge-a, behind ns/<b>other</b>"
        add_waiting(app, "cats", None, explanation=sentence)
        assert app.told("overview")["waiting"]["jobs"][0]["explanation"] == sentence

    def test_a_search_looks_into_namespace_and_name(self) -> None:
        app = Visited()
        add_waiting(app, "cats", None)
        add_waiting(app, "dogs", None)
        assert app.told("overview?find=s/ca")["waiting"]["total"] == 1

    def test_deleted_or_changed_job_leaves_its_group(self) -> None:
        app = Visited("n1")
        job = app.stores.add_job("cats", window(0, 1, "n1"), phase="Running")
        assert app.told("overview")["running"]["total"] == 1
        app.stores.add_job("cats", window(0, 1, "n1"), phase="Succeeded")
        answer = app.told("overview")
        assert (answer["running"]["total"], answer["finished"]["total"], answer["namespaces"]) == (0, 1, ["ns"])
        app.stores.jobs.put(job.key, None)
        answer = app.told("overview")
        assert (answer["finished"]["total"], answer["namespaces"]) == (0, [])

    def test_what_the_visitor_has_already_is_304(self) -> None:
        app = Visited()
        tag = app.ask("overview").headers["ETag"]
        assert app.ask("overview", **{"If-None-Match": tag}).status_code == 304
        add_waiting(app, "cats", None)
        assert app.ask("overview", **{"If-None-Match": tag}).status_code == 200


class TestUses:
    def test_sites_are_told_with_what_the_jobs_that_exist_have_used(self) -> None:
        app = Visited()
        first = {"site": "cloud", "gpuSeconds": 90, "copiedBytes": 64, "inVainBytes": 32}
        use(app, app.stores.add_job("cats", phase="Running"), first, {"site": "edge-a", "gpuSeconds": 5})
        use(app, app.stores.add_job("dogs", phase="Succeeded"), {"site": "cloud", "gpuSeconds": 10})
        app.stores.add_job("new")
        uses = app.told("overview")["uses"]
        assert uses == {
            "cloud": {"gpuSeconds": 100, "copiedBytes": 64, "inVainBytes": 32},
            "edge-a": {"gpuSeconds": 5, "copiedBytes": 0, "inVainBytes": 0},
        }

    def test_use_of_a_job_is_counted_once_and_not_after_deletion(self) -> None:
        app = Visited()
        cats = app.stores.add_job("cats", phase="Running")
        for seconds in (10, 25):
            use(app, cats, {"site": "cloud", "gpuSeconds": seconds})
        assert app.told("overview")["uses"]["cloud"]["gpuSeconds"] == 25
        app.stores.jobs.put(cats.key, None)
        assert app.told("overview")["uses"] == {}

    def test_use_counts_only_visible_jobs_of_the_chosen_namespace(self) -> None:
        app = Visited()
        use(app, app.stores.add_job("cats"), {"site": "cloud", "gpuSeconds": 10})
        theirs = job("birds", namespace="other")
        app.stores.jobs.put(theirs.key, theirs)
        use(app, theirs, {"site": "edge-b", "gpuSeconds": 7})
        assert set(app.told("overview")["uses"]) == {"cloud", "edge-b"}
        assert set(app.told("overview?namespace=other")["uses"]) == {"edge-b"}
        answer = app.told("overview", "ann")
        assert (set(answer["uses"]), answer["sites"]) == ({"cloud"}, [{"name": "cloud"}])
        assert app.told("overview", "outsider")["uses"] == {}


def use(app: Visited, known: TrainingJob, *sites: dict[str, Any]) -> None:
    """Write into the status of the job what it has used."""
    progress = Progress.model_validate({"sites": sites})
    status = known.status.model_copy(update={"progress": progress})
    app.stores.jobs.put(known.key, known.model_copy(update={"status": status}))


class TestTimeline:
    def test_timeline_shows_windows_on_nodes_with_state_of_pods(self) -> None:
        app = sited("a1", "a2", "a10")
        here = {"site": "a"}
        app.stores.add_job("cats", window(0, 1, "a1", **here), window(1, 2, "a2", state="Closing", **here), gpus=2)
        app.stores.add_job("dogs", window(0, 1, "a2", chunks=[3, 1, 2], **here))
        app.stores.add_pod(worker("cats", 0, 1, "a1", gpus=2, status={"phase": "Running"}))
        answer = app.told("timeline/a")
        assert [lane["node"] for lane in answer["lanes"]] == ["a1", "a2", "a10"]
        seen = {lane["node"]: [(b["job"], b["gpus"], b["chunks"], b["state"]) for b in lane["bars"]]
                for lane in answer["lanes"]}  # fmt: skip
        assert seen == {
            "a1": [("cats", 2, "0", "Running")],
            "a2": [("cats", 2, "0", "Closing"), ("dogs", 1, "1-3", "Planned")],
            "a10": [],
        }
        assert (answer["lanes"][0]["gpus"], answer["lanes"][0]["usedGpus"]) == (8, 2)

    def test_nodes_come_a_page_at_a_time(self) -> None:
        app = sited("a1", "a2", "a10")
        first = app.told("timeline/a?limit=2")
        assert (first["nodes"], first["next"]) == (3, "a2")
        second = app.told("timeline/a?limit=2&after=a2")
        assert ([lane["node"] for lane in second["lanes"]], second["next"]) == (["a10"], None)

    def test_timeline_shows_waiting_job_at_its_expected_place(self) -> None:
        expected = {"ns/cats": SimpleNamespace(start=1.0, completion=2.0, site="a", node="a1")}
        app = sited("a1", planning=Planning(expected=expected.get))
        add_waiting(app, "cats", "2026-01-01T00:00:00Z")
        (bar,) = app.told("timeline/a")["lanes"][0]["bars"]
        assert (bar["job"], bar["state"], bar["start"]) == ("cats", "Expected", "2026-01-01T00:00:00Z")
        assert app.told("jobs/ns/cats")["expectedAt"] == {"site": "a", "node": "a1"}

    def test_timeline_shows_windows_without_node_or_of_deleted_nodes(self) -> None:
        app = sited("a1")
        app.stores.add_job("cats", window(0, 1, None, site="a"), window(1, 1, "gone", site="a"))
        assert [lane["node"] for lane in app.told("timeline/a")["lanes"]] == ["", "a1", "gone"]

    def test_sites_and_nodes_that_appear_are_seen_within_moments(self) -> None:
        app = sited("a1")
        assert app.told("timeline/a")["nodes"] == 1
        app.stores.add_node("a2", zone="a")
        app.now += 2
        assert app.told("timeline/a")["nodes"] == 2


def sited(*nodes: str, planning: Planning | None = None) -> Visited:
    """With one site and these nodes in it."""
    app = Visited(planning=planning)
    app.stores.add_site("a", zone="a")
    for name in nodes:
        app.stores.add_node(name, zone="a")
    return app


def add_waiting(app: Visited, name: str, start: str | None, gpus: int = 1, **plan: Any) -> None:
    job = app.stores.add_job(name, gpus=gpus)
    assert job.status.plan
    written = job.status.plan.model_validate({**job.status.plan.model_dump(), "estimatedStart": start, **plan})
    app.stores.jobs.put(job.key, job.model_copy(update={"status": job.status.model_copy(update={"plan": written})}))


def test_reads_of_thousands_of_objects_yield_to_the_event_loop() -> None:
    app = Visited(*(f"n{number}" for number in range(2 * PORTION)))
    for number in range(MAX_ROWS + 1):
        app.stores.add_job(f"job-{number}")
    board = Board(app.stores.view, app.stores)
    timelines = Timelines(app.stores.view, board, lambda: 0.0)
    everything = Scope(everything=True)
    looks: dict[str, Callable[[], Awaitable[object]]] = {
        "sites": timelines.sites,
        "timeline": lambda: timelines.timeline("cluster", everything, True, "", 100),
        "group": lambda: board.jobs("waiting", everything, Selection()),
        "jobs": lambda: board.list_jobs(everything, "Running", "", 50),
    }

    async def turns(look: Callable[[], Awaitable[object]]) -> int:
        answer, taken = asyncio.ensure_future(look()), 0
        while not answer.done():
            await asyncio.sleep(0)
            taken += 1
        await answer
        return taken

    assert {name: asyncio.run(turns(look)) > 1 for name, look in looks.items()} == dict.fromkeys(looks, True)


class TestSelection:
    def test_groups_are_sorted_in_either_direction_with_unknown_last(self) -> None:
        app = Visited()
        for name, start in (("b", "2026-01-02T00:00:00Z"), ("a", "2026-01-01T00:00:00Z"), ("c", None)):
            add_waiting(app, name, start)
        orders = {sort: names(app, f"overview?waiting={sort}") for sort in ("start", "-start", "name", "-name")}
        assert orders == {"start": "abc", "-start": "bac", "name": "abc", "-name": "cba"}
        assert names(app, "overview?waiting=-start&limit=1") == "b"

    def test_finished_jobs_are_sorted_by_completion_time(self) -> None:
        app = Visited()
        for name, seconds in (("a", 30), ("b", 10), ("c", 20)):
            finish(app, name, seconds)
        assert names(app, "overview?finished=jct", "finished") == "bca"
        assert names(app, "overview?finished=-jct", "finished") == "acb"

    def test_an_unknown_order_is_refused(self) -> None:
        assert Visited().ask("overview?waiting=priority").status_code == 422

    def test_a_phase_selects_jobs_of_its_group_only(self) -> None:
        app = Visited()
        app.stores.add_job("stopped", phase="Suspended")
        app.stores.add_job("next", phase="Waiting")
        app.stores.add_job("busy", phase="Running")
        answer = app.told("overview?phase=Suspended")
        assert {group: answer[group]["total"] for group in ("waiting", "running", "finished")} == {
            "waiting": 1,
            "running": 0,
            "finished": 0,
        }


class TestTotals:
    def test_totals_count_jobs_and_gpus_and_average_the_jct_since(self) -> None:
        app = Visited()
        app.stores.add_job("next", phase="Waiting")
        app.stores.add_job("stopped", phase="Suspended")
        app.stores.add_job("busy", window(0, 1, "n1"), window(1, 2, "n1"), gpus=2, phase="Running")
        finish(app, "old", 10, day=1)
        finish(app, "new", 30, day=2)
        finish(app, "newer", 50, day=2)
        finish(app, "broken", 70, day=2, phase="Failed")
        assert app.told("overview?since=2026-01-02T00:00:00Z")["totals"] == {
            "waiting": 1,
            "suspended": 1,
            "running": 1,
            "gpus": 4,
            "succeeded": 2,
            "failed": 1,
            "averageJct": 40.0,
        }
        assert app.told("overview")["totals"]["averageJct"] == 30.0

    def test_totals_count_only_jobs_that_the_visitor_may_list(self) -> None:
        app = Visited()
        app.stores.add_job("mine", phase="Running")
        app.stores.jobs.put("other/theirs", job("theirs", namespace="other", phase="Running"))
        assert [app.told("overview", who)["totals"]["running"] for who in ("admin", "ann", "outsider")] == [2, 1, 0]


class TestProgress:
    def test_progress_of_the_planner_takes_the_place_of_the_status(self) -> None:
        known = {"ns/busy": SimpleNamespace(batches=25.0, total=100.0)}
        app = Visited(planning=Planning(trained=known.get))
        spec = {"data": {"chunks": 4, "batchesPerChunk": 10, "epochs": 2}}
        sentence = "2 workers (2 at a); 0 of 4 chunks done, about 6.2 % trained; noted"
        for name in ("busy", "idle"):
            made = app.stores.add_job(name, phase="Running", spec=spec)
            plan = {"term": 1, "revision": 1, "observedGeneration": 1, "explanation": sentence}
            written = {"progress": {"batches": 5.0, "trained": "6.2 %"}, "plan": plan}
            status = TrainingJobStatus.model_validate({**made.status.model_dump(by_alias=True), **written})
            app.stores.jobs.put(made.key, made.model_copy(update={"status": status}))
        batches = {
            one["name"]: (one["batches"], one["totalBatches"]) for one in app.told("overview")["running"]["jobs"]
        }
        assert batches == {"busy": (25.0, 100.0), "idle": (5.0, 80.0)}
        jobs = {one["name"]: one for one in app.told("overview")["running"]["jobs"]}
        assert {name: job["trainedShare"] for name, job in jobs.items()} == {"busy": "25 %", "idle": "6.2 %"}
        assert jobs["busy"]["explanation"] == sentence.replace("6.2", "25")
        assert jobs["idle"]["explanation"] == sentence

    def test_job_details_have_the_progress_of_the_planner(self) -> None:
        known = TrainingProgress(25.0, 100.0, estimated=True, reported=None, timings=Timings())

        async def progress(key: str) -> TrainingProgress:
            return known

        app = Visited(planning=Planning(progress=progress))
        app.stores.add_job("busy", phase="Running")
        trained = app.told("jobs/ns/busy")["trained"]
        assert (trained["batches"], trained["of"], trained["estimated"]) == (25.0, 100.0, True)


def test_answers_say_whether_the_planner_responds() -> None:
    known = [True]
    app = Visited(planning=Planning(responds=known.pop))
    app.stores.add_job("busy", phase="Running")
    for path in ("overview", "jobs/ns/busy"):
        for responds in (True, False):
            known.append(responds)
            assert app.told(path)["plannerResponds"] is responds


class TestPlannedWindows:
    def test_later_windows_are_bars_as_wide_as_their_workers(self) -> None:
        app = sited("a1", planning=planned(PlannedWindow("ns/gang", "a", "a1", 3, "0-2", 100.0, 200.0)))
        add_waiting(app, "gang", "1970-01-01T00:01:40Z", gpus=2)
        (bar,) = app.told("timeline/a")["lanes"][0]["bars"]
        assert (bar["state"], bar["gpus"], bar["workers"], bar["chunks"]) == ("Later", 6, 3, "0-2")
        assert (bar["start"], bar["end"]) == ("1970-01-01T00:01:40Z", "1970-01-01T00:03:20Z")

    def test_later_windows_of_invisible_jobs_are_left_out(self) -> None:
        app = sited("a1", planning=planned(PlannedWindow("other/theirs", "a", "a1", 1, "0", 100.0, 200.0)))
        app.stores.jobs.put("other/theirs", job("theirs", namespace="other"))
        assert app.told("timeline/a", "ann")["lanes"] == []
        assert len(app.told("timeline/a")["lanes"][0]["bars"]) == 1


def planned(*windows: PlannedWindow) -> Planning:
    """A planner whose forecast has these windows, and the first of them as the expected place."""
    place = SimpleNamespace(site=windows[0].site, node=windows[0].node)
    return Planning(
        expected=lambda key: place if key == windows[0].job else None,
        windows=lambda site: [one for one in windows if one.site == site],
    )


def names(app: Visited, path: str, group: str = "waiting") -> str:
    """The one-letter names of the jobs of a group."""
    return "".join(one["name"] for one in app.told(path)[group]["jobs"])


def finish(app: Visited, name: str, seconds: int, day: int = 1, phase: str = "Succeeded") -> None:
    """Add a job that ended that many seconds after its creation."""
    created = f"2026-01-{day:02}T00:00:00Z"
    made = app.stores.add_job(name, phase=phase, creationTimestamp=created)
    ended = made.metadata.creation_timestamp + timedelta(seconds=seconds)  # type: ignore[operator]
    app.stores.jobs.put(
        made.key, made.model_copy(update={"status": made.status.model_copy(update={"completion_time": ended})})
    )
