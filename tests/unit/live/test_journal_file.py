"""A journal on disk reads as it was written, and says where it is broken."""

from pathlib import Path

import pytest

from tranche.live.journal_file import JournalError, journal, read_journal
from tranche.planner.journal import Fact

FACTS = [
    Fact(1.5, "submitted", "default/j"),
    Fact(2.0, "opened", "default/j", 1, "a", (0, 3), handover=True),
    Fact(3.25, "ended", "default/j", 1, outcome="Succeeded"),
]


def test_facts_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for part in (FACTS[:2], FACTS[2:]):  # an existing journal is continued
        with journal(path) as note:
            for fact in part:
                note(fact)
    assert read_journal(path) == FACTS


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with journal(path) as note:
        note(FACTS[0])
    with path.open("a") as file:
        file.write('{"at": 3.0, "kind": "sta')
    with pytest.raises(JournalError, match=r"journal\.jsonl, line 2: not a journal entry"):
        read_journal(path)


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"none\.jsonl: No such file"):
        read_journal(tmp_path / "none.jsonl")


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"journal\.jsonl: No such file"), journal(tmp_path / "no" / "journal.jsonl"):
        pass
