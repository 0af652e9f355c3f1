import json
from pathlib import Path
from typing import Any

import pytest

from fake_api_servers import FakeApi, run
from tranche.kube.clients import ApiClient, ApiError
from tranche.kube.leases import take_term

Answer = tuple[int, dict[str, Any], dict[str, str]]
ABSENT: Answer = (404, {"reason": "NotFound"}, {})
CONFLICT: Answer = (409, {"reason": "Conflict"}, {})


def lease(transitions: int | None, version: str = "7") -> Answer:
    spec = {"leaseDurationSeconds": 15} | ({} if transitions is None else {"leaseTransitions": transitions})
    return 200, {"metadata": {"name": "tranche-scheduler", "resourceVersion": version}, "spec": spec}, {}


def test_the_first_scheduler_creates_the_lease_with_term_one(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [ABSENT, (201, {}, {})]
        async with ApiClient.connect(config) as client:
            assert await take_term(client, "ns", identity="pod-1") == 1
        written = json.loads(api.bodies[-1])
        assert written["metadata"] == {"name": "tranche-scheduler", "namespace": "ns"}
        assert (written["spec"]["holderIdentity"], written["spec"]["leaseTransitions"]) == ("pod-1", 1)

    run(tmp_path, scenario)


def test_a_later_one_counts_up_and_overwrites_only_what_it_has_read(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [lease(4), (200, {}, {})]
        async with ApiClient.connect(config) as client:
            assert await take_term(client, "ns") == 5
        written = json.loads(api.bodies[-1])
        assert written["metadata"]["resourceVersion"] == "7"
        assert written["spec"]["leaseDurationSeconds"] == 15

    run(tmp_path, scenario)


def test_whoever_was_slower_tries_again_and_gets_a_larger_term(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [ABSENT, CONFLICT, lease(1), CONFLICT, lease(2), (200, {}, {})]
        async with ApiClient.connect(config) as client:
            assert await take_term(client, "ns") == 3

    run(tmp_path, scenario)


def test_a_deleted_lease_does_not_lead_back_to_terms_that_plans_have(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers += [ABSENT, (201, {}, {}), lease(None), (200, {}, {})]
        async with ApiClient.connect(config) as client:
            assert await take_term(client, "ns", above=41) == 42
            assert await take_term(client, "ns") == 1

    run(tmp_path, scenario)


def test_a_refusal_is_not_retried(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        api.answers.append((403, {"reason": "Forbidden"}, {}))
        async with ApiClient.connect(config) as client:
            with pytest.raises(ApiError, match="403"):
                await take_term(client, "ns")
            api.answers += [lease(1), (403, {"reason": "Forbidden"}, {})]
            with pytest.raises(ApiError, match="403"):
                await take_term(client, "ns")

    run(tmp_path, scenario)
