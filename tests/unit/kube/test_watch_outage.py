"""A watch that is resumed soon is no warning; one that stays down is, until it works again."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fake_api_server import FakeApi, run
from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError, Unreachable
from tranche.kube.client.reflector import Reflector
from tranche.kube.client.watch_outage import DOWN_SECONDS, STEADY_SECONDS, WatchOutage

BROKEN = Unreachable("SocketTimeoutError", "GET /api/v1/nodes: Timeout on reading data from socket")
FORBIDDEN = ApiError(403, "Forbidden", "nodes is forbidden")


def lines(caplog: pytest.LogCaptureFixture, scene: Callable[[WatchOutage], None]) -> list[tuple[str, str]]:
    with caplog.at_level(logging.DEBUG, logger="tranche"):
        scene(WatchOutage("/api/v1/nodes"))
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_short_interruption_is_one_info_line_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    def scene(outage: WatchOutage) -> None:
        outage.resumed(0.0)
        outage.failed(BROKEN, 70.0)
        outage.resumed(71.5)
        outage.resumed(311.5)

    text = "/api/v1/nodes: the watch was interrupted (SocketTimeoutError) and works again after 1.5 s"
    assert lines(caplog, scene) == [("INFO", text)]


def test_long_outage_warns_at_intervals_and_its_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def scene(outage: WatchOutage) -> None:
        for second in range(0, int(2 * DOWN_SECONDS) + 10, 5):
            outage.failed(BROKEN, float(second))
        outage.resumed(2 * DOWN_SECONDS + 12.0)

    found = lines(caplog, scene)
    assert [level for level, _ in found] == ["WARNING", "WARNING", "INFO"]
    assert "down for 30 s" in found[0][1]
    assert "down for 60 s" in found[1][1]
    assert "works again after 72.0 s" in found[2][1]


def test_refusal_that_no_retry_changes_warns_at_once(caplog: pytest.LogCaptureFixture) -> None:
    def scene(outage: WatchOutage) -> None:
        outage.failed(FORBIDDEN, 0.0)
        outage.failed(FORBIDDEN, 0.5)

    assert [level for level, _ in lines(caplog, scene)] == ["WARNING"]


def test_watch_that_breaks_at_once_again_counts_as_down(caplog: pytest.LogCaptureFixture) -> None:
    def scene(outage: WatchOutage) -> None:
        for second in range(0, int(DOWN_SECONDS) + 5, 5):
            outage.failed(BROKEN, float(second))
            outage.resumed(second + 0.5)
            assert second + 0.5 + STEADY_SECONDS < second + 5
        for tenth in range(0, int(10 * DOWN_SECONDS) + 20, 5):
            outage.failed(BROKEN, 1000.0 + tenth / 10)
            outage.resumed(1000.1 + tenth / 10)

    levels = [level for level, _ in lines(caplog, scene)]
    assert levels.count("WARNING") == 1


def test_cut_watch_that_is_resumed_logs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        async with ApiClient.connect(config) as client:
            reflector: Reflector[bytes] = Reflector(
                client, "/api/v1/pods", lambda raw: raw, sleep=lambda _: asyncio.sleep(0)
            )
            running = asyncio.create_task(reflector.run())
            await reflector.synced()
            await api.cut()
            api.put("a")
            while not reflector.store:
                await asyncio.sleep(0.001)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with caplog.at_level(logging.DEBUG, logger="tranche"):
        run(tmp_path, scenario)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "/api/v1/pods: the watch was interrupted (" in caplog.records[0].getMessage()
