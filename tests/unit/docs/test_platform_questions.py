"""Each question of a platform engineer has an answer, and a link to a section that exists."""

import re

from support.doc_pages import ROOT, anchors, section

PAGE = ROOT / "docs/how-to/platform-questions.md"
ROWS = re.findall(r"(?m)^\| (\d+)\. ([^|]+\?) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"))


def test_fifteen_questions_have_an_answer_each() -> None:
    assert [int(number) for number, _, _, _ in ROWS] == list(range(1, 16))
    assert all(answer.strip().endswith(".") for _, _, answer, _ in ROWS)


def test_each_question_links_to_sections_with_text() -> None:
    for number, _, _, links in ROWS:
        targets = re.findall(r"\]\(([^)#]*)#([\w-]+)\)", links)
        assert targets, f"question {number} links to no section"
        for name, anchor in targets:
            file = (PAGE.parent / name).resolve() if name else PAGE
            assert anchor in anchors(file), f"question {number}: {name}#{anchor}"
            if not any(line.startswith("###") for line in section(file, anchor).splitlines()):
                assert len(section(file, anchor).split()) > 3, f"question {number}: {name}#{anchor} is empty"
