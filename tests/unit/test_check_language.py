"""The language check finds what it forbids, accepts the corrected text, and its baseline only falls."""

import textwrap
from collections import Counter
from pathlib import Path

import pytest

import check_language
from check_language import (
    FUNCTION_NAME,
    RULE_NAMES,
    TEST_NAME,
    check_file,
    over_baseline,
    read_baseline,
    write_baseline,
)

SAMPLES: dict[str, tuple[str, str, str]] = {  # rule: (path, text with a finding, corrected text)
    **check_language.SAMPLES,
    "personified": ("a.md", "The planner believes\nit.\n", "The planner estimates\nit.\n"),
    "so many": ("a.py", "X = 3\n'''Wait for so many pods.'''\n", "X = 3\n'''Number of pods to wait for.'''\n"),
    "who sentence": ("a.md", "It ends. Who waits takes over.\n", "It ends. The first waiting job takes over.\n"),
    "relative clause": (
        "a.py",
        'def f() -> int:\n    """What is left of the quota."""\n',
        'def f() -> int:\n    """Return the unused quota."""\n',
    ),
    "whether": (
        "a.py",
        'def f() -> bool:\n    """Whether it fits."""\n',
        'def f() -> bool:\n    """Return whether it fits."""\n',
    ),
    "genitive fragment": (
        "a.py",
        'class A:\n    pods: int\n    """Of its workers."""\n',
        'class A:\n    pods: int\n    """Number of worker pods."""\n',
    ),
    "interrupted sentence": (
        "a.md",
        "The command\n\n```sh\nmake demo\n```\n\nstarts a cluster.\n",
        "This command starts a cluster:\n\n```sh\nmake demo\n```\n\nIt takes two minutes.\n",
    ),
    FUNCTION_NAME: ("a.py", "def knows_sites() -> None: ...\n", "def has_sites() -> None: ...\n"),
    TEST_NAME: (
        "tests/unit/test_a.py",
        f"def test_{'a' * 56}() -> None: ...\n",
        f"def test_{'a' * 55}() -> None: ...\n",
    ),
}
WASTED = "in" + " vain"
"""Words of the rule with an exemption."""


def rules_of(path: str, text: str) -> list[str]:
    return [finding.rule for finding in check_file(path, text)]


def test_every_rule_has_a_sample() -> None:
    assert set(SAMPLES) == set(RULE_NAMES)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_a_rule_rejects_its_sample_and_accepts_the_correction(rule: str) -> None:
    path, wrong, right = SAMPLES[rule]
    assert rules_of(path, wrong) == [rule]
    assert rules_of(path, right) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "The column `told` is empty.\n"),
        ("a.md", "A log:\n\n```\nis told that it waits\n```\n\nIt ends there.\n"),
        ("a.py", '"""The field ``told``, and `told`."""\n'),
        ("a.py", 'X = "told"\ncopied_in_vain = 1\n'),
        ("a.md", "Who may read the page?\n\nThere are so many that a page is not enough.\n"),
        ("a.py", 'def _f() -> int:\n    """What is left."""\n'),
    ],
)
def test_code_names_and_questions_are_no_findings(path: str, text: str) -> None:
    assert rules_of(path, text) == []


def test_a_finding_names_its_file_and_line() -> None:
    text = textwrap.dedent('''\
        def f() -> int:
            """Return a number.

            It is what it
            is told.
            """
            return 1  # as told
        ''')
    found = [(finding.path, finding.line, finding.rule) for finding in check_file("x/a.py", text)]
    assert found == [("x/a.py", 5, "told"), ("x/a.py", 7, "told")]
    assert str(check_file("x/a.py", text)[1]) == "x/a.py:7: [told] 'told': write 'received', 'reported' or 'configured'"


def test_each_exemption_has_a_reason_and_a_rule() -> None:
    for exemption in check_language.EXEMPTIONS:
        assert exemption.rule in RULE_NAMES
        assert exemption.reason


def test_exempt_lines_are_no_findings() -> None:
    assert rules_of("docs/a.md", f"The column is: {WASTED} GB.\n") == []
    assert rules_of("docs/a.md", f"The job tried {WASTED}.\n") == [WASTED]


def test_the_baseline_falls_and_never_rises(tmp_path: Path) -> None:
    path = tmp_path / "baseline.toml"
    write_baseline(path, Counter(told=3, personified=1))
    assert over_baseline(Counter(told=3, personified=1), read_baseline(path)) == []
    assert over_baseline(Counter(told=4), read_baseline(path)) == ["told"]
    write_baseline(path, Counter(told=2))
    assert over_baseline(Counter(told=2, personified=1), read_baseline(path)) == ["personified"]
    with pytest.raises(ValueError, match="rose for: told"):
        write_baseline(path, Counter(told=3))
    assert read_baseline(path)["told"] == 2


def test_a_rule_without_a_number_allows_nothing() -> None:
    assert over_baseline(Counter(told=1), {}) == ["told"]


def test_main_fails_above_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    monkeypatch.setattr(check_language, "BASELINE", tmp_path / "baseline.toml")
    monkeypatch.setattr(check_language, "tracked_files", lambda root: ["a.md"])
    (tmp_path / "a.md").write_text("Rank as told.\n")
    assert check_language.main([]) == 1
    assert "a.md:1: [told]" in capsys.readouterr().err
    assert check_language.main(["--write-baseline"]) == 0
    assert check_language.main([]) == 0
    (tmp_path / "a.md").write_text("Rank again.\n")
    assert check_language.main([]) == 0
    assert "--write-baseline" in capsys.readouterr().out
