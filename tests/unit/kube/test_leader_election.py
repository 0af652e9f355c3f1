"""Candidates for a Lease in virtual time, each against a server whose answers the test sets."""

import asyncio
import json
import time
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from support.fake_api_server import FakeApi, run
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.client.errors import Unreachable
from tranche.kube.client.leader_election import Leadership, LeadershipLostError, LeaseSettings

Answer = tuple[int, dict[str, Any], dict[str, str]]
ABSENT: Answer = (404, {"reason": "NotFound"}, {})
CONFLICT: Answer = (409, {"reason": "Conflict"}, {})
BROKEN: Answer = (500, {"reason": "InternalError"}, {})
FORBIDDEN: Answer = (403, {"reason": "Forbidden"}, {})
SETTINGS = LeaseSettings(duration_seconds=8, renewal_seconds=2.0, retry_seconds=1.0)


def lease(transitions: int | None, holder: str = "", renewed: str = "t0", version: str = "7") -> Answer:
    spec: dict[str, Any] = {"leaseDurationSeconds": 8, "renewTime": renewed}
    spec |= {} if transitions is None else {"leaseTransitions": transitions}
    spec |= {"holderIdentity": holder} if holder else {}
    return 200, {"metadata": {"name": "tranche-scheduler", "resourceVersion": version}, "spec": spec}, {}


