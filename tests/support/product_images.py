"""Images of tranche, built from its Dockerfile with buildah.

``python -m support.product_images`` builds all and prints their archives and sizes (``make images``).
"""

import sys
import tarfile
from pathlib import Path

import yaml

from tranche_testcluster.errors import BuildError
from tranche_testcluster.images import Recipe, build, debian_base

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("scheduler", "operator", "worker")
VERSION = str(yaml.safe_load((ROOT / "helm" / "tranche" / "Chart.yaml").read_text())["appVersion"])


def image_name(target: str) -> str:
    """Return the name of an image, as the chart has it by default."""
    return f"docker.io/library/tranche-{target}:{VERSION}"


def archive(target: str) -> Path:
    """Build the image of a stage of the Dockerfile unless it is in the cache, and return its docker-archive.

    Raises:
        BuildError: A tool is missing or failed.
    """
    arguments = {"PYTHON_IMAGE": debian_base.name(), "VERSION": VERSION}
    return build(Recipe(image_name(target), ROOT / "Dockerfile", ROOT, target, arguments))


def uncompressed_bytes(docker_archive: Path) -> int:
    """Return the size of the layers of an image."""
    with tarfile.open(docker_archive) as tar:
        return sum(member.size for member in tar if member.isreg() and member.name.endswith(".tar"))


def main() -> int:
    """Build all images."""
    try:
        for target in TARGETS:
            path = archive(target)
            sys.stdout.write(f"{image_name(target):<45} {uncompressed_bytes(path) / 1e6:4.0f} MB  {path}\n")
    except BuildError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
