"""Programs from Debian's packages, unpacked into the cache without installing them or starting a daemon.

``python -m tranche_testcluster.binaries.debian_package`` downloads Prometheus and promtool unless they are in the
cache, in the folder ``TRANCHE_ASSETS`` or on the PATH.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import BuildError
from .binary_cache import cache_folder

_FOLDERS = ("usr/bin", "usr/sbin", "usr/lib/cni")
_SECONDS = 300.0


@dataclass(frozen=True)
class Programs:
    """Programs of Debian packages that belong together, in one folder of the cache."""

    folder: str
    packages: tuple[str, ...]
    names: tuple[str, ...]
    on_path: bool = True  # whether programs of these names on the PATH are the same


PROMETHEUS = Programs("debian-prometheus", ("prometheus",), ("prometheus", "promtool"))
CONTAINERD = Programs(
    "debian-containerd",
    ("containerd", "runc", "containernetworking-plugins"),
    ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback"),
    on_path=False,  # iproute2 has a program `bridge` too
)


def find(programs: Programs) -> dict[str, Path] | None:
    """Return the paths of the programs, or None if one of them is missing."""
    folders = [os.environ.get("TRANCHE_ASSETS", ""), str(_folder(programs))]
    folders += [os.environ.get("PATH", "")] if programs.on_path else []
    by_name = {name: shutil.which(name, path=os.pathsep.join(filter(None, folders))) for name in programs.names}
    paths = {name: Path(path) for name, path in by_name.items() if path is not None}
    return paths if len(paths) == len(programs.names) else None


def ensure(programs: Programs) -> dict[str, Path]:
    """Return the paths of the programs; download the packages if one of them is missing.

    Raises:
        BuildError: apt or dpkg is missing, or failed.
    """
    if paths := find(programs):
        return paths
    if missing := [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]:
        where = "on the PATH" if programs.on_path else "into the folder TRANCHE_ASSETS"
        raise BuildError(f"{' and '.join(missing)} not found: put {' and '.join(programs.names)} {where}")
    target = _folder(programs)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as staging:
        _download(programs, Path(staging))
        for archive in Path(staging).glob("*.deb"):
            _run(["dpkg-deb", "-x", str(archive), staging], Path(staging))
        target.mkdir(exist_ok=True)
        for name in programs.names:
            _unpacked(Path(staging), name).replace(target / name)
    paths = find(programs)
    assert paths is not None
    return paths


def _unpacked(staging: Path, name: str) -> Path:
    for folder in _FOLDERS:
        path = staging / folder / name
        if path.is_file() and not path.is_symlink():
            return path
    raise BuildError(f"the Debian packages contain no {name} in {', '.join(_FOLDERS)}")


def _download(programs: Programs, folder: Path) -> None:
    """Download the packages, after an update of the list of packages if necessary."""
    command = ["apt-get", "-q", "download", *programs.packages]
    try:
        _run(command, folder)
    except BuildError:
        _run(["apt-get", "-q", "update"], folder)  # only root may do this
        _run(command, folder)


def _folder(programs: Programs) -> Path:
    return cache_folder() / "bin" / programs.folder


def _run(command: list[str], folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    if result.returncode:
        last = (result.stderr or result.stdout).strip().splitlines()[-1:]
        raise BuildError(f"`{' '.join(command)}` failed: {' '.join(last)}")


def main() -> int:
    """Download Prometheus if it is missing, and print the paths."""
    try:
        for name, path in ensure(PROMETHEUS).items():
            sys.stdout.write(f"{name:<24} {path}\n")
    except BuildError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
