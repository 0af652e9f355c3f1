"""The two manifests of docs/how-to/migrating.md are one job, and the fields that the page names exist."""

import re
from typing import Any

from support.doc_pages import ROOT
from support.yaml_text import load_yaml
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job
from tranche.planner.handlers.job import objection
from tranche.policies import get_policy

FOLDER = ROOT / "docs/samples/migration"
PAGE = (ROOT / "docs/how-to/migrating.md").read_text(encoding="utf-8")
THEIRS: dict[str, Any] = load_yaml((FOLDER / "pytorchjob.yaml").read_text())["spec"]
MANIFEST: dict[str, Any] = load_yaml((FOLDER / "trainingjob.yaml").read_text())
OURS: dict[str, Any] = MANIFEST["spec"]
ROLES = ("Master", "Worker")


def test_both_manifests_run_the_same_container() -> None:
    (ours,) = OURS["workers"]["template"]["spec"]["containers"]
    for role in ROLES:
        (theirs,) = THEIRS["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"]
        for field in ("name", "image", "command", "resources"):
            assert ours[field] == theirs[field], (role, field)
    assert {"name": "PET_NPROC_PER_NODE", "value": THEIRS["nprocPerNode"]} in ours["env"]


def test_both_manifests_have_as_many_pods_and_the_same_limits() -> None:
    replicas = sum(THEIRS["pytorchReplicaSpecs"][role]["replicas"] for role in ROLES)
    assert OURS["workers"]["maxReplicas"] == replicas == THEIRS["runPolicy"]["schedulingPolicy"]["minAvailable"]
    assert OURS["runPolicy"] == {k: v for k, v in THEIRS["runPolicy"].items() if k != "schedulingPolicy"}


def test_both_manifests_use_the_same_volumes() -> None:
    theirs = THEIRS["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in OURS["workers"]["template"]["spec"]["volumes"]]
    claims.append(OURS["checkpoint"]["volume"]["persistentVolumeClaim"]["claimName"])
    assert claims == [volume["persistentVolumeClaim"]["claimName"] for volume in theirs]


def test_the_planner_plans_the_example() -> None:
    created = {"namespace": "default", "uid": "u", "creationTimestamp": "2026-11-22T00:00:00Z"}
    job = to_job(TrainingJob.model_validate({**MANIFEST, "metadata": {**MANIFEST["metadata"], **created}}))
    assert objection(get_policy("chunk"), job) is None
    assert (job.is_gang, job.chunks, job.gpus) == (True, 4, 1)


def test_fields_of_a_trainingjob_on_the_page_exist() -> None:
    reference = (ROOT / "docs/reference/trainingjob.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `([\w.\[\]]+)` \|", reference, re.M))
    rows = re.findall(r"^\| `?[^|]+ \| ([^|]+) \|", PAGE.partition("## PyTorchJob")[2].partition("\n## ")[0], re.M)
    named = [
        name for cell in rows for name in re.findall(r"`(?:spec\.)?((?:workers|runPolicy|checkpoint)\.\w+)`", cell)
    ]
    assert len(named) >= 6
    assert set(named) <= known