class Candidate:
    """One with a clock that only sleeping moves."""

    def __init__(
        self, client: ApiClient, identity: str = "me", annotations: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self.now = 100.0
        self.leadership = Leadership(
            client, "ns", identity, SETTINGS, annotations=annotations, clock=lambda: self.now, sleep=self._sleep
        )

    async def take(self, largest: int = 0) -> int:
        return await self.leadership.take(lambda: largest)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds


def bodies(api: FakeApi) -> list[dict[str, Any]]:
    return [json.loads(body) for body in api.bodies if body]


def test_the_first_scheduler_creates_the_lease_with_term_one(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [ABSENT, lease(1, "me")]
        async with ApiClient.connect(config) as client:
            assert await Candidate(client).take() == 1
        written = bodies(api)[-1]
        assert written["metadata"] == {"name": "tranche-scheduler", "namespace": "ns"}
        assert (written["spec"]["holderIdentity"], written["spec"]["leaseTransitions"]) == ("me", 1)

    run(tmp_path, scenario)


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_renewals_have_the_time_of_the_api_server(tmp_path: Path, ahead: float) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        date = {"Date": formatdate(time.time() + ahead, usegmt=True)}
        api.answers += [(404, {"reason": "NotFound"}, date), lease(1, "me")]
        async with ApiClient.connect(config) as client:
            await Candidate(client).take()
        renewed = datetime.fromisoformat(bodies(api)[-1]["spec"]["renewTime"]).timestamp()
        assert renewed - time.time() == pytest.approx(ahead, abs=60.0)

    run(tmp_path, scenario)


def test_released_lease_is_taken_at_once_with_read_version(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(4), lease(5, "me")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            assert await candidate.take() == 5
            assert candidate.now == 100.0
        assert bodies(api)[-1]["metadata"]["resourceVersion"] == "7"

    run(tmp_path, scenario)


def test_lease_of_other_holder_is_taken_after_unchanged_duration(
    tmp_path: Path,
) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        renewed = [lease(4, "other", f"t{second // 2}") for second in range(6)]  # every two seconds, until the fifth
        silent = [lease(4, "other", "t2")] * 7
        api.answers += [*renewed, *silent, lease(5, "me")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            assert await candidate.take() == 5
            assert candidate.now == 100.0 + 4 + 8

    run(tmp_path, scenario)


def test_lease_held_under_own_name_is_taken_at_once(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(4, "me"), lease(5, "me")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            assert (await candidate.take(), candidate.now) == (5, 100.0)

    run(tmp_path, scenario)


def test_candidate_after_conflict_retries_and_gets_larger_term(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [ABSENT, CONFLICT, lease(1), CONFLICT, lease(2), lease(3, "me")]
        async with ApiClient.connect(config) as client:
            assert await Candidate(client).take() == 3

    run(tmp_path, scenario)


def test_deleted_lease_is_taken_with_term_above_known_terms(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [ABSENT, lease(42, "me"), lease(None), lease(1, "me")]
        async with ApiClient.connect(config) as client:
            assert await Candidate(client).take(largest=41) == 42
            assert await Candidate(client).take() == 1

    run(tmp_path, scenario)


def test_term_follows_the_lease_whatever_the_plans_say(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(7), lease(8, "me")]
        async with ApiClient.connect(config) as client:
            assert await Candidate(client).take(largest=2**31 - 1) == 8
        assert bodies(api)[-1]["spec"]["leaseTransitions"] == 8

    run(tmp_path, scenario)


def test_candidate_survives_server_errors_but_not_long_refusals(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [BROKEN, lease(1), BROKEN, lease(1), lease(2, "me"), *[FORBIDDEN] * 60, (400, {}, {})]
        async with ApiClient.connect(config) as client:
            assert await Candidate(client).take() == 2
            refused = Candidate(client)
            with pytest.raises(ApiError, match="403"):
                await refused.take()
            assert refused.now == 100.0 + SETTINGS.forbidden_seconds
            del api.answers[:-1]
            with pytest.raises(ApiError, match="400"):
                await Candidate(client).take()

    run(tmp_path, scenario)


def test_candidate_retries_if_starting_server_forbids_lease(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [FORBIDDEN, lease(1), FORBIDDEN, lease(1), lease(2, "me")]
        async with ApiClient.connect(config) as client:
            assert await Candidate(client).take() == 2

    run(tmp_path, scenario)


def test_holder_survives_failures_and_is_deposed_by_new_holder(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), lease(2, "me", version="8"), lease(2, "me", version="9"), BROKEN, BROKEN]
        api.answers += [lease(2, "me", version="10"), CONFLICT, lease(3, "other")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            await candidate.take()
            with pytest.raises(LeadershipLostError, match="held by other"):
                await candidate.leadership.keep()
            assert candidate.now == 100.0 + 4 * 2, "the first renewal is at once"
            assert not candidate.leadership.held
        assert [body["metadata"]["resourceVersion"] for body in bodies(api)] == ["7", "8", "9", "9", "9", "10"]

    run(tmp_path, scenario)


def test_conflict_without_new_holder_does_not_depose(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), lease(2, "me"), CONFLICT, lease(2, "me", version="11"), *[FORBIDDEN] * 40]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            await candidate.take()
            with pytest.raises(LeadershipLostError, match="could not be renewed"):
                await candidate.leadership.keep()
        assert bodies(api)[-1]["metadata"]["resourceVersion"] == "11"

    run(tmp_path, scenario)


def test_holder_counts_lease_time_from_before_its_renewal(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), lease(2, "me")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            await candidate.take()
            candidate.now += SETTINGS.takeover_seconds - 0.01
            assert candidate.leadership.held
            candidate.now += 0.01  # as after SIGSTOP and SIGCONT
            assert not candidate.leadership.held

    run(tmp_path, scenario)


def test_new_leader_takes_lease_for_takeover_and_renews_shorter(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), lease(2, "me"), lease(2, "me"), CONFLICT, lease(3, "other")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            await candidate.take()
            with pytest.raises(LeadershipLostError):
                await candidate.leadership.keep()
        seconds = [body["spec"]["leaseDurationSeconds"] for body in bodies(api)]
        assert seconds == [SETTINGS.takeover_seconds, SETTINGS.duration_seconds, SETTINGS.duration_seconds]

    run(tmp_path, scenario)


def test_release_clears_held_lease_and_ignores_others(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), lease(2, "me"), lease(2)]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            await candidate.leadership.release()
            assert api.bodies == []
            await candidate.take()
            await candidate.leadership.release()
            assert bodies(api)[-1]["spec"]["holderIdentity"] == ""
            assert not candidate.leadership.held

    run(tmp_path, scenario)


def test_lease_annotations_are_updated_and_earlier_ones_kept(
    tmp_path: Path,
) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        status, found, headers = lease(4)
        found["metadata"]["annotations"] = {"memory": "old", "others": "kept"}
        ours: dict[str, str] = {"planner": "fifo"}
        api.answers += [(status, found, headers), (200, {}, {}), (200, {}, {})]
        async with ApiClient.connect(config) as client:
            leadership = Leadership(client, "ns", "me", SETTINGS, annotations=lambda: ours)
            await leadership.take(lambda: 0)
            assert leadership.annotations == {"memory": "old", "others": "kept", "planner": "fifo"}
            ours["memory"] = "new"
            await leadership.release()
        assert bodies(api)[-1]["metadata"]["annotations"] == {"memory": "new", "others": "kept", "planner": "fifo"}

    run(tmp_path, scenario)


@pytest.mark.parametrize("status", [413, 422])
def test_lease_with_refused_annotations_is_renewed_without(
    tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        ours = old = {"memory": "old"}
        refused: Answer = (status, {"reason": "Invalid", "message": "too long"}, {})
        renewed = [lease(2, "me", version=version) for version in ("8", "9", "10", "11")]
        for _, found, _ in renewed:
            found["metadata"]["annotations"] = old
        taken, *later, last = renewed
        api.answers += [lease(1), taken, *[one for answer in later for one in (refused, answer)]]
        api.answers += [last, CONFLICT, lease(3, "other")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client, annotations=lambda: ours)
            await candidate.take()
            ours = {"memory": "large"}
            with pytest.raises(LeadershipLostError, match="held by other"):
                await candidate.leadership.keep()
            assert candidate.now == 100.0 + 3 * 2
        written = [(body["metadata"]["resourceVersion"], body["metadata"]["annotations"]) for body in bodies(api)]
        assert written[:5] == [("7", old), ("8", ours), ("8", old), ("9", ours), ("9", old)]
        assert len([one for one in caplog.records if "annotations" in one.message]) == 1

    run(tmp_path, scenario)


def test_renewal_refused_without_annotations_is_an_error(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), lease(2, "me"), *[(422, {"reason": "Invalid"}, {})] * 100]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client, annotations=lambda: {"memory": "large"})
            await candidate.take()
            with pytest.raises(LeadershipLostError, match="could not be renewed"):
                await candidate.leadership.keep()

    run(tmp_path, scenario)


class SlowServer:
    """API server with one free Lease that takes time for its answers; some of them are lost."""

    def __init__(self, lost: Container[int]) -> None:
        self.now, self.writes, self.lost = 0.0, 0, lost
        self.lease: dict[str, Any] = lease(1)[1]
        self.leadership = Leadership(
            self,  # type: ignore[arg-type]
            "ns",
            "me",
            SETTINGS,
            clock=lambda: self.now,
            sleep=self._sleep,
        )
        self.held: list[bool] = []

    @staticmethod
    def server_time() -> float:
        return 1_800_000_000.0

    async def _sleep(self, seconds: float) -> None:
        for moment in (self.now, self.now + seconds):
            self.now = moment
            self.held.append(self.leadership.held)
        if self.writes > 20:
            raise EOFError

    async def request(
        self, method: str, path: str, *, timeout: float, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        self.now += 0.01
        if body is None:
            return self.lease
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "modified")
        self.writes += 1
        self.lease = {"metadata": {**body["metadata"], "resourceVersion": str(100 + self.writes)}, "spec": body["spec"]}
        if self.writes in self.lost:
            self.now += timeout
            raise Unreachable("Timeout", "no answer")
        return self.lease


def test_lost_answer_to_a_renewal_costs_no_leadership() -> None:
    server = SlowServer(lost=(4, 12))
    asyncio.run(server.leadership.take(lambda: 0))
    with pytest.raises(EOFError):
        asyncio.run(server.leadership.keep())
    assert all(server.held)


def test_lease_in_absent_namespace_is_an_error(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        absent: Answer = (404, {"reason": "NotFound", "message": 'namespaces "ns" not found'}, {})
        api.answers += [ABSENT, absent]
        async with ApiClient.connect(config) as client:
            with pytest.raises(ApiError, match='"ns" not found'):
                await Candidate(client).take()

    run(tmp_path, scenario)


def test_candidate_pauses_after_a_conflict(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(1), CONFLICT, lease(2), ABSENT, lease(3), lease(4, "me")]
        async with ApiClient.connect(config) as client:
            candidate = Candidate(client)
            assert await candidate.take() == 4
            assert candidate.now == 100.0 + 2 * SETTINGS.retry_seconds

    run(tmp_path, scenario)
