"""Each decision record has the same parts, and the index maps every old number to one of them."""

import re
from pathlib import Path

import pytest

from support.doc_pages import ROOT

FOLDER = ROOT / "docs/decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ("Context", "Decision", "Consequences", "Measured", "Alternatives")
NEVER_USED = {36, 43, 44, 47}
"""Old numbers that no page had."""


def superseded(record: Path) -> list[int]:
    match = re.search(r"^\* Supersedes: ([\d, ]+) \(old numbers?\)$", record.read_text(encoding="utf-8"), re.MULTILINE)
    return [int(number) for number in match[1].split(",")] if match else []


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_record_has_status_date_area_and_sections(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(record.name[:4])}. ")
    assert re.search(r"^\* Status: (accepted|superseded by \d+)$", text, re.MULTILINE)
    assert re.search(r"^\* Date: \d{4}-\d\d-\d\d", text, re.MULTILINE)
    assert re.search(r"^\* Area: \w+", text, re.MULTILINE)
    headings = re.findall(r"^## (\w+)", text, re.MULTILINE)
    assert [part for part in SECTIONS if part not in headings] == []


def test_records_are_numbered_without_gaps() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_index_has_the_title_and_area_of_each_record() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for record in RECORDS:
        text = record.read_text(encoding="utf-8")
        title = text.partition("\n")[0].partition(". ")[2]
        area = re.search(r"^\* Area: (.+)$", text, re.MULTILINE)
        before, found, _ = index.partition(f"[{int(record.name[:4])}]({record.name}) | {title} |")
        assert found, record.name
        assert area
        assert re.findall(r"\*\*(.+?)\*\*", before)[-1].lower() == area[1].lower()


def test_index_maps_each_old_number_to_its_record() -> None:
    _, _, table = (FOLDER / "README.md").read_text(encoding="utf-8").partition("## Old numbers")
    cells = [re.findall(r"(\d+|none)", row) for row in table.splitlines() if re.match(r"\| \d", row)]
    shown = {int(old): new for row in cells for old, new in zip(row[::2], row[1::2], strict=True)}
    expected = {old: str(int(record.name[:4])) for record in RECORDS for old in superseded(record)}
    assert shown == expected | dict.fromkeys(NEVER_USED, "none")
    assert shown.keys() == set(range(1, 51))
    assert sum(len(superseded(record)) for record in RECORDS) == len(expected), "an old number is in two records"
