"""Compile planner and simulation engine to native code with mypyc, in a copy of the package, and print its folder.

The copy in ``build/native`` comes before the checkout with ``PYTHONPATH=build/native``. It is built again when a source
has changed, in a few minutes; mypyc needs a C compiler and the headers of Python. The copy only takes the place of an
earlier one if simulations print the same with it under all policies. Live programs refuse it, because msgspec does not
read native dataclasses.
"""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tranche.policies.registry import POLICIES

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "scheduler/tranche"
COPY = ROOT / "build/native"
STAMP = "sources.sha256"
DRAFT = COPY.with_name("native.new")
LOG = COPY.with_name("native.log")
PACKAGES = ("estimate", "model", "planner", "simulation/engine", "state")
INTERPRETED = ("estimate/batch_service.py", "estimate/link_contention.py", "planner/invariants.py", "state/phases.py")
"""Modules that mypyc cannot compile: a cached property, a generic dataclass, and classes with a built-in base class."""
REFUSAL = "build/native is only for simulations: run this command without PYTHONPATH"
FAST_BUILD = {"MYPYC_OPT_LEVEL": "1", "MYPYC_DEBUG_LEVEL": "0"}
"""With -O3, the compiler takes twice as long."""
_DRAWN = "--arrivals data/traces/tiresias_60.csv --jobs 12 --chunk-scale 0.05 --loads 0.9"
COMPARED = (
    f"--preset edge-cloud {_DRAWN}",
    f"--preset jsac-cloud {_DRAWN}",
    f"--preset jsac-edge {_DRAWN} --restart-seconds 30",
    "data/traces/tiresias_60.csv --gpus 64",
    "data/traces/tiresias_60.csv --cluster docs/samples/cluster.yaml --restart-seconds 30 --network",
)
"""Arguments of `tranche compare`: jobs with chunks and gangs, with and without the network model and GPU kinds."""


def native_modules() -> list[str]:
    """Return the paths of the modules to compile, relative to the package."""
    paths = [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
    names = [path.relative_to(SOURCE).as_posix() for path in paths if path.name != "__init__.py"]
    return [name for name in names if name not in INTERPRETED]


def source_digest() -> str:
    """Return a digest of all that the copy depends on."""
    digest = hashlib.sha256(f"{sys.version} {version('mypy')}".encode() + Path(__file__).read_bytes())
    for path in sorted(SOURCE.rglob("*.*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(SOURCE)} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()


def build() -> bool:
    """Make a draft of the copy and compile its modules; return whether that succeeded."""
    shutil.rmtree(DRAFT, ignore_errors=True)
    shutil.copytree(SOURCE, DRAFT / "tranche", ignore=shutil.ignore_patterns("__pycache__"))
    modules = [f"tranche/{name}" for name in native_modules()]
    for module in modules:
        (DRAFT / module).write_text(picklable((DRAFT / module).read_text()))
    (DRAFT / "tranche/live/__init__.py").write_text(f'raise ImportError("{REFUSAL}")\n')
    command = [str(Path(sys.executable).with_name("mypyc")), "--config-file", str(ROOT / "pyproject.toml"), *modules]
    with LOG.open("wb") as log:
        done = subprocess.run(  # noqa: S603
            command, cwd=DRAFT, env={**os.environ, **FAST_BUILD}, stdout=log, stderr=log, check=False
        )
    for folder in ("build", ".mypy_cache"):
        shutil.rmtree(DRAFT / folder, ignore_errors=True)
    return done.returncode == 0


def picklable(source: str) -> str:
    """Return the source with dataclasses that are not frozen, and have the same hash.

    A native object is unpickled by setting its attributes, which a frozen dataclass refuses.
    """
    return re.sub(r"@dataclass\(frozen=True(?!.*eq=False)", "@dataclass(unsafe_hash=True", source)


def differences() -> list[str]:
    """Return the comparisons whose results are not those of the checkout, with the first line that differs."""
    found = []
    for arguments in COMPARED:
        ours, native = (printed(arguments, package) for package in ("", str(DRAFT)))
        if ours != native:
            lines = next((pair for pair in zip(ours, native, strict=False) if pair[0] != pair[1]), ("", "fewer lines"))
            found.append(f"tranche compare {arguments}\n  checkout: {lines[0]}\n  native:   {lines[1]}")
    return found


def printed(arguments: str, package: str) -> list[str]:
    """Return the lines that a comparison of all policies prints with the package in a folder; "" is the checkout.

    Raises:
        SystemExit: The comparison fails with the checkout, so that nothing would be compared.
    """
    command = [sys.executable, "-m", "tranche", "compare", *shlex.split(arguments), "--policies", ",".join(POLICIES)]
    done = subprocess.run(  # noqa: S603
        [*command, "--seeds", "1", "--format", "csv", "--quiet"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not package:
        raise SystemExit(f"native_package.py: tranche compare {arguments}: {done.stderr}")
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def update() -> str:
    """Build the copy if it is absent or outdated; return why that failed, or ""."""
    digest, stamp = source_digest(), COPY / STAMP
    if stamp.exists() and stamp.read_text() == digest:
        return ""
    print(f"compiling {len(native_modules())} modules, which takes a few minutes", file=sys.stderr, flush=True)
    if not build():
        lines = LOG.read_text().splitlines() or ["nothing was printed"]
        return f"the modules cannot be compiled: {lines[-1]} ({LOG} has the rest)"
    print("comparing the results of all policies", file=sys.stderr, flush=True)
    if found := differences():
        return "\n".join(["the results of native code differ:", *found])
    (DRAFT / STAMP).write_text(digest)
    shutil.rmtree(COPY, ignore_errors=True)
    DRAFT.rename(COPY)
    return ""


def main() -> int:
    """Build the copy unless it is there, one program at a time; return the exit code."""
    COPY.parent.mkdir(exist_ok=True)
    with COPY.with_name("native.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failure = update()
    if failure:
        print(f"native_package.py: {failure}", file=sys.stderr)
        return 1
    print(COPY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
