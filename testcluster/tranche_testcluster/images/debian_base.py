"""Base image with Debian's Python, made of Debian packages: in place of `python:3.13-slim` where no registry is."""

import fcntl
import shutil
import tempfile
from pathlib import Path

from ..binaries.binary_cache import cache_folder
from ..errors import BuildError
from . import buildah

_PACKAGES = ("python3", "python3-venv", "python-is-python3")
_UNUSED = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "var/cache", "var/lib/apt/lists")


def name() -> str:
    """Return the name of the image, which is built unless buildah's storage has it.

    Raises:
        BuildError: debootstrap or buildah is missing or failed.
    """
    release = _release()
    image = f"localhost/tranche-debian-python:{release}"
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "debian-base.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if image not in buildah.run("images", "--format={{.Name}}:{{.Tag}}").splitlines():
            with tempfile.TemporaryDirectory(dir=folder) as staging:
                _build(image, release, Path(staging) / "root")
    return image


def _build(image: str, release: str, root: Path) -> None:
    buildah.run_tool(
        "debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", release, root, _mirror(release)
    )
    for unused in _UNUSED:
        shutil.rmtree(root / unused, ignore_errors=True)
        (root / unused).mkdir()
    container = buildah.run("from", "scratch")
    try:
        buildah.run("add", "--quiet", container, root, "/")
        buildah.run("config", "--cmd=python", container)
        buildah.run("commit", "--quiet", container, image)
    finally:
        buildah.run("rm", container)


def _release() -> str:
    """Return the code name of this machine's Debian."""
    lines = Path("/etc/os-release").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    if values.get("ID") != "debian" or "VERSION_CODENAME" not in values:
        raise BuildError("the base image is made of Debian packages, and this machine is not Debian")
    return values["VERSION_CODENAME"]


def _mirror(release: str) -> str:
    """Return the mirror that apt takes this release from."""
    lines = buildah.run_tool("apt-get", "indextargets", "--format=$(CODENAME) $(COMPONENT) $(SITE)").splitlines()
    sites = [line.split()[2] for line in lines if line.startswith(f"{release} main ")]
    if not sites:
        raise BuildError(f"apt has no mirror of Debian {release}")
    return sites[0]
