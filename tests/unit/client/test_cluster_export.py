"""The export of a cluster leaves out what may be confidential."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tranche.client.cluster_export import snapshot
from tranche.replay.export import scan_export

CONTAINER = {
    "name": "worker",
    "image": "registry.example/train:1",
    "env": [{"name": "PASSWORD", "value": "secret"}],
    "volumeMounts": [{"name": "secret", "mountPath": "/secret"}],
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
}
TEMPLATE = {
    "metadata": {"annotations": {"note": "secret"}, "labels": {"team": "vision"}},
    "spec": {"containers": [CONTAINER], "volumes": [{"name": "secret", "nfs": {"server": "secret", "path": "/"}}]},
}
ENDED = {"index": 0, "attempt": 1, "node": "n1", "reason": "Failed", "why": "secret in a message"}
STATUS = {
    "phase": "Waiting",
    "conditions": [
        {
            "type": "Planned",
            "status": "False",
            "reason": "Waiting",
            "message": "secret",
            "lastTransitionTime": "2026-11-01T00:00:00Z",
        }
    ],
    "plan": {
        "term": 1,
        "revision": 1,
        "observedGeneration": 1,
        "policy": "chunk",
        "explanation": "waits for lab/secret",
        "unplaced": {"failures": 1, "message": "secret of kube-scheduler"},
    },
    "progress": {
        "attempts": [ENDED],
        "history": ["1 worker-0 n1 Failed 1 - - 0 - x\nsecret in a log"],
        "done": "0-3",
    },
}
JOB: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "lab",
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "secret"},
        "managedFields": [{"manager": "secret"}],
    },
    "spec": {
        "workers": {"maxReplicas": 1, "template": TEMPLATE},
        "estimatedDuration": "1m",
        "checkpoint": {"volume": {"nfs": {"server": "secret", "path": "/secret"}}},
    },
    "status": STATUS,
}


class Items:
    """A session that lists one TrainingJob."""

    async def items(self, path: str, what: str) -> list[bytes]:
        return [json.dumps(JOB).encode()] if what == "TrainingJobs" else []


def exported() -> dict[str, Any]:
    taken, _ = asyncio.run(snapshot(Items(), "", ("nvidia.com/gpu",)))  # type: ignore[arg-type]
    return taken


def test_export_has_no_volumes_annotations_and_messages() -> None:
    (job,) = exported()["items"]
    assert "secret" not in json.dumps(job)
    assert job["status"]["progress"]["done"] == "0-3"
    assert job["status"]["progress"]["attempts"][0]["reason"] == "Failed"
    assert job["spec"]["workers"]["template"]["metadata"] == {"labels": {"team": "vision"}}


def test_export_keeps_what_the_simulator_reads(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(exported()))
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps({"kind": "List", "items": [{**JOB, "status": {"phase": "Waiting"}}]}))
    assert scan_export(path).jobs == scan_export(whole).jobs
