"""Programs of Debian packages: where they are looked for, and what is said when they cannot be had."""

import os
from pathlib import Path

import pytest

from tranche_testcluster import BuildError
from tranche_testcluster.binaries.debian_package import CONTAINERD, PROMETHEUS, ensure, find, main


def nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No cache, no apt."""
    monkeypatch.setenv("TRANCHE_CACHE", str(folder / "cache"))
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.delenv("TRANCHE_ASSETS", raising=False)


def test_ready_ones_are_found_in_the_folder_of_assets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)
    for name in PROMETHEUS.names:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert find(PROMETHEUS) is None
    monkeypatch.setenv("TRANCHE_ASSETS", str(tmp_path))
    assert find(PROMETHEUS) == {name: tmp_path / name for name in PROMETHEUS.names}


def test_without_apt_it_is_said_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere(monkeypatch, tmp_path)
    assert main() == 1
    said = capsys.readouterr().err
    assert said == "error: apt-get and dpkg-deb not found: put prometheus and promtool on the PATH\n"


def test_failed_apt_error_quotes_last_line_and_leaves_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("apt-get", "dpkg-deb"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho first >&2\necho E: no network >&2\nexit 100\n")
        (tmp_path / "bin" / name).chmod(0o755)
    with pytest.raises(BuildError, match="update` failed: E: no network"):
        ensure(PROMETHEUS)
    assert os.listdir(tmp_path / "cache/bin") == []


def test_a_program_of_the_same_name_on_the_path_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)
    (tmp_path / "bin").mkdir()
    for name in CONTAINERD.names:
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(0o755)
    assert find(CONTAINERD) is None
    with pytest.raises(BuildError, match=r"runc and bridge and .* into the folder TRANCHE_ASSETS"):
        ensure(CONTAINERD)


def test_programs_are_unpacked_from_several_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    unpack = "for f in usr/bin/containerd usr/bin/containerd-shim-runc-v2 usr/bin/ctr usr/sbin/runc usr/lib/cni/bridge "
    unpack += (
        "usr/lib/cni/host-local usr/lib/cni/loopback; do mkdir -p $3/${f%/*}; echo $f >$3/$f; chmod +x $3/$f; done"
    )
    (tools / "apt-get").write_text("#!/bin/sh\nshift 2\nfor p; do echo >$p.deb; done\n")
    (tools / "dpkg-deb").write_text(f"#!/bin/sh\n{unpack}\n")
    for name in ("apt-get", "dpkg-deb"):
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.defpath}")
    found = ensure(CONTAINERD)
    folder = tmp_path / "cache/bin/debian-containerd"
    assert found == {name: folder / name for name in CONTAINERD.names}
    assert (folder / "bridge").read_text() == "usr/lib/cni/bridge\n"
    assert sorted(os.listdir(folder.parent)) == [folder.name]
