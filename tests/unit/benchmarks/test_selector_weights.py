"""Exit status of the comparison of the selector with its members."""

import sys

import pytest

import selector_weights


@pytest.mark.parametrize(
    ("declared", "unknown", "status"), [(1.0, 1.0, False), (1.0, 1.2, True), (1.2, 1.0, True), (1.03, 1.03, False)]
)
def test_comparison_fails_above_the_bar_for_either_size(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    declared: float,
    unknown: float,
    status: bool,
) -> None:
    monkeypatch.setattr(selector_weights, "row", lambda case, _: (case.name, unknown if case.unsized else declared))
    monkeypatch.setattr(sys, "argv", ["selector_weights.py", "--weights", "1"])
    with pytest.raises(SystemExit) as ended:
        selector_weights.main()
    assert bool(ended.value.code) is status
    assert f"sizes unknown: {unknown:.3f}" in capsys.readouterr().out
