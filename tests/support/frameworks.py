"""PyTorch and TensorFlow for worker/examples: each in a virtual environment of its own, beside the binaries.

``python -m support.frameworks`` installs both (``make examples``). On Linux, PyPI's torch includes Nvidia's
libraries: 5.4 GB.
"""

import shutil
import subprocess
import sys
import venv
from hashlib import blake2b
from pathlib import Path

from tranche_testcluster.binaries.binary_cache import cache_folder

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
FRAMEWORKS = ("torch", "tensorflow")


def python_of(name: str) -> Path:
    """Return the interpreter that can import a framework.

    Raises:
        FileNotFoundError: The locked versions are not installed.
    """
    folder = _folder(name)
    if not _stamp(folder).exists():
        raise FileNotFoundError(f"{name} is not installed in the locked versions: make examples")
    return folder / "bin" / "python"


def install(name: str) -> None:
    """Install a framework, unless the locked versions are installed."""
    folder = _folder(name)
    if _stamp(folder).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--require-hashes", "-r", str(_lock(name))], check=True)
    _stamp(folder).touch()


def _folder(name: str) -> Path:
    versions = _lock(name).read_bytes() + sys.version.encode()
    return cache_folder() / "examples" / f"{name}-{blake2b(versions, digest_size=6).hexdigest()}"


def _lock(name: str) -> Path:
    return REQUIREMENTS / f"examples-{name}.txt"


def _stamp(folder: Path) -> Path:
    return folder / ".installed"


if __name__ == "__main__":
    for framework in FRAMEWORKS:
        print(f"{framework}: requirements/examples-{framework}.txt (pinned, with hashes)", flush=True)  # noqa: T201
        install(framework)
