"""Programs of the test cluster: built once from pinned Go modules, or taken from a folder of prebuilt ones.

Three environment variables matter. ``TRANCHE_ASSETS`` names a folder of prebuilt binaries, in the layout of
envtest's ``KUBEBUILDER_ASSETS``. ``TRANCHE_CACHE`` is the folder of built ones (default ``~/.cache/tranche``).
``TRANCHE_KUBERNETES`` is an older release of Kubernetes to build, such as ``1.34``.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import BuildError
from ..progress_meter import Meter
from .go_build import GoModule, build
from .go_toolchain import find_go

_KUBERNETES_VERSION = "k8s.io/component-base/version.gitVersion"
_KUBERNETES_NUMBERS = ("k8s.io/component-base/version.gitMajor", "k8s.io/component-base/version.gitMinor")
RELEASES = ("1.34", "1.35", "1.36")
"""Older releases of Kubernetes that can be built in place of the newest one."""


def _kubernetes(folder: str) -> GoModule:
    return GoModule(
        folder,
        "k8s.io/kubernetes",
        ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        renamed=(("server", "etcd"),),
        stamp=_KUBERNETES_VERSION,
        stamps_minor=_KUBERNETES_NUMBERS,
    )


_MODULES = (
    _kubernetes("kubernetes"),
    GoModule(
        "kubelet",
        "k8s.io/kubernetes",
        ("kubelet", "kube-proxy", "device-plugin", "pause"),
        stamp=_KUBERNETES_VERSION,
        stamps_minor=_KUBERNETES_NUMBERS,
        optional=True,
        sources=("device-plugin/main.go", "pause/main.go"),
    ),
    GoModule("coredns", "github.com/coredns/coredns", ("coredns",), optional=True, sources=("main.go",)),
    GoModule("kwok", "sigs.k8s.io/kwok", ("kwok",)),
    GoModule("helm", "helm.sh/helm/v4", ("helm",), stamp="helm.sh/helm/v4/internal/version.version"),
    GoModule("kubeconform", "github.com/yannh/kubeconform", ("kubeconform",), stamp="main.version"),
    GoModule("kind", "sigs.k8s.io/kind", ("kind",)),
    GoModule(
        "kueue",
        "sigs.k8s.io/kueue",
        ("kueue",),
        stamp="sigs.k8s.io/kueue/pkg/version.GitVersion",
        optional=True,
        manifests=("config/components/crd/bases", "config/components/webhook"),
    ),
    GoModule(
        "scheduler-plugins",
        "sigs.k8s.io/scheduler-plugins",
        ("coscheduling-scheduler", "coscheduling-controller"),
        renamed=(("scheduler", "coscheduling-scheduler"), ("controller", "coscheduling-controller")),
        optional=True,
        manifests=("manifests/coscheduling", "manifests/capacityscheduling"),
    ),
)
NAMES = tuple(name for module in _MODULES if not module.optional for name in module.binaries)
"""Programs that are built by default. The kubelet and the schedulers of the benchmarks are built only by name."""
_ALL = tuple(name for module in _MODULES for name in module.binaries)


def cache_folder() -> Path:
    """Return the folder that is kept between runs: ``TRANCHE_CACHE``, else ``tranche`` in the user's cache."""
    if chosen := os.environ.get("TRANCHE_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tranche"


def _module(name: str) -> GoModule:
    """Return the module of a program, for Kubernetes that of the release in ``TRANCHE_KUBERNETES``."""
    [module] = (module for module in _MODULES if name in module.binaries)
    release = os.environ.get("TRANCHE_KUBERNETES", "")
    if module.folder != "kubernetes" or not release or module.version.startswith(f"v{release}."):
        return module
    if release not in RELEASES:
        newest = ".".join(module.version.removeprefix("v").split(".")[:2])
        raise BuildError(f"TRANCHE_KUBERNETES={release}: no such release; there are {', '.join((*RELEASES, newest))}")
    return _kubernetes(f"kubernetes-{release}")


def ensure(*names: str, progress: Meter | None = None) -> dict[str, Path]:
    """Return the path of each of the named binaries (all of ``NAMES`` without arguments), building missing ones.

    A first build takes minutes, which ``progress`` shows (on standard error by default).

    Raises:
        BuildError: A name or the release is unknown, ``TRANCHE_ASSETS`` lacks a program, or Go failed.
    """
    names = names or NAMES
    if unknown := [name for name in names if name not in _ALL]:
        raise BuildError(f"no such binary: {', '.join(unknown)}; there are {', '.join(_ALL)}")
    if assets := os.environ.get("TRANCHE_ASSETS"):
        return _assets(Path(assets).expanduser().absolute(), names)
    folders = {module: _built(module, progress) for module in dict.fromkeys(map(_module, names))}
    return {name: folders[_module(name)] / name for name in names}


def manifests(name: str) -> list[Path]:
    """Return the YAML files that come with a program, in the folder ``manifests`` beside it.

    Raises:
        BuildError: As in `ensure`.
    """
    return sorted((ensure(name)[name].parent / "manifests" / _module(name).folder).glob("*.yaml"))


def version(name: str) -> str:
    """Return the pinned version of a program, such as v1.37.1."""
    return _module(name).version


def _assets(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    paths = {name: folder / name for name in names}
    if missing := [name for name, path in paths.items() if not os.access(path, os.X_OK)]:
        raise BuildError(
            f"TRANCHE_ASSETS={folder} lacks {', '.join(missing)}. Put these binaries there under these names, "
            "or unset TRANCHE_ASSETS to have all of them built from source."
        )
    return paths


def _built(module: GoModule, progress: Meter | None) -> Path:
    content = b"".join(file.read_bytes() for file in module.files)
    shelf = cache_folder() / "bin"
    folder = shelf / f"{module.folder}-{hashlib.sha256(content).hexdigest()[:16]}"
    if folder.exists():  # renamed into place when complete
        return folder
    shelf.mkdir(parents=True, exist_ok=True)
    with progress or Meter() as meter, _lock(shelf / f"{module.folder}.lock", meter):
        if folder.exists():  # by another process while we waited
            return folder
        for leftover in shelf.glob(f".{module.folder}.*"):  # of a build that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        meter.print_line(f"building {', '.join(module.binaries)} {module.version} into {folder} (kept for later runs)")
        staging = Path(tempfile.mkdtemp(dir=shelf, prefix=f".{module.folder}."))
        try:
            binaries = build(module, find_go(cache_folder(), meter), staging, meter)
            if missing := [name for name in module.binaries if not (binaries / name).exists()]:
                raise BuildError(f"go.mod of {module.folder} has no tool directive for {', '.join(missing)}")
            binaries.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        meter.print_line(f"built {', '.join(module.binaries)} in {meter.seconds:.0f} s")
    return folder


@contextlib.contextmanager
def _lock(file: Path, meter: Meter) -> Iterator[None]:
    """Hold a lock between processes; it is released when the holder dies."""
    with file.open("w") as lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            meter.print_line(f"waiting for another process that builds ({file})")
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield
