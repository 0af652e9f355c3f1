"""Records are bounded, and outlive their process."""

from pathlib import Path

import pytest

from tranche.replay.jsonl_store import RecordError, Records


def test_records_keep_last_entries_and_bound_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records"
    records = Records(int, 5, path)
    for number in range(100):
        records.add(number)
        assert len(path.read_bytes().splitlines()) < 10
    assert list(records.kept) == [95, 96, 97, 98, 99]
    assert list(Records(int, 5, path).kept) == [95, 96, 97, 98, 99]


def test_a_line_that_a_crash_has_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"1\n2\n[")
    records = Records(int, 5, path)
    records.add(3)
    assert list(Records(int, 5, path).kept) == [1, 2, 3]


def test_without_a_file_they_are_in_memory_only() -> None:
    records = Records(int, 2)
    for number in range(5):
        records.add(number)
    assert list(records.kept) == [3, 4]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no/records: No such file or directory"):
        Records(int, 5, tmp_path / "no" / "records")
