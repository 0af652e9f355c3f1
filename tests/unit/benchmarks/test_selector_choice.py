"""Exit status of the comparison of the selector with its members."""

import sys

import pytest

import selector_choice


@pytest.mark.parametrize(
    ("tested", "declared", "unknown", "status"),
    [
        (True, 1.0, 1.0, False),
        (True, 1.0, 1.2, True),
        (True, 1.2, 1.0, True),
        (True, 1.03, 1.03, False),
        (False, 1.2, 1.2, False),
    ],
)
def test_comparison_fails_above_the_bar_on_logs_of_the_test(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tested: bool,
    declared: float,
    unknown: float,
    status: bool,
) -> None:
    def row(part: selector_choice.Part, unsized: float, *_: object) -> tuple[str, float]:
        ratio = unknown if unsized else declared
        return part.name, ratio if (part in selector_choice.TESTED_ON) is tested else 1.0

    monkeypatch.setattr(selector_choice, "row", row)
    monkeypatch.setattr(sys, "argv", ["selector_choice.py"])
    with pytest.raises(SystemExit) as ended:
        selector_choice.main()
    assert bool(ended.value.code) is status
    assert f"sizes unknown: {unknown if tested else 1.0:.3f}" in capsys.readouterr().out
