"""The journal of a scheduler process as a file: one fact about a window in a line, as JSON."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import msgspec

from tranche.planner.journals import Fact


class JournalError(Exception):
    """A journal cannot be written or read; the text names file and line."""


@contextmanager
def journal(path: Path) -> Iterator[Callable[[Fact], None]]:
    """A note-taker that appends each fact to the file at once.

    Raises:
        JournalError: if the file cannot be opened.
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
    """All facts of a journal, in the order in which they were written.

    Raises:
        JournalError: if the file or a line cannot be read.
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
