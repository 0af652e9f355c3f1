"""The two CustomResourceDefinitions on a real API server."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.yaml_text import load_all_yaml, load_yaml
from tranche_testcluster import Cluster

Object = dict[str, Any]
Create = Callable[[Object], tuple[int, Any]]
ROOT = Path(__file__).resolve().parents[3]
JOBS = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs"
SITES = "/apis/tranche.dev/v1alpha1/sites"
MAX_ANNOTATIONS = 262_144
"""Bytes; the API server refuses an object with more."""
from_newest_release = pytest.mark.skipif(
    bool(os.environ.get("TRANCHE_KUBERNETES")), reason="the definitions are generated from the newest release"
)


def generate(cluster: Cluster, root: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        "-m",
        "tranche_codegen.crds",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--root",
        str(root),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")))}
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=environment)


def status_of(cluster: Cluster, path: str, obj: Object, manager: str, status: Object) -> tuple[int, Any]:
    """Server-side apply of a status, as scheduler and operator write it."""
    body = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}
    target = f"{path}/{obj['metadata']['name']}/status?fieldManager={manager}&force=true"
    return cluster.request("PATCH", target, {**body, "status": status}, "application/apply-patch+yaml")


@pytest.fixture
def kept(installed: Cluster, job: Object) -> Any:
    """The valid job, really created, and deleted afterwards."""
    status, created = installed.request("POST", JOBS, job)
    assert status == 201, created
    yield created
    installed.request("DELETE", f"{JOBS}/{job['metadata']['name']}")


@from_newest_release
def test_the_committed_files_are_what_the_generator_writes(cluster: Cluster) -> None:
    answer = generate(cluster, ROOT, "--check")
    assert answer.returncode == 0, answer.stdout + answer.stderr


@from_newest_release
def test_the_check_names_what_differs(cluster: Cluster, tmp_path: Path) -> None:
    for folder in ("manifests", "helm/tranche/files"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    edited, missing = tmp_path / "manifests/crds/sites.yaml", tmp_path / "helm/tranche/files/crds/trainingjobs.yaml"
    edited.write_text(edited.read_text(encoding="utf-8").replace("scope: Cluster", "scope: Namespaced"))
    missing.unlink()
    found = generate(cluster, tmp_path, "--check")
    assert found.returncode == 1
    assert "manifests/crds/sites.yaml: 1 lines to add, 1 to remove\n  -  scope: Namespaced\n  +  scope: Cluster\n" in (
        found.stdout
    )
    assert "helm/tranche/files/crds/trainingjobs.yaml: missing" in found.stdout
    assert not missing.exists()
    assert generate(cluster, tmp_path).stdout == "9 files written\n"
    assert generate(cluster, tmp_path, "--check").returncode == 0


@pytest.mark.parametrize("plural", ["trainingjobs", "sites"])
def test_client_side_apply_works_and_leaves_room(installed: Cluster, plural: str) -> None:
    crd = installed.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.tranche.dev")[1]
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    size = sum(len(key) + len(value) for key, value in crd["metadata"]["annotations"].items())
    assert 1_000 < size < 0.9 * MAX_ANNOTATIONS


def test_defaults_are_filled_in(create: Create, job: Object, site: Object) -> None:
    spec = create(job)[1]["spec"]
    assert spec["suspend"] is False
    assert spec["weight"] == 1
    assert spec["priorityClassName"] == "tranche-normal"
    assert spec["preemption"] == {"policy": "Immediate"}
    assert spec["runPolicy"] == {"backoffLimit": 6, "cleanPodPolicy": "Running"}
    assert spec["parameterServers"]["replicas"] == 1
    assert spec["workers"]["template"] == job["spec"]["workers"]["template"]
    link = {"to": "cloud", "bandwidth": "500M", "latency": "20ms"}
    assert create(site)[1]["spec"] == {**site["spec"], "links": [link]} | {
        "tier": "Edge",
        "unlimited": False,
        "nodeStartup": "0s",
        "disconnectTolerance": "1h",
    }


def test_a_partly_given_policy_keeps_its_other_defaults(create: Create, gang: Object) -> None:
    gang["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": 60}
    gang["spec"]["preemption"] = {"restartOverhead": "5s"}
    spec = create(gang)[1]["spec"]
    assert spec["runPolicy"] == {"backoffLimit": 6, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 60}
    assert spec["preemption"] == {"policy": "Immediate", "restartOverhead": "5s"}


def test_a_template_keeps_what_kubernetes_knows_of_pods(create: Create, gang: Object) -> None:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 60,
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "key"}],
        "initContainers": [{"name": "wait", "image": "busybox", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "worker",
                "image": "train",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m", "memory": "1.5Gi"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
            }
        ],
        "volumes": [
            {
                "name": "scratch",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    }
                },
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
    }
    template = {"metadata": {"labels": {"team": "ml"}, "annotations": {"note": "x"}}, "spec": pod}
    gang["spec"]["workers"]["template"] = template
    status, answer = create(gang)
    assert status == 201, answer
    assert answer["spec"]["workers"]["template"] == template


def test_an_older_plan_is_refused_and_a_newer_one_is_taken(installed: Cluster, kept: Object) -> None:
    def write(term: int, revision: int) -> tuple[int, Any]:
        plan = {"term": term, "revision": revision, "observedGeneration": 1}
        return status_of(installed, JOBS, kept, "tranche-scheduler", {"plan": plan})

    for term, revision, expected in [
        (2, 5, 200),
        (2, 5, 200),  # the same again: a repeated write is harmless
        (2, 4, 422),
        (1, 99, 422),
        (2, 6, 200),
        (3, 0, 200),
        (2, 7, 422),
    ]:
        status, answer = write(term, revision)
        assert status == expected, (term, revision, answer)
        if status == 422:
            assert "a newer planner has written this plan (term, revision)" in answer["message"]


def test_the_fence_cannot_be_taken_away(installed: Cluster, kept: Object) -> None:
    plan = {"term": 1, "revision": 1, "observedGeneration": 1}
    assert status_of(installed, JOBS, kept, "tranche-scheduler", {"plan": plan})[0] == 200
    status, answer = status_of(installed, JOBS, kept, "tranche-scheduler", {"progress": {"chunks": "0/4"}})
    assert status == 422
    assert "the plan cannot be removed" in answer["message"]


@pytest.mark.parametrize(
    ("started", "suspended", "volume", "refused"),
    [
        (True, False, {"nfs": {"server": "other", "path": "/ckpt"}}, True),
        (True, False, None, True),
        (True, False, {"nfs": {"server": "nas", "path": "/ckpt"}}, False),
        (True, True, {"nfs": {"server": "other", "path": "/ckpt"}}, False),
        (False, False, {"nfs": {"server": "other", "path": "/ckpt"}}, False),
    ],
)
def test_volume_of_a_started_job_changes_while_suspended(
    installed: Cluster, kept: Object, started: bool, suspended: bool, volume: Object | None, refused: bool
) -> None:
    """Chunks that are done count, and what was trained of them is only on the former volume."""

    def change(**spec: Any) -> tuple[int, Any]:
        path = f"{JOBS}/{kept['metadata']['name']}"
        return installed.request("PATCH", path, {"spec": spec}, "application/merge-patch+json")

    assert change(checkpoint={"volume": {"nfs": {"server": "nas", "path": "/ckpt"}}}, suspend=suspended)[0] == 200
    if started:
        times = {"startTime": "2026-01-01T00:00:00Z", "checkpointDirectory": "mnist-1"}
        assert status_of(installed, JOBS, kept, "tranche-operator", times)[0] == 200
    status, answer = change(checkpoint={"volume": volume} if volume else None, suspend=False)
    assert status == (422 if refused else 200), answer
    assert not refused or "suspend the job before you change the volume" in answer["message"]


def test_scheduler_and_operator_apply_separate_status_fields(installed: Cluster, kept: Object) -> None:
    def condition(kind: str) -> Object:
        return {"type": kind, "status": "True", "reason": "X", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    plan = {"term": 1, "revision": 1, "observedGeneration": 1}
    mine = {"plan": plan, "conditions": [condition("Planned")]}
    assert status_of(installed, JOBS, kept, "tranche-scheduler", mine)[0] == 200
    theirs = {"phase": "Waiting", "conditions": [condition("Suspended")]}
    status, answer = status_of(installed, JOBS, kept, "tranche-operator", theirs)
    assert status == 200, answer
    assert {c["type"] for c in answer["status"]["conditions"]} == {"Planned", "Suspended"}
    assert answer["status"]["plan"]["revision"] == 1


@pytest.mark.parametrize("file", sorted((ROOT / "manifests" / "samples").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_sample_applies_cleanly(installed: Cluster, file: Path) -> None:
    out = installed.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(file))
    documents = [one for one in load_all_yaml(file.read_text(encoding="utf-8")) if one]
    assert out.count("serverside-applied (server dry run)") == len(documents)


def test_the_list_of_jobs_reads_well(installed: Cluster, kept: Object) -> None:
    plan = {
        "term": 1,
        "revision": 1,
        "observedGeneration": 1,
        "estimatedStart": "2040-01-01T10:00:00Z",
        "estimatedCompletion": "2040-01-01T12:30:00Z",
        "explanation": "waits for a GPU of edge-a",
    }
    progress = {"chunks": "1/4", "done": "0", "trained": "31 %", "preemptions": 2}
    scheduler = status_of(installed, JOBS, kept, "tranche-scheduler", {"plan": plan, "progress": progress})
    assert scheduler[0] == 200, scheduler
    operator = {"phase": "Running", "activeWorkers": 2, "sites": "edge-a, cloud"}
    assert status_of(installed, JOBS, kept, "tranche-operator", operator)[0] == 200
    header, row = installed.kubectl("get", "tj", "mnist").splitlines()
    titles = "NAME PHASE DONE TRAINED WORKERS SITES PLANNED-START PLANNED-COMPLETION PREEMPTIONS AGE"
    assert " ".join(header.split()) == titles
    assert " ".join(row.split()).startswith(
        "mnist Running 1/4 31 % 2 edge-a, cloud 2040-01-01T10:00:00Z 2040-01-01T12:30:00Z 2 "
    )
    header, row = installed.kubectl("get", "tj", "mnist", "-o", "wide").splitlines()
    assert header.endswith("WHY")
    assert row.endswith("waits for a GPU of edge-a")


def test_parts_of_a_status_are_recorded_as_a_whole(installed: Cluster, kept: Object) -> None:
    """Each field that server-side apply records by itself costs time at every later write of the status."""
    condition = {"type": "Planned", "status": "True", "reason": "Planned", "lastTransitionTime": "2040-01-01T10:00:00Z"}
    plan = {"term": 1, "revision": 1, "observedGeneration": 1, "homes": {"edge-a": "0"}}
    progress = {"chunks": "1/4", "sites": [{"site": "edge-a", "chunks": 1}]}
    status = {"plan": plan, "progress": progress, "conditions": [condition]}
    code, answer = status_of(installed, JOBS, kept, "tranche-scheduler", status)
    assert code == 200, answer
    found = {one["manager"]: one["fieldsV1"] for one in answer["metadata"]["managedFields"]}["tranche-scheduler"]
    recorded: Object = {"f:plan": {}, "f:progress": {}, "f:conditions": {'k:{"type":"Planned"}': {}}}
    assert found == {"f:status": recorded}


def test_the_list_of_sites_reads_well(installed: Cluster, site: Object) -> None:
    assert installed.request("POST", SITES, site)[0] == 201
    try:
        status = {"nodes": 3, "gpus": 6, "allocatedGpus": 4, "connected": True}
        assert status_of(installed, SITES, site, "tranche-scheduler", status)[0] == 200
        header, row = installed.kubectl("get", "sites").splitlines()
        assert header.split() == ["NAME", "TIER", "NODES", "GPUS", "ALLOCATED", "CONNECTED", "AGE"]
        assert row.split()[:6] == ["edge-a", "Edge", "3", "6", "4", "true"]
        both = installed.kubectl("get", "tranche", "-o", "name").split()
        assert "site.tranche.dev/edge-a" in both
    finally:
        installed.request("DELETE", f"{SITES}/edge-a")


def test_the_fields_explain_themselves(installed: Cluster) -> None:
    out = installed.kubectl("explain", "trainingjob.spec.data")
    assert "Number of equal parts of the data (D)." in out
    schema = load_yaml((ROOT / "manifests" / "crds" / "trainingjobs.yaml").read_text(encoding="utf-8"))
    root = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = root["properties"]["spec"]["properties"]
    assert [name for name, field in fields.items() if not field.get("description")] == []
    assert json.dumps(root).count('"x-tranche-') == 0
