"""Time and frequency of status writes."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from support.virtual_time_loop import JumpingLoop, run
from support.waiting import WAIT_SECONDS
from tranche.kube.api.names import REJECTION_MANAGER
from tranche.kube.client.client import ApiError
from tranche.kube.client.leader_election import LeadershipLostError
from tranche.live import status_writer
from tranche.live.status_writer import REPORT_GAP_SECONDS, REQUEST_SECONDS, Priority, StatusWriter
from tranche.runtime.report_pace import DOUBLING_SECONDS, PATIENCE_SECONDS


def test_who_waits_too_long_to_lead_again_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "MAX_LAPSE_SECONDS", 0.0)

    async def scenario() -> None:
        writer = StatusWriter(None, lambda _: None)  # type: ignore[arg-type]
        writer.put("/a", dict)
        await asyncio.wait_for(writer.run(lambda: False), WAIT_SECONDS)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.value.subgroup(LeadershipLostError) is not None


class Slow:
    """An API server that takes 0.05 s for a write."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.loop = loop
        self.written: list[tuple[float, str, Any]] = []

    async def apply(self, path: str, body: Any, manager: str) -> None:
        self.written.append((round(self.loop.time(), 3), path, body["value"]))
        await asyncio.sleep(0.05)


def told(*puts: tuple[float, str, bool]) -> list[tuple[float, str, Any]]:
    """Return what is written of puts (when, path, lazy); each writes its own number."""
    written: list[tuple[float, str, Any]] = []

    async def main(loop: JumpingLoop) -> None:
        api = Slow(loop)
        writer = StatusWriter(api, lambda _: None, clock=loop.time)  # type: ignore[arg-type]
        writing = asyncio.ensure_future(writer.run())
        for number, (at, path, lazy) in enumerate(puts):
            await asyncio.sleep(max(0.0, at - loop.time()))
            writer.put(path, value(number), Priority.LOW if lazy else Priority.HIGH)
        await asyncio.sleep(8.0)
        writing.cancel()
        await asyncio.wait([writing])
        written.extend(api.written)

    run(main)
    return written


def value(number: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"value": number}


def test_deferrable_writes_are_merged_for_a_tenth_of_a_second() -> None:
    assert told((1.0, "/a", True), (1.04, "/a", True), (1.05, "/b", True), (1.08, "/a", True)) == [
        (1.1, "/a", 3),
        (1.15, "/b", 2),
    ]


def test_much_that_has_time_is_spread_over_some() -> None:
    puts = [(1.0, f"/{number}", True) for number in range(4)]
    at = {path: when for when, path, _ in told(*puts, (1.12, "/now", False))}
    assert at == {"/0": 1.1, "/1": 1.13, "/2": 1.16, "/3": 1.19, "/now": 1.12}
    many = told(*((1.0, f"/{number}", True) for number in range(500)))
    assert len(many) == 500
    assert 3.0 < max(when for when, _, _ in many) < 8.0


def test_changes_of_many_jobs_are_merged_for_longer() -> None:
    first = [(1.0, f"/{number}", True) for number in range(150)]
    then = [(2.0, f"/{number}", True) for number in range(150)]
    assert len(told(*first, *then)) == 150


def test_what_has_none_is_written_at_once_with_what_has_waited() -> None:
    assert told((1.0, "/a", True), (1.02, "/a", False), (1.5, "/a", True)) == [(1.02, "/a", 1), (1.6, "/a", 2)]


def test_change_during_write_is_written_after_it_or_later() -> None:
    assert told((1.0, "/a", False), (1.01, "/a", True)) == [(1.0, "/a", 0), (1.15, "/a", 1)]
    assert told((1.0, "/a", False), (1.01, "/a", True), (1.02, "/a", False)) == [(1.0, "/a", 0), (1.05, "/a", 2)]


