"""The language check finds what it forbids, accepts the corrected text, and its baseline only falls."""

import textwrap
from collections import Counter
from pathlib import Path

import pytest

import check_language
from check_language import RULE_NAMES, TEST_NAME, check_file, over_baseline, read_baseline, write_baseline

SAMPLES: dict[str, tuple[str, str, str]] = {  # rule: (path, text with a finding, corrected text)
    "nobody": ("a.md", "A node that nobody uses.\n", "A node that no job uses.\n"),
    "whoever": ("a.yaml", "# Whoever reads it needs a token.\n", "# Readers need a token.\n"),
    "anew": ("a.py", "# Rank the queue anew.\n", "# Rank the queue again.\n"),
    "for ever": ("a.py", "# The job waits for\n# ever.\n", "# The job waits indefinitely.\n"),
    "on paper": ("a.py", 'X = "free on paper"\n', 'X = "free by reservation"\n'),
    "in vain": ("a.tpl", "{{/* tried in vain */}}\n", "{{/* tried without success */}}\n"),
    "told": ("a.py", '"""Events that the planner is told."""\n', '"""Events that the planner receives."""\n'),
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
        'def f() -> int:\n    """Whether it fits."""\n',
        'def f() -> bool:\n    """Whether it fits."""\n',
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
    TEST_NAME: (
        "tests/unit/test_a.py",
        f"def test_{'a' * 56}() -> None: ...\n",
        f"def test_{'a' * 55}() -> None: ...\n",
    ),
}


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
        ("a.md", "The column `nobody` is empty.\n"),
        ("a.md", "A log:\n\n```\nnobody waits anew\n```\n\nIt ends there.\n"),
        ("a.py", '"""The field ``told``, and `anew`."""\n'),
        ("a.py", 'X = "nobody"\ncopied_in_vain = 1\n'),
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

            It waits for
            ever.
            """
            return 1  # asked anew
        ''')
    found = [(finding.path, finding.line, finding.rule) for finding in check_file("x/a.py", text)]
    assert found == [("x/a.py", 4, "for ever"), ("x/a.py", 7, "anew")]
    assert str(check_file("x/a.py", text)[1]) == "x/a.py:7: [anew] 'anew': write 'again'"


def test_each_exemption_has_a_reason_and_a_rule() -> None:
    for exemption in check_language.EXEMPTIONS:
        assert exemption.rule in RULE_NAMES
        assert exemption.reason


def test_exempt_lines_are_no_findings() -> None:
    assert rules_of("docs/a.md", "The column is: in vain GB.\n") == []
    assert rules_of("docs/a.md", "The job tried in vain.\n") == ["in vain"]


def test_the_baseline_falls_and_never_rises(tmp_path: Path) -> None:
    path = tmp_path / "baseline.toml"
    write_baseline(path, Counter(nobody=3, told=1))
    assert over_baseline(Counter(nobody=3, told=1), read_baseline(path)) == []
    assert over_baseline(Counter(nobody=4), read_baseline(path)) == ["nobody"]
    write_baseline(path, Counter(nobody=2))
    assert over_baseline(Counter(nobody=2, told=1), read_baseline(path)) == ["told"]
    with pytest.raises(ValueError, match="rose for: nobody"):
        write_baseline(path, Counter(nobody=3))
    assert read_baseline(path)["nobody"] == 2


def test_a_rule_without_a_number_allows_nothing() -> None:
    assert over_baseline(Counter(anew=1), {}) == ["anew"]


def test_main_fails_above_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    monkeypatch.setattr(check_language, "BASELINE", tmp_path / "baseline.toml")
    monkeypatch.setattr(check_language, "tracked_files", lambda root: ["a.md"])
    (tmp_path / "a.md").write_text("Rank anew.\n")
    assert check_language.main([]) == 1
    assert "a.md:1: [anew]" in capsys.readouterr().err
    assert check_language.main(["--write-baseline"]) == 0
    assert check_language.main([]) == 0
    (tmp_path / "a.md").write_text("Rank again.\n")
    assert check_language.main([]) == 0
    assert "--write-baseline" in capsys.readouterr().out
