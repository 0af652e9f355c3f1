"""Compilation of the tools of one Go module, with visible progress."""

import contextlib
import os
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..child_process import tethered
from ..errors import BuildError
from ..progress_meter import Meter

MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class GoModule:
    """Folder of ``modules/`` and the programs of its ``tool`` directives."""

    folder: str
    version_of: str  # required module with the version of the binaries
    binaries: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()  # (name of the Go tool, usual name of the program)
    stamp: str = ""  # variable that the linker sets to the version
    stamps_minor: tuple[str, str] | None = None  # variables for its major and minor number
    optional: bool = False  # whether its programs are built only if they are named
    manifests: tuple[str, ...] = ()  # folders of YAML files in the module of the version, copied to the binaries
    sources: tuple[str, ...] = ()  # files of programs of our own in the folder

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of go.mod, go.sum and the module's own sources."""
        return tuple(MODULES / self.folder / name for name in ("go.mod", "go.sum", *self.sources))

    @property
    def version(self) -> str:
        """The pinned version, such as v1.37.1."""
        match = re.search(rf"^(?:require)?\s*{re.escape(self.version_of)} (v\S+)", self.files[0].read_text(), re.M)
        if match is None:
            raise BuildError(f"{self.files[0]} does not require {self.version_of}")
        return match[1]

    @property
    def link_flags(self) -> str:
        """Strip symbols and set the version that the binaries report."""
        flags = ["-s", "-w"]
        if self.stamp:
            flags += ["-X", f"{self.stamp}={self.version}"]
        if self.stamps_minor:
            for variable, number in zip(self.stamps_minor, self.version.lstrip("v").split("."), strict=False):
                flags += ["-X", f"{variable}={number}"]
        return " ".join(flags)


def build(module: GoModule, go: Path, staging: Path, meter: Meter) -> Path:
    """Compile all tools of a module inside the empty folder ``staging`` and return the folder that holds them.

    Raises:
        BuildError: Go failed; its last lines are quoted.
    """
    for file in module.files:
        target = staging / file.relative_to(MODULES / module.folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)
    common = ["-trimpath", "-buildvcs=false", "-ldflags", module.link_flags]

    meter.phase(f"{module.folder}: modules downloaded")
    template = "{{if .Stale}}{{.ImportPath}}{{end}}"
    stale = _run([go, "list", "-deps", "-f", template, *common, "tool"], staging, meter, "go: downloading ")
    meter.phase(f"{module.folder}: packages compiled", total=len(stale))
    _run([go, "build", "-v", "-o", f"{staging / 'bin'}/", *common, "tool"], staging, meter, "")
    for old, new in module.renamed:
        (staging / "bin" / old).rename(staging / "bin" / new)
    if module.manifests:
        [source] = _run([go, "list", "-m", "-f", "{{.Dir}}", module.version_of], staging, meter, "")
        _copy_manifests(module, Path(source), staging / "bin" / "manifests" / module.folder)
    return staging / "bin"


def _copy_manifests(module: GoModule, source: Path, target: Path) -> None:
    """Copy the YAML files of the module's folders into one folder; Go's cache, where they are, is read-only."""
    target.mkdir(parents=True)
    for folder in module.manifests:
        for file in sorted((source / folder).glob("*.yaml")):
            (target / f"{folder.replace('/', '-')}-{file.name}").write_bytes(file.read_bytes())


def _run(command: Sequence[str | Path], cwd: Path, meter: Meter, counted: str) -> list[str]:
    """Run go, count its error lines that begin with ``counted``, return the lines of its output.

    A thread reads the pipe, because the compiler may be silent for a minute and the log needs its lines meanwhile.
    """
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",  # whatever the user or `go env -w` has there
        "GOWORK": "off",
        "GO111MODULE": "on",
        "GOTOOLCHAIN": "local",
    }
    output = cwd / "output"
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    error_lines: list[str] = []
    with (
        output.open("w") as stdout,
        subprocess.Popen(  # noqa: S603
            tethered(command), cwd=cwd, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        reader = threading.Thread(target=_read, args=(process.stderr, lines))
        reader.start()
        try:
            while (line := _next(lines)) is not None:
                error_lines += [line] if line else []
                meter.advance(1 if line and line.startswith(counted) else 0)
        except BaseException:
            process.kill()
            raise
        finally:
            reader.join()
    if process.returncode:
        text = "\n".join(error_lines[-20:])
        raise BuildError(f"`{' '.join(map(str, command[:2]))}` ended with exit code {process.returncode}:\n{text}")
    return [line for line in output.read_text().splitlines() if line]


def _read(pipe: IO[str] | None, lines: "queue.SimpleQueue[str | None]") -> None:
    with contextlib.suppress(ValueError):
        for line in pipe or ():
            lines.put(line.rstrip("\n"))
    lines.put(None)


def _next(lines: "queue.SimpleQueue[str | None]") -> str | None:
    """Return the next line, empty when there is none for a second, None at the end."""
    try:
        return lines.get(timeout=1.0)
    except queue.Empty:
        return ""
