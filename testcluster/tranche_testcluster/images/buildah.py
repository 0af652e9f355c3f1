"""Builds of Dockerfiles with buildah, kept as archives in the cache."""

import fcntl
import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..binaries.binary_cache import cache_folder
from ..errors import BuildError

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Certificate authorities of the machine, which a build may need to download packages."""
_QUOTED_LINES = 15


@dataclass(frozen=True)
class Recipe:
    """Image to be built from a Dockerfile."""

    image: str
    dockerfile: Path
    context: Path
    target: str = ""  # a stage of the Dockerfile; default: the last one
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Hash of everything that the image is built from, besides its base image."""
        files = [self.dockerfile, *_context_files(self.context)]
        parts = [self.image, self.target, *(f"{key}={value}" for key, value in sorted(self.arguments.items()))]
        digest = hashlib.sha256("\n".join(parts).encode())
        for file in files:
            digest.update(f"\n{file.name} {file.stat().st_mode:o} {file.stat().st_size}\n".encode())
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]


def build(recipe: Recipe) -> Path:
    """Build an image unless it is in the cache, and return its docker-archive.

    Raises:
        BuildError: buildah is missing or failed; its last lines are quoted.
    """
    shelf = cache_folder() / "images"
    shelf.mkdir(parents=True, exist_ok=True)
    name = recipe.image.rpartition("/")[2].replace(":", "_")
    archive = shelf / f"{name}-{recipe.digest}.tar"
    with (shelf / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return archive
        options = ["--isolation=chroot", "--layers", "--pull-never", f"--file={recipe.dockerfile}"]
        options += [f"--target={recipe.target}"] if recipe.target else []
        options += [f"--build-arg={key}={value}" for key, value in recipe.arguments.items()]
        options += [f"--secret=id=authorities,src={AUTHORITIES}"] if AUTHORITIES.exists() else []
        run("build", *options, f"--tag={recipe.image}", recipe.context)
        for old in shelf.glob(f"{name}-*.tar"):
            old.unlink()
        staging = archive.with_suffix(".new")
        staging.unlink(missing_ok=True)
        run("push", recipe.image, f"docker-archive:{staging}:{recipe.image}")
        staging.replace(archive)
    return archive


def run(*words: str | Path) -> str:
    """Run buildah with a storage of its own in the cache, and return its output.

    Raises:
        BuildError: It is missing or failed.
    """
    storage = cache_folder() / "buildah"
    own = (f"--root={storage / 'root'}", f"--runroot={storage / 'run'}", "--storage-driver=overlay")
    return run_tool("buildah", *own, *words).strip()


def run_tool(name: str, *words: str | Path) -> str:
    """Run a program of the Debian package of its name, and return its output.

    Raises:
        BuildError: It is missing or failed.
    """
    try:
        result = subprocess.run([name, *map(str, words)], capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise BuildError(f"{name} not found; on Debian: apt-get install {name}") from None
    if result.returncode:
        last = "\n".join(f"{result.stdout}\n{result.stderr}".strip().splitlines()[-_QUOTED_LINES:])
        raise BuildError(f"`{name} {' '.join(map(str, words))}` failed:\n{last}")
    return result.stdout


def _context_files(context: Path) -> list[Path]:
    """Return the files of a context, as far as its .dockerignore includes them."""
    ignore = context / ".dockerignore"
    names = [line[1:] for line in ignore.read_text().splitlines() if line.startswith("!")] if ignore.exists() else ["."]
    paths = [file for name in names for file in (context / name, *(context / name).rglob("*"))]
    return sorted(file for file in paths if file.is_file() and "__pycache__" not in file.parts)
