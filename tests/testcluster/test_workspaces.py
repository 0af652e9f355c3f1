"""Folders and ports of clusters are shared by no two of them and cleaned up after the dead."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tranche_testcluster
from tranche_testcluster import ClusterError
from tranche_testcluster.workspace import Workspace

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tranche_testcluster.__file__).parents[1])}


def left_by_a_killed_process(temporary: Path) -> Path:
    script = """
import os, signal
from tranche_testcluster.workspace import Workspace
print(Workspace().path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", script]
    environment = {**ENVIRONMENT, "TMPDIR": str(temporary)}
    return Path(subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip())


def test_no_port_is_given_twice_while_it_is_held() -> None:
    workspaces = [Workspace() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        ports = [port for some in pool.map(lambda one: [one.port() for _ in range(25)], workspaces) for port in some]
    for workspace in workspaces:
        workspace.close()
    assert len(set(ports)) == 100


def test_folder_of_killed_process_is_removed_by_next_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In the common base folder, a cluster of another test process may remove the folder before the assertions.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = left_by_a_killed_process(tmp_path)
    assert left.exists()
    running = Workspace()
    another = Workspace()
    assert not left.exists()
    assert running.path.exists()
    another.close()
    running.close()
    assert not running.path.exists()


def test_kept_folder_stays_and_next_cluster_empties_it(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = Workspace(folder)
    (folder / "log").write_text("old")
    first.close()
    assert (folder / "log").exists()
    second = Workspace(folder)
    assert not (folder / "log").exists()
    second.close()


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("precious")
    with pytest.raises(ClusterError, match="not from a test cluster"):
        Workspace(tmp_path)
    assert (tmp_path / "thesis").read_text() == "precious"


def test_the_folder_of_a_running_cluster_is_refused(tmp_path: Path) -> None:
    running = Workspace(tmp_path)
    with pytest.raises(ClusterError, match="that runs"):
        Workspace(tmp_path)
    running.close()
