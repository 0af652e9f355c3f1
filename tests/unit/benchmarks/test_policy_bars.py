"""Rows of the bars of JCT, and what is said where the issue aimed at less."""

import pytest

from policy_bars import Row, aim_text, jobs_of, rows


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_each_row_has_a_bar_or_is_measured_only(row: Row) -> None:
    assert (row.bar is not None) == row.barred


def test_names_of_rows_differ() -> None:
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("measured", "possible", "said"),
    [(0.6, 0.5, "kept"), (0.99, 0.79, "not reachable"), (0.99, 0.5, "does not rule it out")],
)
def test_aim_is_kept_out_of_reach_or_missed(measured: float, possible: float, said: str) -> None:
    assert said in aim_text(0.65, measured, possible)


def test_jobs_of_a_row_depend_on_its_preset_unless_given() -> None:
    by_preset = {row.setting.preset: row for row in rows()}
    cloud, edge = by_preset["jsac-cloud"], by_preset["jsac-edge"]
    assert (jobs_of(cloud, None), jobs_of(edge, None), jobs_of(cloud, 9)) == (60, 120, 9)
    assert jobs_of(edge, None, quick=True) == 40
