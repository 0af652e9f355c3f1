"""Jobs and Sites that users edit while workers run."""

from dataclasses import replace
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner
from tranche.model import Job, Site
from tranche.planner import (
    CloseWindow,
    Event,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    SiteChanged,
    SiteRemoved,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)

KEY = "default/a"


def with_running(policy: str, one: Job, *sites: Site) -> Planner:
    """A planner with four GPUs at the site edge-a, and with the job, whose workers have started."""
    p = planner(policy, [node(f"n{i}", gpus=1) for i in range(4)], list(sites))
    p.handle(JobSubmitted(one), 0.0)
    for attempt, run in list(p.cluster.jobs[KEY].runs.items()):
        p.handle(WorkerBound(KEY, attempt, run.window.node or ""), 1.0)
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    return p


@pytest.mark.parametrize(
    ("policy", "stopped"), [("chunk", 0), ("srsf", 0), ("chunk-faithful", 0), ("dorm", 2), ("optimus", 2), ("oasis", 2)]
)
def test_none_starts_until_fewer_run_than_are_allowed(policy: str, stopped: int) -> None:
    """Surplus workers complete their windows, except under policies that allocate the workers of all jobs together."""
    one = job("a", chunks=12, seconds=1000.0, max_workers=4)
    p = with_running(policy, one)
    fewer = JobChanged(replace(one, max_workers=2, generation=2))
    assert len(of_type(CloseWindow, p.handle(fewer, 10.0))) == stopped
    opened = [
        len(of_type(OpenWindow, p.handle(WorkerEnded(KEY, attempt, "Succeeded", 1000.0 + attempt), 1000.0 + attempt)))
        for attempt in (1, 2, 3)
    ]
    assert opened == [0, 0, 1]


@pytest.mark.parametrize("make", [job, gang])
def test_job_resumed_while_its_pods_stop_starts_again(make: Any) -> None:
    size = {"chunks": 4} if make is job else {"members": 4}
    one = make("a", **size, seconds=1000.0)
    p = with_running("chunk", one)
    closed = of_type(CloseWindow, p.handle(JobChanged(replace(one, suspended=True, generation=2)), 10.0))
    assert len(closed) == 4
    assert of_type(OpenWindow, p.handle(JobChanged(replace(one, generation=3)), 11.0)) == []
    opened = [
        opening
        for attempt in (1, 2, 3, 4)
        for opening in of_type(OpenWindow, p.handle(WorkerEnded(KEY, attempt, "Preempted", 20.0), 20.0))
    ]
    assert len(opened) == 4
    assert p.cluster.jobs[KEY].failures == 0


def test_workers_run_on_and_data_are_named_if_a_site_is_renamed() -> None:
    one = job("a", chunks=8, seconds=1000.0, max_workers=4, data_site="edge-a", chunk_bytes=1e8)
    p = with_running("chunk", one, Site("edge-a"))
    events: list[Event] = [SiteRemoved("edge-a"), SiteChanged(Site("edge-b"))]
    events += [NodeChanged(node(f"n{i}", "edge-b", gpus=1)) for i in range(4)]
    assert [stopped for event in events for stopped in of_type(CloseWindow, p.handle(event, 10.0))] == []
    (opened,) = of_type(OpenWindow, p.handle(WorkerEnded(KEY, 1, "Succeeded", 1000.0), 1000.0))
    assert opened.window.site == "edge-b"
    assert "spec.data.site edge-a is not the name of a Site" in p.plan_of(KEY, 1000.0).explanation
    p.handle(JobChanged(replace(one, data_site="edge-b", generation=2)), 1001.0)
    assert "spec.data.site" not in p.plan_of(KEY, 1001.0).explanation
