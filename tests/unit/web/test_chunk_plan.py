"""The windows of a job's chunks in the read API: for whom may see the job, a page at a time."""

import pytest

from support.builders import job, node, planner
from support.page_visitor import Visited
from tranche.model import ChunkWindow
from tranche.planner import JobSubmitted, Planner, WorkerStarted
from tranche.planner.forecast.chunk_windows import listing
from tranche.planner.forecast.steps import run_to_completion
from tranche.web.app import Planning
from tranche.web.chunk_plan import NOT_PLANNING

KEY = "ns/cats"


def visited(p: Planner, now: float = 40.0) -> Visited:
    async def find(key: str) -> tuple[ChunkWindow, ...]:
        return run_to_completion(listing(p, key, now))

    app = Visited(planning=Planning(chunk_windows=find))
    app.stores.add_job("cats")
    return app


def running(chunks: int = 3) -> Planner:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("cats", chunks=chunks, key=KEY)), 0.0)
    p.handle(WorkerStarted(KEY, 1, 0.0), 0.0)
    return p


def test_chunks_have_place_times_and_cost() -> None:
    answer = visited(running()).told("jobs/ns/cats/chunks")
    assert (answer["total"], answer["next"], answer["note"]) == (3, None, "")
    assert answer["chunks"][1] == {
        "chunk": 1,
        "state": "Planned",
        "site": "edge-a",
        "node": "n1",
        "slots": [0],
        "start": "1970-01-01T00:01:40Z",
        "end": "1970-01-01T00:03:20Z",
        "q": pytest.approx(200.0 / 3),
        "plannedStart": "1970-01-01T00:01:40Z",
        "plannedEnd": "1970-01-01T00:03:20Z",
        "onDemand": False,
    }
    assert [one["state"] for one in answer["chunks"]] == ["Running", "Planned", "Planned"]


def test_chunks_are_listed_page_by_page() -> None:
    app = visited(running(5))
    first = app.told("jobs/ns/cats/chunks?limit=2")
    assert ([one["chunk"] for one in first["chunks"]], first["next"], first["total"]) == ([0, 1], 1, 5)
    rest = app.told(f"jobs/ns/cats/chunks?limit=3&after={first['next']}")
    assert ([one["chunk"] for one in rest["chunks"]], rest["next"]) == ([2, 3, 4], None)


def test_chunks_are_for_those_who_may_get_the_job() -> None:
    app = visited(running())
    assert app.told("jobs/ns/cats/chunks", "ann")["total"] == 3
    assert [app.ask("jobs/ns/cats/chunks", who).status_code for who in ("bob", "outsider", "")] == [403, 403, 401]


def test_an_unknown_job_has_no_chunks_and_is_404() -> None:
    assert visited(running()).ask("jobs/ns/dogs/chunks").status_code == 404


def test_a_process_that_does_not_plan_says_so() -> None:
    app = Visited()
    app.stores.add_job("cats")
    assert app.told("jobs/ns/cats/chunks") == {"chunks": [], "total": 0, "next": None, "note": NOT_PLANNING}


def test_job_that_has_ended_has_no_chunks_and_says_so() -> None:
    app = Visited()
    app.stores.add_job("cats", phase="Succeeded")
    assert app.told("jobs/ns/cats/chunks") == {"chunks": [], "total": 0, "next": None, "note": "the job has ended"}


def test_a_page_beyond_the_limits_is_refused() -> None:
    app = visited(running())
    for wrong in ("limit=0", "limit=1001", "after=-2", "after=x"):
        assert app.ask(f"jobs/ns/cats/chunks?{wrong}").status_code == 422
