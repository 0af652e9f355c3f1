"""Pods that have trained are remembered once they are over or gone."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import GPU_RESOURCE, GPU_RESOURCES
from tranche.kube.convert.training_container import training_state
from tranche.replay.pod_archive import PodArchive, decode_watched_pod

NOW = 1_800_000_000.0


def pod(phase: str, *, gpus: int = 1, **state: dict[str, str]) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "1", "labels": {"job-name": "j"}},
            "spec": {"containers": [{"name": "t", "resources": {"limits": {GPU_RESOURCE: str(gpus)} if gpus else {}}}]},
            "status": {"phase": phase, "containerStatuses": [{"name": "t", "state": state}]},
        },
        Pod,
    )


RUNNING = pod("Running", running={"startedAt": "2027-01-15T07:00:00Z"})
ENDED = pod("Succeeded", terminated={"startedAt": "2027-01-15T07:00:00Z", "finishedAt": "2027-01-15T07:30:00Z"})


def test_ended_pod_is_remembered_once_and_by_the_next_process(tmp_path: Path) -> None:
    memory = PodArchive(GPU_RESOURCES, lambda: NOW, tmp_path / "pods")
    memory.note("ns/p", None, RUNNING)
    assert not list(memory.pods())
    memory.note("ns/p", RUNNING, ENDED)
    memory.note("ns/p", ENDED, None)
    assert list(memory.pods()) == [ENDED]
    again = PodArchive(GPU_RESOURCES, lambda: NOW, tmp_path / "pods")
    again.note("ns/p", None, ENDED)
    assert list(again.pods()) == [ENDED]
    assert again.contains(RUNNING)


def test_a_pod_that_was_deleted_while_it_ran_ended_then() -> None:
    memory = PodArchive(GPU_RESOURCES, lambda: NOW)
    memory.note("ns/p", RUNNING, None)
    (cut,) = memory.pods()
    ended = training_state(cut).terminated
    assert ended is not None
    assert ended.finished_at == datetime.fromtimestamp(NOW, UTC)
    assert cut.status.phase == "Failed"


def test_what_has_never_run_or_uses_no_gpu_is_not_remembered() -> None:
    memory = PodArchive(GPU_RESOURCES, lambda: NOW)
    memory.note("ns/p", pod("Pending"), None)
    memory.note("ns/q", None, pod("Succeeded", gpus=0, terminated={"startedAt": "2027-01-15T07:00:00Z"}))
    assert not list(memory.pods())


def test_watched_pod_keeps_labels_and_states_without_annotations() -> None:
    raw = msgspec.json.encode(msgspec.structs.replace(ENDED))
    kept = decode_watched_pod(raw)
    assert kept.metadata.labels == {"job-name": "j"}
    assert training_state(kept).terminated == training_state(ENDED).terminated
