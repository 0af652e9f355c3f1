import json
from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import Pod
from tranche.kube.convert import pod_decoder
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pod_shape import pod_requests
from tranche.kube.convert.pod_state import is_over

CONTAINER = {"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}}}
INIT = {"name": "init", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}}


def raw(labels: dict[str, str], **metadata: Any) -> bytes:
    whole = {
        "metadata": {
            "name": "a",
            "namespace": "ns",
            "uid": "u",
            "labels": labels,
            "annotations": {"k": "v"},
            **metadata,
        },
        "spec": {
            "nodeName": "n1",
            "containers": [CONTAINER],
            "initContainers": [INIT],
            "overhead": {"cpu": "250m"},
            "resources": {"requests": {"memory": "2Gi"}},
            "priority": 7,
            "tolerations": [{"key": "edge"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return json.dumps(whole).encode()


IDENTITY = {
    "tranche.dev/job": "cats",
    "tranche.dev/role": "worker",
    "tranche.dev/index": "0",
    "tranche.dev/attempt": "7",
}


def test_a_pod_of_ours_is_kept_with_what_says_what_it_is() -> None:
    plan = {"tranche.dev/plan": "1.5", "tranche.dev/training-container": "main"}
    ours = raw(IDENTITY, annotations=plan)
    assert decode_pod(ours) == msgspec.json.decode(ours, type=Pod)


def test_large_labels_and_annotations_of_our_pods_are_left_out() -> None:
    more = {f"team/{number}": "x" * 63 for number in range(100)}
    large = {"note": "x" * 2**18, "tranche.dev/plan": "1.5", "kubectl.kubernetes.io/default-container": "x" * 2**17}
    kept = decode_pod(raw({**more, **IDENTITY}, annotations=large))
    assert kept.metadata.labels == IDENTITY
    assert kept.metadata.annotations == {"tranche.dev/plan": "1.5"}


def test_of_another_pod_what_it_takes_of_its_node_is_kept() -> None:
    theirs = raw({"app": "web"}, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)
    whole, kept = msgspec.json.decode(theirs, type=Pod), decode_pod(theirs)
    assert pod_requests(kept) == pod_requests(whole)
    assert is_over(kept) is is_over(whole) is True
    assert (kept.key, kept.spec.node_name, kept.spec.priority, kept.metadata.uid) == ("ns/a", "n1", 7, "u")
    assert kept.metadata.labels == kept.metadata.annotations == {}
    assert kept.status.conditions == ()
    assert kept.spec.tolerations == ()


@pytest.mark.parametrize("labels", [{"app": "web"}, {"tranche.dev/job": "cats"}])
def test_statuses_keep_no_requests_that_are_the_specified_ones(labels: dict[str, str]) -> None:
    whole = json.loads(raw(labels))
    whole["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    plain = decode_pod(json.dumps(whole).encode())
    requests = CONTAINER["resources"]["requests"]  # type: ignore[index]
    whole["status"]["containerStatuses"][0] |= {"allocatedResources": requests, "resources": {"requests": requests}}
    assert decode_pod(json.dumps(whole).encode()) == plain


@pytest.mark.parametrize("labels", [{"app": "web"}, {"tranche.dev/job": "cats"}])
def test_equal_parts_are_held_once(labels: dict[str, str]) -> None:
    one, other = decode_pod(raw(labels)), decode_pod(raw(labels, name="b"))
    assert one.spec.containers is other.spec.containers


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_decoder, "_CAPACITY", 3)
    kept = [pod_decoder.shared((number,)) for number in range(10)]
    assert kept == [(number,) for number in range(10)]
    assert len(pod_decoder._parts) <= 3
