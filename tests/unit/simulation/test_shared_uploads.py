"""Uploads that share the uplinks of their sites with gangs: their ends move, and what was sent stays sent."""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

import pytest

from support.builders import job, node, planner
from tranche.estimate import LevelNetwork
from tranche.estimate.link_contention import PENALTY_RATIO
from tranche.model import Link, Site
from tranche.planner import ChunkStaged, JobSubmitted, StageData, Tick
from tranche.simulation.engine.link_traffic import LinkTraffic, Sender, is_upload
from tranche.simulation.engine.shared_uploads import Due, SharedUploads
from tranche.simulation.scenario import Scenario, run

WAN = 1e9
NETWORK = LevelNetwork((400e9, 100e9, 10e9, WAN))
NODES = [node("n0", "a"), node("n1", "b"), node("n2", "c")]
DATA = job("data", chunks=4, data_site="a", chunk_bytes=1.25e9)
"""A chunk takes 10 s on a link of 1 Gbit/s."""


class Course:
    """Uploads of one job from site a, driven by hand."""

    def __init__(self, *, dedicated: bool = False) -> None:
        links = {"b": Link(WAN, dedicated=dedicated), "c": Link(WAN)}
        made = planner("chunk", NODES, [Site("a", links=links), Site("b"), Site("c")], uploads_reported=True)
        made.handle(JobSubmitted(DATA), 0.0)
        self.cluster = made.cluster
        self.traffic = LinkTraffic(NETWORK, made.cluster.places)
        self.uploads = SharedUploads(lambda here, there: 1.0, self.traffic)
        self.heap: list[tuple[float, int, ChunkStaged]] = []
        self.ends: dict[int, tuple[float, float]] = {}
        """End of each chunk's upload, and the reported time, in seconds."""

    def share(self, due: Iterable[Due], changes: Mapping[Sender, float], now: float) -> None:
        events = list(due)
        for sender, extra in changes.items():
            if is_upload(sender):
                events += self.uploads.slow_down(sender, extra, now)
        for time, report in events:
            heappush(self.heap, (time, report.chunk, report))

    def send(self, chunks: tuple[int, ...], site: str, now: float) -> None:
        self.share(*self.uploads.send(self.cluster, StageData("default/data", chunks, site, Tick()), now), now)

    def gang(self, *, begins: bool, now: float) -> None:
        """Let a gang on sites a and b, which communicates all the time, begin or end."""
        members = [one for one in NODES if one.site != "c"]
        changes = self.traffic.begin("gang", members, 1.0, 1.0) if begins else self.traffic.end("gang")
        self.share((), changes, now)

    def play(self, until: float = 1e9) -> dict[int, tuple[float, float]]:
        while self.heap and self.heap[0][0] <= until:
            now, _, event = heappop(self.heap)
            report, due, changes = self.uploads.arrive(self.cluster, event, now)
            self.share(due, changes, now)
            if report is not None:
                self.ends[report.chunk] = (now, report.seconds)
        return self.ends


def test_uploads_of_one_link_go_one_after_the_other() -> None:
    course = Course()
    course.send((0, 1, 2), "b", 5.0)
    assert course.play() == {0: (15.0, 10.0), 1: (25.0, 10.0), 2: (35.0, 10.0)}
    assert not course.traffic.loads.loads


def test_uploads_to_two_sites_share_the_uplink_of_their_source() -> None:
    """Two transfers take 2β + η each for what they send together."""
    course = Course()
    course.send((0,), "b", 0.0)
    course.send((1,), "c", 0.0)
    both = 10 * (2 + PENALTY_RATIO)
    assert course.play() == {0: pytest.approx((both, both)), 1: pytest.approx((both, both))}


def test_gang_delays_an_upload_while_it_trains() -> None:
    course = Course()
    course.send((0,), "b", 0.0)
    course.play(4.0)
    course.gang(begins=True, now=4.0)
    course.play(8.0)
    course.gang(begins=False, now=8.0)
    sent = 4.0 + 4.0 / (2 + PENALTY_RATIO)
    end = 8.0 + (10.0 - sent)
    assert course.play() == {0: pytest.approx((end, end))}


def test_upload_that_ends_sooner_is_reported_once() -> None:
    course = Course()
    course.gang(begins=True, now=0.0)
    course.send((0,), "b", 0.0)
    course.play(8.0)
    course.gang(begins=False, now=8.0)
    end = 8.0 + 10.0 - 8.0 / (2 + PENALTY_RATIO)
    assert course.play() == {0: pytest.approx((end, end))}


def test_dedicated_link_is_never_shared() -> None:
    course = Course(dedicated=True)
    course.gang(begins=True, now=0.0)
    course.send((0, 1), "b", 0.0)
    assert course.play() == {0: (10.0, 10.0), 1: (10.0, 10.0)}


def test_upload_slows_a_gang_down() -> None:
    course = Course()
    course.gang(begins=True, now=0.0)
    due, changes = course.uploads.send(course.cluster, StageData("default/data", (0,), "b", Tick()), 1.0)
    assert changes == {"gang": pytest.approx(1 + PENALTY_RATIO)}
    assert due[0][0] == pytest.approx(1.0 + 10 * (2 + PENALTY_RATIO))


def test_uploads_without_gangs_end_as_without_contention() -> None:
    jobs = tuple(job(f"j{at}", 20.0 * at, chunks=3, seconds=60.0, data_site="a", chunk_bytes=1e9) for at in range(4))
    sites = (Site("a", links={"b": Link(WAN)}), Site("b"))
    nodes = (node("n0", "a"), node("n1", "b", gpus=2))
    results = [run(Scenario(jobs, nodes, sites, "chunk", level_network=NETWORK, contention=on)) for on in (True, False)]
    first, second = ({one.key: one.completed for one in result.jobs} for result in results)
    assert first == pytest.approx(second)
    assert len(first) == 4


def test_dropped_uploads_leave_the_link_to_the_others() -> None:
    """Chunk 0 is half sent to b when it is dropped; chunk 1 follows there, and chunk 2 goes on to c."""
    course = Course()
    course.send((0, 1), "b", 0.0)
    course.send((2,), "c", 0.0)
    both = 2 + PENALTY_RATIO
    course.play(5.0)
    course.share(*course.uploads.drop(course.cluster, "default/data", 5.0, {0}, "b"), 5.0)
    sent = 10.0 * both
    assert course.play() == {2: pytest.approx((sent, sent)), 1: pytest.approx((sent + 5 / both, sent + 5 / both - 5))}
    assert not course.traffic.loads.loads


def test_upload_of_a_complete_chunk_is_not_begun() -> None:
    course = Course()
    course.send((0, 1, 2), "b", 0.0)
    course.cluster.jobs["default/data"].done.add(1)
    assert course.play() == {0: (10.0, 10.0), 2: (20.0, 10.0)}
