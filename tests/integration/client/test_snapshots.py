"""An export of the real control plane is what the simulator replays."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from integration.client.conftest import Run
from support.full_stack import System
from tranche.cli.main import main

SECRET = "hunter2"


def succeeded(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Succeeded")


@pytest.fixture(scope="module")
def exported(system: System, kubectl: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One TrainingJob, and two pods of the cluster's own scheduler, with a secret in each."""
    environment = {"env": [{"name": "TOKEN", "value": SECRET}]}
    system.submit("ours", chunks=2, seconds=1.0, container=environment)
    for name in ("theirs-0", "theirs-1"):
        limits = {"nvidia.com/gpu": "1"}
        container = {"name": "t", "image": "x", "resources": {"limits": limits}, **environment}
        metadata = {
            "name": name,
            "labels": {"training.kubeflow.org/job-name": "theirs"},
            "annotations": {"kwok.tranche.dev/run-seconds": "2", "note": SECRET},
        }
        spec = {"restartPolicy": "Never", "containers": [container], "nodeName": f"edge-a-{name[-1]}"}
        pod = {"metadata": metadata, "spec": spec}
        assert system.cluster.request("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
    system.until_phase("ours", "Succeeded")
    theirs = "/api/v1/namespaces/default/pods?labelSelector=training.kubeflow.org/job-name=theirs"
    system.until("theirs succeed", lambda: all(map(succeeded, system.cluster.request("GET", theirs)[1]["items"])))
    answer = kubectl("tranche", "export", "-A")
    assert (answer.returncode, answer.stderr) == (0, "")
    path = tmp_path_factory.mktemp("export") / "export.json"
    path.write_text(answer.stdout)
    return path


def test_an_export_holds_jobs_pods_nodes_and_no_secrets(exported: Path) -> None:
    text = exported.read_text()
    assert SECRET not in text
    kinds = [item["kind"] for item in json.loads(text)["items"]]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"TrainingJob": 1, "Pod": 2, "Node": 2}


def test_simulate_runs_the_jobs_of_an_export_on_its_nodes(exported: Path) -> None:
    result = CliRunner().invoke(main, ["simulate", str(exported), "--format", "json", "--quiet"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["jobs"], facts["capacity_gpus"], facts["mode"]) == (2, 2, "recorded")


def test_replay_compares_an_export_with_what_was(exported: Path, system: System) -> None:
    result = CliRunner().invoke(main, ["replay", str(exported), "--format", "json", "--quiet"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    status = system.status("ours")
    assert facts["counted"] + facts["running"] == 2
    assert facts["rows"][0]["label"] == "as it was"
    assert status["completionTime"]


def test_export_without_list_permission_reports_error(system: System, kubectl: Run) -> None:
    stranger = system.cluster.service_account_kubeconfig("default", "default")
    refused = kubectl("tranche", "export", kubeconfig=stranger)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert refused.stderr.startswith("Error: cannot list TrainingJobs: ")
