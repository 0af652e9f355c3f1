"""Prometheus of Debian: where it is looked for, and what is said when it cannot be had."""

import os
from pathlib import Path

import pytest

from tranche_testcluster import BuildError
from tranche_testcluster.binaries.debian_package import NAMES, ensure, find, main


def nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No cache, no apt."""
    monkeypatch.setenv("TRANCHE_CACHE", str(folder / "cache"))
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.delenv("TRANCHE_ASSETS", raising=False)


def test_ready_ones_are_found_in_the_folder_of_assets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere(monkeypatch, tmp_path)
    for name in NAMES:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert find() is None
    monkeypatch.setenv("TRANCHE_ASSETS", str(tmp_path))
    assert find() == {name: tmp_path / name for name in NAMES}


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
        ensure()
    assert os.listdir(tmp_path / "cache/bin") == []
