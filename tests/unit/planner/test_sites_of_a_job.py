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
