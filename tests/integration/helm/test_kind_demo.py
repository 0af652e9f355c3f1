"""``make kind-demo`` without Docker.

The test runs the script unchanged, with the real kubectl and helm on a test cluster; recorders stand in for
docker and kind.
The real kind reads the cluster file, and calls a recorder in place of docker.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.installed_release import Installed, Release
from support.waiting import eventually
from support.yaml_text import load_all_yaml, load_yaml
from tranche.demo.local_stack import await_kinds
from tranche_testcluster import Cluster, ensure

ROOT = Path(__file__).resolve().parents[3]
KIND = ROOT / "manifests" / "kind"
SHELL = ("cat", "dirname", "grep", "sed")
SITES = ("edge-a", "edge-b", "cloud")
RECORDER = '#!/bin/sh\nprintf \'%s\\n\' "$(basename "$0") $*" >> "{log}"\n{more}\n'
INFO = '{"CgroupDriver": "systemd", "CgroupVersion": "2", "MemoryLimit": true, "PidsLimit": true, "CPUShares": true}'


def recorder(folder: Path, name: str, log: Path, more: str = "") -> None:
    file = folder / name
    file.write_text(RECORDER.format(log=log, more=more))
    file.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with what the script may call, and nothing else: docker and kind are recorders."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*SHELL, "basename"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    for name, path in ensure("kubectl", "helm").items():
        (folder / name).symlink_to(path)
    for name in ("docker", "kind"):
        recorder(folder, name, tmp_path / "log")
    return folder


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        for name in SITES:
            cluster.add_site(name)
        cluster.start_scheduler()
        yield cluster


def environment(programs: Path, folder: Path, **more: str) -> dict[str, str]:
    helm = {f"HELM_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return {"PATH": str(programs), "HOME": str(folder), **helm, **more}


def checkout(folder: Path) -> Path:
    """Make the part of a checkout that the script reads, with the duration of a mini-batch for the simulated nodes."""
    (folder / "manifests").mkdir()
    shutil.copytree(KIND, folder / "manifests" / "kind")
    (folder / "helm").symlink_to(ROOT / "helm")
    file = folder / "manifests" / "kind" / "job.yaml"
    job = load_yaml(file.read_text(encoding="utf-8"))
    job["spec"]["workers"]["template"]["metadata"] = {"annotations": {"kwok.tranche.dev/batch-seconds": "0.05"}}
    file.write_text(yaml.safe_dump(job))
    return folder / "manifests" / "kind" / "demo.sh"


@pytest.mark.walkthrough
def test_the_script_brings_a_first_job_to_its_end(own: Cluster, programs: Path, tmp_path: Path) -> None:
    config = load_yaml(own.kubeconfig.read_text(encoding="utf-8"))
    config["contexts"][0]["name"] = config["current-context"] = "kind-tranche"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    script = checkout(tmp_path)
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(
            ["/bin/sh", str(script)],
            env=environment(programs, tmp_path, KUBECONFIG=str(kubeconfig), TIMEOUT="180s"),
            stdout=said,
            stderr=subprocess.STDOUT,
        ) as running,
    ):
        try:
            wait_for_the_job(own, running, tmp_path / "said")
            with Release(own) as release:  # what the containers would do
                code = running.wait(600)
                jobs = Installed(own, release)
                assert code == 0, (tmp_path / "said").read_text()
                assert jobs.status("kind-first")["phase"] == "Succeeded"
                trained = {one["node"].rpartition("-")[0] for one in jobs.status("kind-first")["progress"]["attempts"]}
                assert "edge-a" in trained, "not where the data are"
                assert len(trained) > 1, "at one site only"
                assert trained <= set(SITES)
        finally:
            running.kill()
    version = load_yaml((ROOT / "helm/tranche/Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    images = [f"tranche-{target}:{version}" for target in ("scheduler", "operator")]
    assert (tmp_path / "log").read_text().splitlines() == [
        "docker info",
        f"docker build --target scheduler --tag {images[0]} {tmp_path}",
        f"docker build --target operator --tag {images[1]} {tmp_path}",
        "kind get clusters",
        f"kind create cluster --config {script.parent}/cluster.yaml --wait 120s",
        f"kind load docker-image --name tranche {' '.join(images)}",
    ]
    rendered = own.request("GET", "/apis/apps/v1/namespaces/tranche-system/deployments")[1]["items"]
    assert {c["image"] for d in rendered for c in d["spec"]["template"]["spec"]["containers"]} > set(images)


def wait_for_the_job(cluster: Cluster, running: "subprocess.Popen[bytes]", said: Path) -> None:
    """Until the script has come so far that it waits for the job."""
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/kind-first"
    eventually(lambda: running.poll() is not None or cluster.request("GET", path)[0] == 200, said.read_text)
    assert running.poll() is None, said.read_text()


@pytest.mark.parametrize("name", ["docker", "kind", "kubectl", "helm"])
def test_what_is_missing_is_named_at_once(programs: Path, tmp_path: Path, name: str) -> None:
    (programs / name).unlink()
    command = ["/bin/sh", str(KIND / "demo.sh")]
    answer = subprocess.run(command, env=environment(programs, tmp_path), capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith(f"kind-demo: {name} is not installed: see https://")
    assert len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "log").exists()


def test_kind_demo_without_docker_reports_error(programs: Path, tmp_path: Path) -> None:
    recorder(programs, "docker", tmp_path / "log", "exit 1")
    command = ["/bin/sh", str(KIND / "demo.sh")]
    answer = subprocess.run(command, env=environment(programs, tmp_path), capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr == "kind-demo: Docker does not answer: start it, or see what `docker info` says\n"


def create(programs: Path, folder: Path, config: Path) -> tuple[str, list[str]]:
    """Return the output of the real kind, and the commands that it would have docker run."""
    log = folder / "log"
    answers = f"[ \"$1\" != info ] || echo '{INFO}'; [ \"$1\" != logs ] || echo 'Reached target Multi-User System.'"
    recorder(programs, "docker", log, answers)
    (programs / "kind").unlink()
    (programs / "kind").symlink_to(ensure("kind")["kind"])
    command = [str(programs / "kind"), "create", "cluster", "--retain", "--config", str(config)]
    answer = subprocess.run(
        command, env=environment(programs, folder), capture_output=True, text=True, timeout=300, check=False
    )
    return answer.stderr, log.read_text().splitlines() if log.exists() else []


def test_kind_creates_control_plane_and_three_workers(programs: Path, tmp_path: Path) -> None:
    said, orders = create(programs, tmp_path, KIND / "cluster.yaml")
    assert "Ensuring node image" in said
    made = sorted(order.split()[3] for order in orders if order.startswith("docker run"))
    assert made == ["tranche-control-plane", "tranche-worker", "tranche-worker2", "tranche-worker3"]


def test_kind_rejects_cluster_file_with_unknown_field(programs: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((KIND / "cluster.yaml").read_text(encoding="utf-8").replace("labels:", "label:"))
    said, orders = create(programs, tmp_path, wrong)
    assert "field label not found in type v1alpha4.Node" in said
    assert not [order for order in orders if order.startswith("docker run")]


def read(name: str) -> list[dict[str, Any]]:
    return list(load_all_yaml((KIND / name).read_text(encoding="utf-8")))


def test_nodes_sites_values_and_job_speak_of_the_same_things() -> None:
    (cluster,), (values,), (job,) = read("cluster.yaml"), read("values.yaml"), read("job.yaml")
    zones = [node["labels"] for node in cluster["nodes"] if node["role"] == "worker"]
    assert [site["spec"]["nodeSelector"] for site in read("sites.yaml")] == zones
    assert [site["metadata"]["name"] for site in read("sites.yaml")] == list(SITES)
    gpu = values["gpuResource"]
    (container,) = job["spec"]["workers"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"][gpu] == "1"
    assert f"gpu={gpu.replace('/', '~1')}\n" in (KIND / "demo.sh").read_text(encoding="utf-8")
    version = load_yaml((ROOT / "helm/tranche/Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert container["image"] == f"tranche-scheduler:{version}"
    assert job["spec"]["data"]["site"] in SITES


def test_sites_and_job_are_valid(own: Cluster, tmp_path: Path) -> None:
    own.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "manifests" / "crds"))
    await_kinds(own)
    for name in ("sites.yaml", "job.yaml"):
        own.kubectl("apply", "--dry-run=server", "--validate=strict", "-n", "default", "-f", str(KIND / name))


def test_the_sample_trains_its_chunks_and_says_so(tmp_path: Path) -> None:
    (job,) = read("job.yaml")
    (container,) = job["spec"]["workers"]["template"]["spec"]["containers"]
    told = tmp_path / "termination-log"
    variables = {
        "TRANCHE_JOB": "default/first",
        "TRANCHE_ATTEMPT": "1",
        "TRANCHE_CHUNKS": "0,3",
        "TRANCHE_CHUNK_COUNT": "8",
        "TRANCHE_EPOCHS": "1",
        "TRANCHE_BATCHES": "2",
        "TRANCHE_CHECKPOINT_DIR": str(tmp_path),
        "TRANCHE_TERMINATION_LOG": str(told),
    }
    command = [sys.executable, *container["command"][1:], *container["args"]]
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=180)
    assert json.loads(told.read_text()) == {"0": 2, "3": 2}
