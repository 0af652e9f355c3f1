"""The training container of a pod to which admission has added others."""

from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import Pod
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pod_outcome import outcome
from tranche.kube.convert.pod_state import exit_code, has_ended, is_over, started_at, termination_progress
from tranche.kube.convert.training_container import (
    container_name,
    has_terminated,
    is_from,
    others_go_on,
    others_remain,
    template_annotations,
)

LABELS = {"tranche.dev/job": "j", "tranche.dev/role": "worker", "tranche.dev/index": "0", "tranche.dev/attempt": "1"}
TRAINER = {"tranche.dev/training-container": "main"}
PROXY = {"name": "istio-proxy"}
MAIN = {"name": "main"}


def terminated(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


def pod(status: dict[str, Any], containers: tuple[dict[str, Any], ...] = (PROXY, MAIN), **metadata: Any) -> Pod:
    whole = {"name": "p", "namespace": "d", "uid": "u", "labels": LABELS, "annotations": TRAINER, **metadata}
    raw = {"metadata": whole, "spec": {"nodeName": "n", "containers": containers}, "status": status}
    return decode_pod(msgspec.json.encode(raw))


def states(main: dict[str, Any], proxy: dict[str, Any], phase: str = "Running", **more: Any) -> dict[str, Any]:
    statuses = [{"name": "istio-proxy", "state": proxy}, {"name": "main", "state": main}]
    return {"phase": phase, "containerStatuses": statuses, **more}


RUNS: dict[str, Any] = {"running": {"startedAt": "2026-11-22T10:00:00Z"}}


class TestProxyFirst:
    ended = pod(
        states(
            terminated(143, startedAt="2026-11-22T10:00:05Z", message='{"3": 900}'),
            terminated(0, startedAt="2026-11-22T10:00:00Z"),
            "Failed",
        )
    )

    def test_progress_is_read_from_the_training_container(self) -> None:
        assert termination_progress(self.ended) == {3: 900}

    def test_exit_code_and_start_are_those_of_the_training_container(self) -> None:
        assert exit_code(self.ended) == 143
        assert started_at(self.ended) == 1795341605.0

    def test_training_has_not_started_with_the_proxy(self) -> None:
        assert (
            started_at(pod({"phase": "Pending", "containerStatuses": [{"name": "istio-proxy", "state": RUNS}]})) is None
        )


class TestSidecarRunsOn:
    def test_training_has_ended_and_the_pod_is_not_over(self) -> None:
        seen = pod(states(terminated(0), RUNS))
        assert has_ended(seen)
        assert not is_over(seen)

    @pytest.mark.parametrize(("code", "result"), [(0, "Succeeded"), (1, "Failed")])
    def test_exit_code_decides_about_the_outcome(self, code: int, result: str) -> None:
        assert outcome(pod(states(terminated(code), RUNS))) == result

    def test_killed_sidecar_does_not_make_the_training_fail(self) -> None:
        assert outcome(pod(states(terminated(0), terminated(137), "Failed"))) == "Succeeded"

    def test_evicted_pod_has_not_succeeded(self) -> None:
        evicted = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}
        assert outcome(pod(states(terminated(0), terminated(143), "Failed", **evicted))) == "Preempted"
        assert outcome(pod(states(terminated(0), RUNS, reason="Evicted", phase="Failed"))) != "Succeeded"

    def test_restartable_container_has_not_ended(self) -> None:
        restarts = {**MAIN, "restartPolicy": "OnFailure"}
        assert not has_terminated(pod(states(terminated(1), RUNS), (PROXY, restarts)))

    @pytest.mark.parametrize("proxy", [RUNS, {"waiting": {"reason": "ImagePullBackOff"}}])
    def test_sidecar_that_has_not_terminated_remains(self, proxy: dict[str, Any]) -> None:
        assert others_remain(pod(states(terminated(0), proxy)))

    def test_native_sidecar_that_runs_remains_but_does_not_go_on(self) -> None:
        native = [{"name": "native", "state": RUNS}]
        seen = pod(states(terminated(0), terminated(0), initContainerStatuses=native))
        assert others_remain(seen)
        assert not others_go_on(seen), "the kubelet stops it"
        assert others_go_on(pod(states(terminated(0), RUNS)))

    def test_nothing_remains_between_the_last_end_and_the_phase(self) -> None:
        copied = [{"name": "copies", "state": terminated(0)}]
        assert not others_remain(pod(states(terminated(0), terminated(0), initContainerStatuses=copied)))


class TestContainerName:
    def test_annotation_of_the_operator_comes_first(self) -> None:
        both = {**TRAINER, "kubectl.kubernetes.io/default-container": "istio-proxy"}
        assert container_name(pod({}, annotations=both)) == "main"

    def test_default_container_of_the_template_comes_next(self) -> None:
        assert container_name(pod({}, annotations={"kubectl.kubernetes.io/default-container": "main"})) == "main"

    @pytest.mark.parametrize("annotations", [{}, {"tranche.dev/training-container": "absent"}])
    def test_first_container_is_the_last_resort(self, annotations: dict[str, str]) -> None:
        assert container_name(pod({}, annotations=annotations)) == "istio-proxy"


class TestTemplateRequests:
    def template(self, cpu: str, **more: Any) -> dict[str, Any]:
        return {"spec": {"containers": [{**MAIN, "resources": {"requests": {"cpu": cpu}}}], **more}}

    def made_from(self, template: dict[str, Any]) -> Pod:
        """A pod of the template to which admission has added a sidecar with requests."""
        sidecar = {**PROXY, "resources": {"requests": {"cpu": "2"}}}
        return pod({}, (sidecar, *template["spec"]["containers"]), annotations=template_annotations(template))

    def test_added_requests_do_not_count_as_another_template(self) -> None:
        assert is_from(self.made_from(self.template("1")), self.template("1000m")) is True

    def test_changed_requests_are_another_template(self) -> None:
        assert is_from(self.made_from(self.template("1")), self.template("2")) is False

    def test_pod_without_digest_is_unknown(self) -> None:
        assert is_from(pod({}), self.template("1")) is None

    def test_malformed_template_has_no_annotations(self) -> None:
        assert template_annotations({"spec": {"containers": "none"}}) == {}
        assert template_annotations(self.template("much"))
