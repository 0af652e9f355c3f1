import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.kube.api.core_types import Pod
from tranche.kube.convert.pod_state import exit_code, is_over, started_at, termination_progress

GI = 2**30
GPU = "nvidia.com/gpu"


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    whole = {"metadata": {"name": "a", "namespace": "ns", **metadata}, "spec": spec or {}, "status": status or {}}
    return msgspec.json.decode(json.dumps(whole), type=Pod)


def ended(code: int = 0, message: str = "", name: str = "main") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "message": message, "startedAt": "2026-01-01T00:00:10Z"}}
    return {"containerStatuses": [{"name": name, "state": state}]}


class TestEnds:
    @pytest.mark.parametrize(
        ("made", "over"),
        [
            (pod(status={"phase": "Running"}), False),
            (pod(status={"phase": "Succeeded"}), True),
            (pod(status={"phase": "Failed"}), True),
            (pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30), True),
            (pod({"nodeName": "n"}, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30), False),
            (pod({"nodeName": "n"}, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0), True),
            (pod({"nodeName": "n"}), False),
        ],
    )
    def test_a_pod_is_over_when_nothing_of_it_can_run_any_more(self, made: Pod, over: bool) -> None:
        assert is_over(made) is over

    def test_exit_code_and_start_are_of_first_container_in_spec(self) -> None:
        statuses = [
            {"name": "logs", "state": {"terminated": {"exitCode": 9, "startedAt": "2026-01-01T00:00:00Z"}}},
            {"name": "main", "state": {"terminated": {"exitCode": 3, "startedAt": "2026-01-01T00:00:10Z"}}},
        ]
        made = pod({"containers": [{"name": "main"}, {"name": "logs"}]}, {"containerStatuses": statuses})
        assert exit_code(made) == 3
        assert started_at(made) == 1767225610.0

    def test_a_container_that_runs_has_started_and_not_ended(self) -> None:
        state = {"running": {"startedAt": "2026-01-01T00:00:10Z"}}
        made = pod(status={"containerStatuses": [{"name": "m", "state": state}]})
        assert (started_at(made), exit_code(made)) == (1767225610.0, None)

    def test_a_container_that_waits_has_not_started(self) -> None:
        made = pod(status={"containerStatuses": [{"name": "m", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]})
        assert (started_at(made), exit_code(made), termination_progress(made)) == (None, None, None)
        assert (started_at(pod()), exit_code(pod()), termination_progress(pod())) == (None, None, None)


class TestProgress:
    @given(st.dictionaries(st.integers(0, 1999), st.integers(0, 10**12), max_size=20))
    def test_what_a_worker_writes_is_read_back(self, batches: dict[int, int]) -> None:
        assert termination_progress(pod(status=ended(143, json.dumps(batches)))) == batches

    def test_a_member_of_a_gang_writes_a_fraction_of_its_one_batch(self) -> None:
        assert termination_progress(pod(status=ended(143, '{"3": 0.375}'))) == {3: 0.375}

    def test_ranges_of_chunks_share_one_count(self) -> None:
        message = '{"0-2,7": 250, "3": 17}'
        progress = {0: 250, 1: 250, 2: 250, 7: 250, 3: 17}
        assert termination_progress(pod(status=ended(143, message))) == progress

    @pytest.mark.parametrize(
        "message",
        ['{"0-9999": 1}', '{"0-1999": 1, "0-1998": 2}', '{"1-": 1}', '{"1,,2": 1}', '{"1": 1}' + 4096 * " ",
         "", "Killed", "[1]", '{"a": 1}', '{"1": -1}', '{"-1": 1}', '{"1": "2"}', '{"1": 1', '{"1.5": 1}', "null",
         '{"1": true}', '{"1": 99999999999999999999999}'],
    )  # fmt: skip
    def test_any_other_message_says_nothing(self, message: str) -> None:
        assert termination_progress(pod(status=ended(1, message))) is None

    @given(st.text(max_size=100))
    def test_garbage_never_raises(self, message: str) -> None:
        progress = termination_progress(pod(status=ended(1, message)))
        assert progress is None or isinstance(progress, dict)
