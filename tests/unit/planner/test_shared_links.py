"""Links between sites carry the data of several tenants: none decides for the others how long an upload takes."""

from typing import Any

import pytest

from support.builders import job, node, of_type, planner
from tranche.estimate.link_corrections import LEARNING_RATE, LinkCorrections
from tranche.estimate.namespace_measurements import MAX_NAMESPACES
from tranche.model import Link, Site
from tranche.planner import JobRemoved, JobSubmitted, OpenWindow, Planner, SiteChanged, StagingEnded, Tick
from tranche.planner.learned_state import learned_state_of, recall

DELTA = 50.0
"""Seconds that a chunk of the usual size takes between the two sites."""
CHUNK_BYTES = DELTA * 1e9 / 8
SITES = [Site("here", links={"there": Link(1e9)}), Site("there", links={"here": Link(1e9)})]


def cluster(policy: str = "chunk") -> Planner:
    return planner(policy, [node("a", "here"), node("b", "there")], SITES)


def submit(p: Planner, key: str, at: float, **changes: Any) -> list[str]:
    """Submit a job whose data are here, and return the sites at which it starts at once."""
    fields = {"key": key, "data_site": "here", "chunk_bytes": CHUNK_BYTES, "chunks": 2, "seconds": 1000.0, **changes}
    return sites(p.handle(JobSubmitted(job(key, at, **fields)), at))


def sites(instructions: Any) -> list[str]:
    return [one.window.site for one in of_type(OpenWindow, instructions)]


def test_data_of_a_tenant_do_not_wait_for_huge_data_of_another() -> None:
    p = cluster()
    submit(p, "lab/wrong", 0.0, chunk_bytes=1e18, chunks=1000, max_workers=1)
    submit(p, "default/right", 1.0)
    copied = p.cluster.jobs["default/right"].copies["there"]
    assert max(copied.values()) <= 1.0 + 2 * 2 * DELTA + 1e-6, "half of the link is left for it"
    assert sites(p.handle(Tick(), 1.0 + 2 * 2 * DELTA + 1e-3)) == ["there"]


def test_uploads_of_a_deleted_job_do_not_keep_the_link() -> None:
    p = cluster()
    submit(p, "default/wrong", 0.0, chunk_bytes=1e18, chunks=1000, max_workers=1)
    p.handle(JobRemoved("default/wrong"), 1.0)
    submit(p, "default/right", 2.0)
    assert sites(p.handle(Tick(), 2.0 + 2 * DELTA + 1.0)) == ["there"]


def test_uploads_of_one_deleted_job_leave_those_of_others() -> None:
    p = cluster()
    submit(p, "default/first", 0.0)
    submit(p, "default/second", 0.0)
    free_at = p.cluster.uploads.busy()["here", "there"]
    p.handle(JobRemoved("default/second"), 0.0)
    assert p.cluster.uploads.busy()["here", "there"] == pytest.approx(free_at - 2 * DELTA)


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful", "fifo"])
def test_corrected_bandwidth_counts_for_data_on_the_way(policy: str) -> None:
    p = planner(policy, [node("b", "there", 2)], [Site("here", links={"there": Link(1e3)}), SITES[1]])
    assert submit(p, "default/first", 0.0) == []
    p.handle(SiteChanged(SITES[0]), 10.0)
    assert submit(p, "default/next", 10.0) == []
    assert sites(p.handle(Tick(), 10.0 + 2 * DELTA + 1.0))[:1] == ["there"]
    p.handle(Tick(), 10.0 + 4 * DELTA + 1.0)
    assert max(p.cluster.uploads.busy().values()) <= 10.0 + 4 * DELTA + 1.0


def test_uploads_go_on_at_the_speed_of_the_changed_link() -> None:
    p = cluster()
    submit(p, "default/a", 0.0)
    p.handle(SiteChanged(Site("here", links={"there": Link(5e8)})), DELTA / 2)
    ready = sorted(p.cluster.jobs["default/a"].copies["there"].values())
    assert ready == pytest.approx([1.5 * DELTA, 3.5 * DELTA])
    assert p.cluster.uploads.busy()["here", "there"] == pytest.approx(3.5 * DELTA)


def staged(p: Planner, key: str, seconds: float, at: float = 0.0, **changes: Any) -> None:
    """Submit a job, and let the pod that copies its data take `seconds`."""
    submit(p, key, at, staged=True, **changes)
    (staging,) = p.cluster.jobs[key].stagings.values()
    p.handle(StagingEnded(key, staging.attempt, "Succeeded", seconds), at)


def delta(p: Planner, key: str) -> float:
    return p.cluster.transfer_seconds(p.cluster.jobs[key], "there")


def test_one_tenant_teaches_the_link_to_itself_only() -> None:
    p = cluster()
    submit(p, "default/right", 0.0)
    staged(p, "lab/tiny", 60.0, chunk_bytes=1.0)
    assert delta(p, "default/right") == DELTA
    staged(p, "lab/slow", 2 * 4 * DELTA)
    assert delta(p, "lab/slow") > DELTA


def test_link_that_two_tenants_have_measured_counts_for_others() -> None:
    p = cluster()
    submit(p, "default/right", 0.0)
    staged(p, "lab/slow", 2 * 4 * DELTA)
    staged(p, "hall/slow", 2 * 3 * DELTA)
    assert delta(p, "default/right") == pytest.approx(3 * DELTA)


def test_tenant_that_left_counts_only_while_others_are_too_few() -> None:
    p = cluster()
    submit(p, "default/right", 0.0)
    staged(p, "lab/slow", 2 * 4 * DELTA)
    staged(p, "gone/slower", 2 * 9 * DELTA)
    p.handle(JobRemoved("gone/slower"), 1.0)
    assert delta(p, "default/right") == pytest.approx(4 * DELTA)
    staged(p, "hall/slow", 2 * 3 * DELTA)
    assert delta(p, "default/right") == pytest.approx(4 * (3 / 4) ** LEARNING_RATE * DELTA)


def test_corrections_of_tenants_that_left_are_bounded() -> None:
    corrections = LinkCorrections()
    for number in range(MAX_NAMESPACES + 10):
        corrections.add(("here", "there"), f"tenant-{number}", 0.01 * number)
    assert len([namespace for _, namespace, _ in corrections.items() if namespace]) <= MAX_NAMESPACES


def test_later_tenant_does_not_inherit_what_one_has_measured() -> None:
    p = cluster()
    staged(p, "lab/slow", 2 * 4 * DELTA)
    submit(p, "default/right", 1.0)
    assert delta(p, "default/right") == DELTA


def test_next_planner_knows_whose_measurement_it_was() -> None:
    p = cluster()
    submit(p, "default/right", 0.0)
    staged(p, "lab/slow", 2 * 4 * DELTA)
    later = cluster()
    recall(later.context, learned_state_of(p.cluster, 0.0))
    submit(later, "default/right", 0.0)
    submit(later, "lab/slow", 0.0)
    assert delta(later, "default/right") == DELTA
    assert delta(later, "lab/slow") == pytest.approx(4 * DELTA, rel=1e-5)


def test_measurements_from_invented_sites_displace_no_link() -> None:
    p = cluster()
    submit(p, "default/right", 0.0)
    staged(p, "lab/slow", 2 * 4 * DELTA)
    for number in range(300):
        p.cluster.uploads.corrections.add((f"invented-{number}", "there"), "lab", 6.0)
    learned = learned_state_of(p.cluster, 0.0)
    assert ("here", "there") in {(one.origin, one.target) for one in learned.links}
    assert len(learned.links) == 200
