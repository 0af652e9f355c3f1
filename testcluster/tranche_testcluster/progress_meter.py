"""Progress of long work: a bar on a terminal, a line every quarter of a minute in a log."""

import sys
import time
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINE_SECONDS = 15.0


class Meter:
    """Progress of one piece of work, shown on one stream; a context manager."""

    def __init__(self, stream: TextIO | None = None, line_seconds: float = _LINE_SECONDS) -> None:
        """Write to ``stream`` (standard error by default); without a terminal, write a line every ``line_seconds``."""
        self._stream = stream or sys.stderr
        self._line_seconds = line_seconds
        self._start = self._last_line = time.monotonic()
        self._text, self._count = "", 0
        self._total: int | None = None
        self._bar: Progress | None = None
        if self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._start

    def print_line(self, text: str) -> None:
        """Print one lasting line."""
        if self._bar:
            self._bar.console.print(text, highlight=False, soft_wrap=True)
        else:
            self._stream.write(text + "\n")
            self._stream.flush()
        self._last_line = time.monotonic()

    def phase(self, text: str, total: int | None = None) -> None:
        """Begin a part of the work that has ``total`` steps, None if the number is unknown."""
        self._text, self._total, self._count = text, total, 0
        if self._bar:
            self._bar.update(self._task, description=text, completed=0, total=total)
        else:
            self._line()

    def advance(self, steps: int = 1) -> None:
        """Count steps; with 0, only write a log line when one is due."""
        self._count += steps
        if self._bar:
            self._bar.update(self._task, completed=self._count)
        elif time.monotonic() - self._last_line >= self._line_seconds:
            self._line()

    def _line(self) -> None:
        if self._total:
            share = f" {self._count} of {self._total} ({100 * self._count // self._total} %)"
        else:
            share = f" {self._count}" if self._count else ""
        self.print_line(f"{self._text}:{share} after {self.seconds:.0f} s")
