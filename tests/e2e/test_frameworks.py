"""Gangs of PyTorch and TensorFlow in real containers: the examples, preempted and resumed.

The frameworks are mounted from the environments that ``make examples`` installs; without them the tests are skipped.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from numpy_ps import chunks
from support.frameworks import python_of
from support.product_images import ROOT
from support.real_lab import Installed, resources, worker_container
from support.training_programs import trains

SECONDS = 480
BATCHES = {"torch": 3000, "tensorflow": 2340}
EXAMPLES = ROOT / "worker" / "examples"


def packages_of(framework: str) -> Path:
    """Return the folder of the packages of a framework; skip the test if it is not installed."""
    try:
        python = python_of(framework)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return next((python.parents[1] / "lib").glob("python3.*")) / "site-packages"


def template(folder: Path, packages: Path, command: Sequence[str], gpus: int) -> dict[str, Any]:
    """Return a template whose container runs a module of the examples with a framework of this machine."""
    folders = {"frameworks": packages, "examples": EXAMPLES, "data": folder / "digits"}
    container = worker_container(["python", "-m", *command])
    container |= {
        "resources": resources(gpus, memory="3Gi"),
        "env": [
            {"name": "PYTHONPATH", "value": "/examples:/frameworks"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"},
        ],
        "volumeMounts": [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in folders],
    }
    volumes = [{"name": name, "hostPath": {"path": str(path), "type": "Directory"}} for name, path in folders.items()]
    return {"spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 60}}


def gang(framework: str, folder: Path) -> dict[str, Any]:
    """Return the specification of a gang of two workers, with TensorFlow also of a chief and a parameter server."""
    packages = packages_of(framework)
    options = ["/data", f"--batches={BATCHES[framework]}", "--checkpoint-batches=300"]
    if framework == "torch":
        command = ["torch.distributed.run", "-m", "torch_gang.train", *options]
        members = {"workers": {"maxReplicas": 2, "template": template(folder, packages, command, 1)}}
    else:
        server = ["tensorflow_ps.server"]
        members = {
            "chief": {"template": template(folder, packages, ["tensorflow_ps.chief", *options], 0)},
            "workers": {"maxReplicas": 2, "template": template(folder, packages, server, 1)},
            "parameterServers": {"replicas": 1, "template": template(folder, packages, server, 0)},
        }
    volume = {"hostPath": {"path": str(checkpoints(folder, framework)), "type": "Directory"}}
    return {**members, "estimatedDuration": "1m", "checkpoint": {"volume": volume, "scope": "Cluster"}}


def checkpoints(folder: Path, framework: str) -> Path:
    """Return the folder of a gang's checkpoints."""
    return folder / "checkpoints" / f"gang-{framework}"


def has_files(folder: Path) -> bool:
    """Return whether there is a file below a folder."""
    return any(path.is_file() for path in folder.rglob("*"))


def trained(installed: Installed, name: str, framework: str) -> list[int]:
    """Return how often each batch was trained, by the newest checkpoint of a job."""
    job = installed.job(name)
    module = "torch_gang.states" if framework == "torch" else "tensorflow_ps.states"
    digits = str(installed.folder / "digits")
    variables = {
        "TRANCHE_CHECKPOINT_DIR": str(checkpoints(installed.folder, framework) / job["status"]["checkpointDirectory"]),
        "TRANCHE_JOB_UID": job["metadata"]["uid"],
        "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(EXAMPLES)]),
    }
    command = [str(python_of(framework)), "-m", module, digits, str(BATCHES[framework])]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts: list[int] = json.loads(done.stdout.splitlines()[-1])["counts"]
    return counts


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_preempted_gang_resumes_with_each_batch_trained_once(installed: Installed, framework: str) -> None:
    name, urgent, folder = f"gang-{framework}", f"urgent-{framework}", installed.folder
    spec = gang(framework, folder)
    chunks.stage(folder / "digits", 1)
    checkpoints(folder, framework).mkdir(parents=True)
    checkpoints(folder, framework).chmod(0o777)
    installed.create(name, spec)
    installed.until("a checkpoint", lambda: has_files(checkpoints(folder, framework)), SECONDS)
    installed.submit_program(urgent, trains(1.0, 50), seconds=1.0, chunks=4, priorityClassName="tranche-high")
    installed.until_phase(urgent, "Succeeded", SECONDS)
    progress = installed.until_phase(name, "Succeeded", SECONDS)["progress"]
    assert progress["preemptions"] >= 2, "both workers"
    assert progress["failures"] == 0, "a member that fails because another has stopped counts as stopped"
    assert trained(installed, name, framework) == [1] * BATCHES[framework]
    installed.delete(name, urgent)
