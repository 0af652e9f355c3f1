"""Observations of the demo on a cluster that stops answering, for a moment or permanently."""

import io
from typing import Any, cast

import pytest
from rich.console import Console

import tranche.demo.run as runs
from tranche.demo.cluster_snapshot import Copy, Snapshot, observe, observe_copies, read_copies
from tranche.demo.live_screen import Screen
from tranche.kube.api.resources import SiteObject
from tranche_testcluster import Cluster


class Sleepy:
    """A cluster whose first answers do not come."""

    def __init__(self, silent: int) -> None:
        self.silent = silent

    def request(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        self.silent -= 1
        if self.silent >= 0:
            raise TimeoutError("The read operation timed out")
        return 200, {"items": []}


def test_an_answer_that_did_not_come_is_asked_for_again() -> None:
    assert observe(cast("Cluster", Sleepy(1)), "default").jobs == ()
    with pytest.raises(TimeoutError):
        observe(cast("Cluster", Sleepy(2)), "default")


def test_unreachable_api_server_ends_demo_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_silent(*_: object) -> bool:
        observe(cast("Cluster", Sleepy(2)), "default")
        return True

    monkeypatch.setattr(runs, "_run", fall_silent)
    with pytest.raises(runs.DemoError, match=r"^the API server does not respond \(The read operation timed out\)"):
        runs.run(Console(), runs.DemoSettings())


METRICS = """# HELP tranche_link_busy_seconds Seconds
tranche_link_busy_seconds{source="edge-b",target="cloud"} 2.6
tranche_link_busy_seconds{source="edge-a",target="cloud"} 12.0
tranche_link_busy_seconds{source="edge-a",target="edge-b"} 0.0
tranche_uploads_total{source="edge-a",target="cloud"} 4.0
"""


def test_links_that_are_busy_are_read_from_the_metrics() -> None:
    assert read_copies(METRICS) == (Copy("edge-a", "cloud", 12.0), Copy("edge-b", "cloud", 2.6))


def test_a_scheduler_that_does_not_answer_has_no_copies_to_show() -> None:
    assert observe_copies("http://127.0.0.1:1") == ()


def test_the_screen_shows_the_cloud_and_copies_under_way() -> None:
    spec = {"tier": "Cloud", "unlimited": True, "nodeSelector": {"zone": "cloud"}}
    status = {"nodes": 2, "gpus": 8, "allocatedGpus": 3}
    site = SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": spec, "status": status})
    snapshot = Snapshot((), (site,), read_copies(METRICS))
    plain = Console(file=io.StringIO(), width=200)
    Screen(plain, 3, "chunk").show(10.0, snapshot)
    assert isinstance(plain.file, io.StringIO)
    assert "GPUs: cloud 3/8  copies: edge-a to cloud 12 s, edge-b to cloud 3 s" in plain.file.getvalue()
    terminal = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    with Screen(terminal, 3, "chunk") as screen:
        screen.show(10.0, snapshot)
    assert isinstance(terminal.file, io.StringIO)
    text = terminal.file.getvalue()
    assert "3/8 GPUs on 2 nodes, on demand" in text
    assert "data coming from edge-a 12 s, edge-b 3 s" in text
