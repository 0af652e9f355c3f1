"""Directory of a job on its checkpoint volume."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.operator_objects import UID, observed, pod, window
from support.reconcile_summary import created, decide, job_with, of_type, pauses
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiError
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.manifests.checkpoint_volume import mounted_directory
from tranche_operator.reconcile.actions import Action, CreatePod, WriteStatus

OWN = f"cats-{UID}"
CLAIM = {"persistentVolumeClaim": {"claimName": "team"}}
STARTED = "2026-11-21T11:30:00Z"
ENDED = {"index": 0, "attempt": 1, "node": "edge-a-0", "reason": "Preempted"}


def job(volume: dict[str, Any] = CLAIM, resume: str | None = None, **status: Any) -> TrainingJob:
    checkpoint = {"volume": volume, **({"resumeFrom": resume} if resume is not None else {})}
    return job_with(window(0, 2), spec={"checkpoint": checkpoint}, status=status)


def directory_of(actions: list[Action]) -> str | None:
    (write,) = of_type(WriteStatus, actions)
    return write.status.get("checkpointDirectory")


def mounts_of(one: TrainingJob) -> list[dict[str, Any]]:
    (create,) = of_type(CreatePod, decide(observed(one)))
    found: list[dict[str, Any]] = create.manifest["spec"]["containers"][0]["volumeMounts"]
    return found


def variables_of(one: TrainingJob) -> dict[str, str]:
    (create,) = of_type(CreatePod, decide(observed(one)))
    return {variable["name"]: variable["value"] for variable in create.manifest["spec"]["containers"][0]["env"]}


def test_pods_wait_until_the_directory_is_in_the_status() -> None:
    actions = decide(observed(job()))
    assert created(actions) == []
    assert directory_of(actions) == OWN
    assert pauses(actions) == [0.0]
    assert created(decide(observed(job(checkpointDirectory=OWN)))) == ["cats-worker-0-2"]


def test_volume_is_mounted_at_the_directory_of_the_job() -> None:
    (mount,) = mounts_of(job(checkpointDirectory=OWN))
    assert mount == {"name": "tranche-checkpoint", "mountPath": "/var/lib/tranche/checkpoint", "subPath": OWN}


@pytest.mark.parametrize("status", [{"startTime": STARTED}, {"progress": {"attempts": [ENDED]}}])
def test_job_from_before_the_upgrade_keeps_the_root(status: dict[str, Any]) -> None:
    assert directory_of(decide(observed(job(**status)))) == "/"
    (mount,) = mounts_of(job(checkpointDirectory="/", **status))
    assert "subPath" not in mount


def test_job_whose_pod_exists_at_the_upgrade_keeps_root() -> None:
    assert directory_of(decide(observed(job(), pod(0, 2, phase="Pending"), mounted="/"))) == "/"


class Cluster:
    """API server with a job whose status was lost, and with one pod of the two in the operator's cache."""

    def __init__(self, resume: str | None, directory: str) -> None:
        (create,) = of_type(CreatePod, decide(observed(job(resume=resume, checkpointDirectory=directory))))
        self.pod, self.job = create.manifest, job(resume=resume)

    async def request(self, method: str, path: str) -> dict[str, Any]:
        if path.endswith("/pods/cats-worker-0-1"):
            raise ApiError(404, "NotFound", "it is gone")
        return self.pod if "/pods/" in path else self.job.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("directory", [OWN, "/", "cats-of-a-backup"])
@pytest.mark.parametrize("resume", [None, "dogs-0a1b", "/"])
def test_lost_status_gets_the_directory_that_the_pods_mount(directory: str, resume: str | None) -> None:
    """With another one, the next attempt would not find what this one saves."""
    cache = ReconcilerCache()
    cache.pods.complete = True
    for one in (pod(0, 3, owner="another"), pod(0, 1), pod(0, 2)):
        cache.pods.note("lab/cats", replace(one, version=1))
    seen = asyncio.run(Reader(Cluster(resume, directory), cache).observe("lab/cats"))  # type: ignore[arg-type]
    assert directory_of(decide(seen)) == directory


def test_other_mounts_of_the_volume_name_no_directory() -> None:
    (create,) = of_type(CreatePod, decide(observed(job(checkpointDirectory=OWN))))
    (container,) = create.manifest["spec"]["containers"]
    own = container["volumeMounts"][0]
    container["volumeMounts"] = [{**own, "mountPath": "/data", "subPath": "data"}]
    assert mounted_directory(create.manifest) is None
    container["volumeMounts"] += [own]
    assert mounted_directory(create.manifest) == OWN


def test_directory_in_the_status_does_not_change() -> None:
    later = job(checkpointDirectory=OWN, startTime=STARTED)
    assert directory_of(decide(observed(later, pod(0, 2)))) == OWN


def test_job_without_volume_does_not_wait() -> None:
    actions = decide(observed(job_with(window(0, 2))))
    assert created(actions) == ["cats-worker-0-2"]
    assert directory_of(actions) == OWN


@pytest.mark.parametrize("status", [{}, {"startTime": STARTED}], ids=["pod", "started"])
def test_begun_job_without_volume_gets_its_own_directory(status: dict[str, Any]) -> None:
    """A volume that the job gets later must not be mounted at its root, which other jobs share."""
    assert directory_of(decide(observed(job_with(window(0, 2), status=status), pod(0, 2)))) == OWN


def test_ephemeral_volume_has_no_directories() -> None:
    (mount,) = mounts_of(job({"ephemeral": {"volumeClaimTemplate": {}}}, checkpointDirectory=OWN))
    assert "subPath" not in mount


def test_resume_directory_is_mounted_read_only() -> None:
    own, earlier = mounts_of(job(resume="dogs-0a1b", checkpointDirectory=OWN))
    assert own["subPath"] == OWN
    path = "/var/lib/tranche/checkpoint-resume"
    assert earlier == {"name": "tranche-checkpoint", "mountPath": path, "readOnly": True, "subPath": "dogs-0a1b"}
    assert variables_of(job(resume="dogs-0a1b", checkpointDirectory=OWN))["TRANCHE_RESUME_DIR"] == path


def test_resume_directory_may_be_the_root() -> None:
    _, earlier = mounts_of(job(resume="/", checkpointDirectory=OWN))
    assert "subPath" not in earlier
