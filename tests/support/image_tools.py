"""hadolint and cyclonedx-py (requirements/image.txt), Sphinx (docs.txt): environments of their own beside the binaries.

``python -m support.image_tools sbom FILE`` writes the bill of materials of both images (``make sbom``).
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from hashlib import blake2b
from pathlib import Path

from tranche_testcluster.binaries.binary_cache import cache_folder

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str, group: str = "image") -> Path:
    """Return a program of the environment of a group of requirements, which is created at its first use.

    Raises:
        CalledProcessError: pip cannot install the locked versions.
    """
    locked = ROOT / "requirements" / f"{group}.txt"
    versions = locked.read_bytes() + sys.version.encode()
    folder = cache_folder() / f"{group}-tools-{blake2b(versions, digest_size=6).hexdigest()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
            subprocess.run([*pip, "install", "--quiet", "--require-hashes", "-r", str(locked)], check=True)
            (folder / ".installed").touch()
    return folder / "bin" / name


def write_sbom(target: Path) -> None:
    """Write the images' packages besides our own wheel, as CycloneDX 1.6; the same input gives the same bytes.

    Raises:
        CalledProcessError: cyclonedx-py fails.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [str(tool("cyclonedx-py")), "requirements", "--pyproject", "pyproject.toml", "--output-reproducible"]
    options = ["--sv", "1.6", "--of", "JSON", "-o", str(target.resolve()), "requirements/runtime.txt"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # The tool warns that a list of pins has no dependency graph, which is expected.
    environment["PYTHONWARNINGS"] = "ignore::UserWarning"
    subprocess.run([*command, *options], cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "sbom":
        sys.exit("usage: python -m image_tools sbom FILE")
    write_sbom(Path(sys.argv[2]))
    print(sys.argv[2])  # noqa: T201
