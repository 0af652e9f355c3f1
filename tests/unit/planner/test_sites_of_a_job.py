"""Jobs whose data are at several sites: no worker stops for a job that has room elsewhere, and no site is left out."""

from typing import Any

from support.builders import job, node
from tranche.model import Job, Link, Site
from tranche.simulation.engine.result import Occupation
from tranche.simulation.scenario import Scenario, run

FAST = Link(8e9, dedicated=True)
"""A chunk of `DATA` takes 1 s."""
SITES = (Site("a"), Site("b"), Site("store", links={"a": FAST, "b": FAST}))
DATA: dict[str, Any] = {"data_site": "store", "chunk_bytes": 1e9}


def ran(jobs: list[Job], gpus: dict[str, int]) -> dict[str, list[Occupation]]:
    """Return the workers of each job under `chunk`, in order of start, with a node at each site."""
    nodes = tuple(node(f"at-{site}", site, count) for site, count in gpus.items())
    result = run(Scenario(tuple(jobs), nodes, SITES, "chunk", record=True))
    assert not result.unfinished
    workers: dict[str, list[Occupation]] = {}
    for one in sorted(result.occupations, key=lambda worker: worker.opened):
        workers.setdefault(one.job.removeprefix("default/"), []).append(one)
    return workers


def local(name: str, submitted: float, site: str) -> Job:
    """Return a long job that can train at one site only."""
    return job(name, submitted, chunks=4, max_workers=1, seconds=1000.0, data_site=site)


def outcomes(workers: list[Occupation]) -> list[str]:
    return [one.outcome for one in workers]


def test_job_served_at_one_site_stops_no_worker_at_another() -> None:
    workers = ran([local("long", 1.0, "b"), job("x", 2.0, seconds=200.0, **DATA)], {"a": 1, "b": 1})
    assert [(one.site, one.opened) for one in workers["x"]] == [("a", 3.0)]
    assert outcomes(workers["long"]) == ["Succeeded"] * 4


def test_job_that_preempts_at_one_site_does_so_at_no_other() -> None:
    jobs = [local("v", 0.0, "a"), local("w", 1.0, "b"), job("x", 2.0, seconds=200.0, **DATA)]
    workers = ran(jobs, {"a": 1, "b": 1})
    assert [one.opened for one in workers["x"]] == [3.0]
    assert sorted([*outcomes(workers["v"]), *outcomes(workers["w"])]) == ["Preempted", *["Succeeded"] * 8]


def test_room_at_another_site_is_used_before_workers_stop() -> None:
    workers = ran([local("long", 1.0, "a"), job("x", 2.0, seconds=200.0, **DATA)], {"a": 1, "b": 1})
    assert [(one.site, one.opened) for one in workers["x"]] == [("b", 3.0)]
    assert outcomes(workers["long"]) == ["Succeeded"] * 4


def test_workers_stop_for_the_rest_that_other_sites_do_not_hold() -> None:
    workers = ran([local("long", 1.0, "a"), job("x", 2.0, chunks=2, seconds=200.0, **DATA)], {"a": 1, "b": 1})
    assert sorted((one.site, one.opened) for one in workers["x"]) == [("a", 3.0), ("b", 3.0)]
    assert outcomes(workers["long"]) == ["Preempted", *["Succeeded"] * 4]


def test_job_behind_a_preemptor_is_served_at_the_other_site() -> None:
    """x ranks first at both sites, and u behind it, when x stops v at a; then u may stop w at b."""
    jobs = [local("v", 0.0, "a"), local("w", 1.0, "b"), job("x", 2.0, seconds=200.0, **DATA)]
    workers = ran([*jobs, job("u", 2.0, seconds=300.0, **DATA)], {"a": 1, "b": 1})
    assert [(one.site, one.opened) for one in (*workers["x"], *workers["u"])] == [("a", 3.0), ("b", 3.0)]


def test_gpu_is_not_idle_beside_a_job_that_could_use_it() -> None:
    """x stops u at b. When its first chunk is done there, its second one and the other jobs use both GPUs at once."""
    x = job("x", 2.0, chunks=2, max_workers=1, seconds=200.0, data_site="b", chunk_bytes=1e9)
    sites = (Site("a", links={"b": Link(8e9)}), Site("b"))
    nodes = (node("at-a", "a"), node("at-b", "b"))
    result = run(Scenario((local("v", 0.0, "a"), local("u", 1.0, "b"), x), nodes, sites, "chunk", record=True))
    at_b = sorted((one.opened, one.ended) for one in result.occupations if one.site == "b")
    assert [began for began, _ in at_b[1:]] == [ended for _, ended in at_b[:-1]]
