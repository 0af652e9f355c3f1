"""Prometheus and promtool from Debian's package, unpacked into the cache without installing it or starting a daemon.

``python -m tranche_testcluster.binaries.debian_package`` downloads them unless they are in the cache, in the folder
``TRANCHE_ASSETS`` or on the PATH.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import BuildError
from .binary_cache import cache_folder

PACKAGE = "prometheus"
NAMES = ("prometheus", "promtool")
_SECONDS = 300.0


def find() -> dict[str, Path] | None:
    """Return the paths of the programs, or None if one of them is not found."""
    folders = [os.environ.get("TRANCHE_ASSETS", ""), str(_folder()), os.environ.get("PATH", "")]
    found = {name: shutil.which(name, path=os.pathsep.join(filter(None, folders))) for name in NAMES}
    paths = {name: Path(path) for name, path in found.items() if path is not None}
    return paths if len(paths) == len(NAMES) else None


def ensure() -> dict[str, Path]:
    """Return the paths of the programs; download the package if one of them is not found.

    Raises:
        BuildError: apt or dpkg is not there, or failed.
    """
    if found := find():
        return found
    if missing := [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]:
        raise BuildError(f"{' and '.join(missing)} not found: put {' and '.join(NAMES)} on the PATH")
    shelf = _folder().parent
    shelf.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=shelf) as staging:
        _download(Path(staging))
        for archive in Path(staging).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(archive), staging], Path(staging))
        _folder().mkdir(exist_ok=True)
        for name in NAMES:
            (Path(staging) / "usr/bin" / name).replace(_folder() / name)
    found = find()
    assert found is not None
    return found


def _download(folder: Path) -> None:
    """Get the package, if need be after the list of packages."""
    command = ["apt-get", "-q", "download", PACKAGE]
    try:
        _run(command, folder)
    except BuildError:
        _run(["apt-get", "-q", "update"], folder)  # root's only
        _run(command, folder)


def _folder() -> Path:
    return cache_folder() / "bin" / "debian-prometheus"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise BuildError(f"`{' '.join(command)}` failed: {' '.join(last)}")


def main() -> int:
    """Make them present, and say where they are."""
    try:
        for name, path in ensure().items():
            sys.stdout.write(f"{name:<24} {path}\n")
    except BuildError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
