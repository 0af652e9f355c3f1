"""Wall clock of other processes, which a test can step: a library in LD_PRELOAD replaces the system calls."""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clocks.c")


class Clock:
    """Wall clock of the processes that were started with `environment`; their monotonic clocks do not change."""

    def __init__(self, folder: Path) -> None:
        """Build the library in a folder.

        Raises:
            FileNotFoundError: there is no C compiler.
            subprocess.CalledProcessError: the compilation fails.
        """
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise FileNotFoundError("clock steps need a C compiler (cc)")
        library, self._file = folder / "clocks.so", folder / "clock"
        self.step(0.0)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        """Set the clock to ``seconds`` after the real time."""
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:
            file.write(struct.pack("=q", round(1000 * seconds)))


def clock(folder: Path) -> Clock | None:
    """Return a clock; None without a C compiler."""
    try:
        return Clock(folder)
    except FileNotFoundError:
        return None
