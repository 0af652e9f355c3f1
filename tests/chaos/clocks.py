"""A wall clock that can be stepped, for processes that know nothing of it: by a library that is loaded first."""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clocks.c")


class Clock:
    """The clock of processes that were started with `environment`. Monotonic clocks are left alone."""

    def __init__(self, folder: Path) -> None:
        """Build the library in a folder.

        Raises:
            FileNotFoundError: there is no C compiler.
            subprocess.CalledProcessError: it refuses.
        """
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise FileNotFoundError("clock steps need a C compiler (cc)")
        library, self._file = folder / "clocks.so", folder / "clock"
        self.step(0.0)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        """Set it to ``seconds`` after the real time."""
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:
            file.write(struct.pack("=q", round(1000 * seconds)))


def clock(folder: Path) -> Clock | None:
    """A clock, or None where it cannot be built."""
    try:
        return Clock(folder)
    except FileNotFoundError:
        return None
