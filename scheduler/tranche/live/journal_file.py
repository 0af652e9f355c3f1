"""Journal file of a scheduler process: one JSON line per window event."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import msgspec

from tranche.planner.journal import Fact


class JournalError(Exception):
    """A journal cannot be written or read; the message names file and line."""


@contextmanager
def journal(path: Path) -> Iterator[Callable[[Fact], None]]:
    """Open a journal; yields a function that appends an entry to the file immediately.

    Raises:
        JournalError: the file cannot be opened.
    """
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    encode = msgspec.json.Encoder().encode
    with file:
        yield lambda fact: _write(file, encode(fact))


def _write(file: FileIO, line: bytes) -> None:
    file.write(line + b"\n")


def read_journal(path: Path) -> list[Fact]:
    """Read all entries of a journal, in the order in which they were written.

    Raises:
        JournalError: the file or a line cannot be read.
    """
    decode = msgspec.json.Decoder(Fact).decode
    facts: list[Fact] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            facts.append(decode(line))
        except msgspec.DecodeError as error:
            raise JournalError(f"{path}, line {number}: not a journal entry: {error}") from error
    return facts
