"""The operator waits, and says for what, when there is no CRD or no API server; on a control plane of its own."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.operator_lab import Lab, Process, operator_command, window
from support.waiting import WAIT_SECONDS, eventually
from tranche.demo.local_stack import apply_manifests, manifests
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """A cluster that only has the operator's account."""
    with Cluster() as cluster:
        cluster.kubectl("apply", "-f", str(manifests() / "rbac.yaml"))
        cluster.add_site("op", nodes=1)
        yield cluster


@pytest.fixture(scope="module")
def waiting(bare: Cluster) -> Iterator[Process]:
    process = Process(operator_command(bare), bare.directory / "operator.log")
    yield process
    process.kill()


def test_it_waits_for_the_crd_and_then_for_the_api_server(bare: Cluster, waiting: Process) -> None:
    eventually(lambda: "waiting: the CRD trainingjobs.tranche.dev is not installed" in waiting.log_text())
    apply_manifests(bare)
    eventually(lambda: "following the plans of all namespaces" in waiting.log_text())
    lab = Lab(bare, "default")
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")

    bare.stop("kube-apiserver", signal.SIGKILL)
    eventually(lambda: waiting.log_text().count("WARNING") >= 1)
    bare.start("kube-apiserver")
    lab.plan(window(0, 1), window(1, 2))
    eventually(lambda: sorted(lab.pods()) == ["cats-worker-0-1", "cats-worker-1-2"])
    assert waiting.process.poll() is None

    bare.kubectl("delete", "crd", "trainingjobs.tranche.dev", "--timeout=180s")
    eventually(lambda: waiting.log_text().count("the CRD trainingjobs.tranche.dev is not installed") >= 2)
    apply_manifests(bare)
    lab.has_pods()  # their job went with the CRD
    assert waiting.process.poll() is None
    assert "Traceback" not in waiting.log_text()


def test_operator_without_api_server_starts_and_stops_cleanly(bare: Cluster, tmp_path: Path) -> None:
    command = operator_command(bare)
    bare.stop("kube-apiserver", signal.SIGKILL)
    process = Process(command, tmp_path / "operator.log")
    eventually(lambda: "waiting: the API server returned an error" in process.log_text())
    assert process.terminate() == 0, process.log_text()
    bare.start("kube-apiserver")


def test_without_a_kubeconfig_it_says_so_and_ends(bare: Cluster, tmp_path: Path) -> None:
    command = operator_command(bare)
    command[command.index("--kubeconfig") + 1] = str(tmp_path / "none")
    process = Process(command, tmp_path / "operator.log")
    assert process.process.wait(WAIT_SECONDS) == 1
    assert "Error: no credentials for an API server" in process.log_text()
    assert "Traceback" not in process.log_text()
