"""JSON lines file with the last records; it is compacted at twice the number of kept records."""

import os
from collections import deque
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class RecordError(Exception):
    """A file cannot be read or written; the message is one line that names the file."""


class Records(Generic[T]):
    """The last `most` values of one type, in memory and, with a path, in a file."""

    def __init__(self, kind: type[T], most: int, path: Path | None = None) -> None:
        """Read the existing file; unreadable lines, such as one truncated by a crash, are ignored.

        Args:
            kind: Type of the values.
            most: Number of values to keep.
            path: Path of the file; None: memory only.

        Raises:
            RecordError: the file cannot be read or written.
        """
        self._path = path
        self._encode = msgspec.json.Encoder().encode
        self.kept: deque[T] = deque(maxlen=most)
        self._lines = 0
        if path is not None:
            try:
                self._read(kind, path)
                self._compact(path)
            except OSError as error:
                raise RecordError(f"{path}: {error.strerror or error}") from error

    def add(self, value: T) -> None:
        """Add a value and drop the oldest if there are too many.

        Raises:
            RecordError: the file cannot be written.
        """
        self.kept.append(value)
        if self._path is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(self._encode(value) + b"\n")
            self._lines += 1
            if self._lines >= 2 * (self.kept.maxlen or 1):
                self._compact(self._path)
        except OSError as error:
            raise RecordError(f"{self._path}: {error.strerror or error}") from error

    def _read(self, kind: type[T], path: Path) -> None:
        if not path.exists():
            return
        decode = msgspec.json.Decoder(kind).decode
        with path.open("rb") as file:
            for line in file:
                try:
                    self.kept.append(decode(line))
                except msgspec.DecodeError:
                    continue

    def _compact(self, path: Path) -> None:
        """Write the kept values to a new file and replace the old one."""
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(b"".join(self._encode(value) + b"\n" for value in self.kept))
        os.replace(beside, path)
        self._lines = len(self.kept)
