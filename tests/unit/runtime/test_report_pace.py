"""Number of reports that are written while pods start."""

import pytest

from tranche.runtime.report_pace import reports_per_gap


@pytest.mark.parametrize(
    ("waited", "number"), [(0.0, 1), (59.0, 1), (74.0, 1), (75.0, 2), (90.0, 4), (150.0, 64), (1e9, 64)]
)
def test_reports_double_every_15_s_after_a_minute(waited: float, number: int) -> None:
    assert reports_per_gap(waited) == number