class Burst:
    """A writer to which plans that open windows are given without a break."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.api = Slow(loop)
        self.writer = StatusWriter(self.api, lambda _: None, clock=loop.time)  # type: ignore[arg-type]
        self.loop = loop

    async def open_windows(self, seconds: float) -> None:
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            self.writer.put("/open", value(0))
            await asyncio.sleep(0.1)

    def written(self, prefix: str) -> list[float]:
        return [at for at, path, _ in self.api.written if path.startswith(prefix)]


def play(steps: Callable[[Burst], Awaitable[None]]) -> None:
    async def main(loop: JumpingLoop) -> None:
        burst = Burst(loop)
        writing = asyncio.ensure_future(burst.writer.run())
        await steps(burst)
        writing.cancel()
        await asyncio.wait([writing])

    run(main)


def test_few_reports_are_written_while_windows_open() -> None:
    async def steps(burst: Burst) -> None:
        for number in range(100):
            burst.writer.put(f"/report/{number}", value(number), Priority.REPORT)
        await burst.open_windows(10.0)
        assert 15 <= len(burst.written("/report")) <= 10.0 / REPORT_GAP_SECONDS
        await asyncio.sleep(10.0)
        assert len(burst.written("/report")) == 100

    play(steps)


def test_reports_wait_while_pods_start() -> None:
    async def steps(burst: Burst) -> None:
        for number in range(100):
            burst.writer.put(f"/report/{number}", value(number), Priority.REPORT)
        for _ in range(50):
            burst.writer.hold_reports()
            await asyncio.sleep(0.1)
        assert len(burst.written("/report")) <= 5.0 / REPORT_GAP_SECONDS

    play(steps)


def test_writer_holds_reports_while_pods_start_and_many_wait() -> None:
    async def steps(burst: Burst) -> None:
        assert not burst.writer.is_holding_reports
        burst.writer.hold_reports()
        assert not burst.writer.is_holding_reports
        for number in range(100):
            burst.writer.put(f"/report/{number}", value(number), Priority.REPORT)
        assert burst.writer.is_holding_reports
        await asyncio.sleep(10.0)
        assert not burst.writer.is_holding_reports

    play(steps)


def test_late_reports_are_written_ever_faster_as_windows_open() -> None:
    async def steps(burst: Burst) -> None:
        for number in range(1000):
            burst.writer.put(f"/report/{number}", value(number), Priority.REPORT)
        await burst.open_windows(PATIENCE_SECONDS)
        assert len(burst.written("/report")) <= PATIENCE_SECONDS / REPORT_GAP_SECONDS
        for _ in range(6):
            await burst.open_windows(DOUBLING_SECONDS)
        ends = [PATIENCE_SECONDS + DOUBLING_SECONDS * number for number in range(5)]
        times = burst.written("/report")
        counts = [sum(earlier < at <= later for at in times) for earlier, later in pairwise(ends)]
        assert all(1.5 * earlier <= later <= 3 * earlier for earlier, later in pairwise(counts))
        assert len(times) == 1000

    play(steps)


def test_a_first_plan_is_no_report() -> None:
    async def steps(burst: Burst) -> None:
        burst.writer.put("/first", value(1), Priority.LOW)
        await burst.open_windows(1.0)
        assert burst.written("/first") == [0.1]

    play(steps)


def test_an_unfinished_write_holds_no_reports_once_it_has_failed() -> None:
    async def main(loop: JumpingLoop) -> None:
        api = Api(loop, {"bad": NO_WEBHOOK}, {})
        writer = StatusWriter(api, lambda _: None, clock=loop.time)  # type: ignore[arg-type]
        writing = asyncio.ensure_future(writer.run())
        writer.put("/bad", value(0))
        for number in range(50):
            writer.put(f"/report/{number}", value(number), Priority.REPORT)
        await asyncio.sleep(8.0)
        assert len(api.written) == 50
        writing.cancel()
        await asyncio.wait([writing])

    run(main)


DENIED = ApiError(403, "Forbidden", 'admission webhook "policy.example.com" denied the request')
TOO_LARGE = ApiError(500, "InternalError", "etcdserver: request is too large")
NO_WEBHOOK = ApiError(500, "InternalError", 'failed calling webhook "policy.example.com": context deadline exceeded')
BUSY = ApiError(429, "TooManyRequests", "try again later", retry_after=3600.0)
TIMEOUT = ApiError(504, "Timeout", "request did not complete within requested timeout")
CONFLICT = ApiError(409, "Conflict", "the object has been modified")
NO_RIGHTS = ApiError(403, "Forbidden", 'jobs is forbidden: User "x" cannot patch resource "trainingjobs/status"')


class Api:
    """An API server that takes some seconds for a write and may answer with an error, by a part of the path."""

    def __init__(self, loop: JumpingLoop, errors: dict[str, ApiError], seconds: dict[str, float]) -> None:
        self.loop = loop
        self.errors = errors
        self.seconds = seconds
        self.tried: list[tuple[float, str, str]] = []
        self.written: dict[str, float] = {}

    async def apply(self, path: str, body: Any, manager: str) -> None:
        self.tried.append((round(self.loop.time(), 3), path, manager))
        await asyncio.sleep(next((took for part, took in self.seconds.items() if part in path), 0.005))
        error = next((error for part, error in self.errors.items() if part in path), None)
        if error is not None and manager != REJECTION_MANAGER:
            raise error
        self.written[path] = self.loop.time()

    def tries(self, path: str) -> list[float]:
        return [at for at, tried, _ in self.tried if tried == path]


def path_of(namespace: str, name: object) -> str:
    return f"/apis/tranche.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}/status"


def scene(
    steps: Callable[[Api, StatusWriter], Any],
    errors: dict[str, ApiError] | None = None,
    seconds: dict[str, float] | None = None,
    rejected: Callable[[str, ApiError], None] = lambda path, error: None,
) -> list[str]:
    """Run steps beside a writer in virtual time; return the counted results."""
    counted: list[str] = []

    async def main(loop: JumpingLoop) -> None:
        api = Api(loop, errors or {}, seconds or {})
        writer = StatusWriter(api, counted.append, clock=loop.time, rejected=rejected)  # type: ignore[arg-type]
        writing = asyncio.ensure_future(writer.run())
        await steps(api, writer)
        writing.cancel()
        await asyncio.wait([writing])

    run(main)
    return counted


@pytest.mark.parametrize("error", [DENIED, TOO_LARGE, NO_WEBHOOK])
def test_rejected_objects_do_not_delay_good_ones(error: ApiError) -> None:
    async def steps(api: Api, writer: StatusWriter) -> None:
        for number in range(1000):
            writer.put(path_of("bad", number), value(number))
        await asyncio.sleep(0.05)
        for number in range(100):
            writer.put(path_of("good", number), value(number))
        await asyncio.sleep(5.0)
        assert len(api.written) == 100
        assert max(api.written.values()) < 0.2

    assert scene(steps, {"/bad/": error}).count("written") == 100


def test_rejected_objects_do_not_delay_their_own_namespace() -> None:
    async def steps(api: Api, writer: StatusWriter) -> None:
        for number in range(1000):
            writer.put(path_of("team", f"bad-{number}"), value(number))
        await asyncio.sleep(0.5)
        for number in range(100):
            writer.put(path_of("team", f"good-{number}"), value(number))
        await asyncio.sleep(4.5)
        assert len(api.written) == 100

    scene(steps, {"/bad-": DENIED})


def test_webhook_without_response_delays_only_its_namespace() -> None:
    async def steps(api: Api, writer: StatusWriter) -> None:
        for number in range(1000):
            writer.put(path_of("bad", number), value(number))
        await asyncio.sleep(12.0)
        for number in range(100):
            writer.put(path_of("good", number), value(number))
        await asyncio.sleep(1.0)
        assert len(api.written) == 100

    scene(steps, {"/bad/": NO_WEBHOOK}, {"/bad/": 10.0})


def test_slow_namespaces_with_a_backlog_do_not_delay_others() -> None:
    """Also the writes that were queued before the namespaces turned out to be slow."""

    async def steps(api: Api, writer: StatusWriter) -> None:
        for number in range(1000):
            writer.put(path_of(f"slow-{number % 3}", number), value(number))
        await asyncio.sleep(12.0)
        for number in range(100):
            writer.put(path_of("good", number), value(number))
        await asyncio.sleep(1.0)
        assert sum("/good/" in path for path in api.written) == 100

    scene(steps, seconds={"/slow-": 10.0})


def test_rejected_object_is_told_and_tried_again_in_minutes() -> None:
    reported: list[str] = []
    one = path_of("bad", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        for _ in range(1200):  # twenty minutes of decisions about the job, one a second
            writer.put(one, value(1))
            await asyncio.sleep(1.0)
        assert [round(at) for at in api.tries(one)] == [0, 30, 90, 210, 450, 750, 1050]

    counted = scene(steps, {"/bad/": DENIED}, rejected=lambda path, error: reported.append(path))
    assert reported == [one] * 7
    assert counted == ["refused"] * 7


def test_changed_object_is_written_at_once_after_rejection() -> None:
    one = path_of("bad", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(one, value(1))
        await asyncio.sleep(1.0)
        writer.put(one, value(2))
        api.errors.clear()
        writer.retry_now(one)
        await asyncio.sleep(1.0)
        assert api.tries(one) == [0.0, 1.0]
        writer.put(one, value(3))
        await asyncio.sleep(0.1)
        assert api.tries(one) == [0.0, 1.0, 2.0]

    scene(steps, {"/bad/": DENIED})


def test_last_status_is_repeated_after_rejection() -> None:
    one = path_of("bad", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(one, value(1))
        await asyncio.sleep(1.0)
        api.errors.clear()
        await asyncio.sleep(status_writer.FIRST_REJECTION_SECONDS)
        assert one in api.written
        assert len(api.tries(one)) == 2

    assert scene(steps, {"/bad/": DENIED}) == ["refused", "written"]


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ApiError(404, "NotFound", 'trainingjobs.tranche.dev "a" not found'), ["gone"]),
        (ApiError(404, "NotFound", "the server could not find the requested resource"), ["retried", "written"]),
        (ApiError(404, "Not Found", "404 page not found"), ["retried", "written"]),
    ],
)
def test_only_an_object_that_does_not_exist_is_gone(error: ApiError, counts: list[str]) -> None:
    """While a CRD is replaced, the API server answers 404 too; the plan must not be lost then."""

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(path_of("team", "a"), value(1))
        await asyncio.sleep(0.1)
        api.errors.clear()
        await asyncio.sleep(1.0)

    assert scene(steps, {"/team/": error}) == counts


def test_write_is_unsettled_until_it_is_answered() -> None:
    """A rejected write has not been applied; without an answer, that is unknown while the API server may handle it."""
    good, lost, bad = path_of("good", "a"), path_of("lost", "a"), path_of("bad", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        for path in (good, lost, bad):
            writer.put(path, value(1))
        await asyncio.sleep(0.001)
        assert all(writer.is_unsettled(path) for path in (good, lost, bad))
        await asyncio.sleep(0.01)
        assert [writer.is_unsettled(path) for path in (good, lost, bad)] == [False, True, False]
        api.errors.clear()
        await asyncio.sleep(1.0)
        assert not writer.is_unsettled(lost)

    scene(steps, {"/bad/": DENIED, "/lost/": TIMEOUT})


def test_rejection_after_lost_write_is_settled_in_time() -> None:
    path = path_of("team", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(path, value(1))
        await asyncio.sleep(0.05)
        api.errors["/team/"] = DENIED
        await asyncio.sleep(REQUEST_SECONDS - 1.0)
        assert writer.is_unsettled(path)
        await asyncio.sleep(1.0)
        assert not writer.is_unsettled(path)

    assert scene(steps, {"/team/": TIMEOUT})[:2] == ["retried", "refused"]


@pytest.mark.parametrize(
    ("error", "result"),
    [(BUSY, "retried"), (CONFLICT, "retried"), (TOO_LARGE, "refused"), (NO_WEBHOOK, "refused")],
)
def test_write_that_failed_for_certain_is_settled(error: ApiError, result: str) -> None:
    path = path_of("team", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(path, value(1))
        await asyncio.sleep(0.05)
        assert not writer.is_unsettled(path)
        api.errors["/team/"] = DENIED
        await asyncio.sleep(40.0)
        assert not writer.is_unsettled(path)

    assert scene(steps, {"/team/": error})[0] == result


def test_unchanged_status_is_written_when_its_object_changes() -> None:
    one = path_of("bad", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(one, value(1))
        await asyncio.sleep(1.0)
        api.errors.clear()
        writer.retry_now(one)
        await asyncio.sleep(1.0)
        assert api.tries(one) == [0.0, 1.0]

    scene(steps, {"/bad/": DENIED})


def test_retry_after_is_capped_and_holds_up_no_worker() -> None:
    one = path_of("busy", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        for name in ("a", *range(50)):
            writer.put(path_of("busy", name), value(1))
        await asyncio.sleep(0.5)
        writer.put(path_of("good", "a"), value(1))
        await asyncio.sleep(0.1)
        assert list(api.written) == [path_of("good", "a")]
        await asyncio.sleep(70.0)
        assert [round(at) for at in api.tries(one)] == [0, 30, 60]

    scene(steps, {"/busy/": BUSY})


def test_missing_rights_are_no_rejection_of_the_object() -> None:
    one = path_of("any", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(one, value(1))
        await asyncio.sleep(30.0)
        api.errors.clear()
        await asyncio.sleep(status_writer.LONGEST_PAUSE_SECONDS)
        assert one in api.written

    counted = scene(steps, {"/any/": NO_RIGHTS})
    assert "refused" not in counted


def test_fence_error_rejects_the_object_and_ends_no_process() -> None:
    message = "status.plan: Invalid value: a newer planner has written this plan (term, revision)"
    fenced = ApiError(422, "Invalid", message)

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(path_of("bad", "a"), value(1))
        await asyncio.sleep(1.0)
        writer.put(path_of("good", "a"), value(1))
        await asyncio.sleep(1.0)
        assert path_of("good", "a") in api.written

    assert scene(steps, {"/bad/": fenced}) == ["refused", "written"]


def test_condition_of_rejected_object_is_applied_alone() -> None:
    one = path_of("bad", "a")

    async def steps(api: Api, writer: StatusWriter) -> None:
        writer.put(one, value(1))
        await asyncio.sleep(1.0)
        writer.put_condition(one, value(2))
        await asyncio.sleep(1.0)
        assert [manager for _, _, manager in api.tried] == ["tranche-scheduler", REJECTION_MANAGER]

    scene(steps, {"/bad/": DENIED})
