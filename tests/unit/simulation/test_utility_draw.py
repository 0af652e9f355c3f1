"""Utilities drawn for jobs, and the sum of utilities as a metric."""

from statistics import fmean

import pytest

from support.builders import job, node
from tranche.model import Utility
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.workload.utility_draw import with_utilities
from tranche.simulation_report import format_table

JOBS = [job(f"j{n}", chunks=4, seconds=50.0 * (1 + n % 3), max_workers=2) for n in range(600)]


def drawn(draw: str, seed: int = 1) -> list[Utility]:
    utilities = [one.utility for one in with_utilities(JOBS, draw, seed)]  # type: ignore[arg-type]
    return [one for one in utilities if one is not None]


@pytest.mark.parametrize(("draw", "slots"), [("hours", [3600.0] * 3), ("relative", [100.0, 200.0, 300.0])])
def test_draws_have_the_ranges_and_shares_of_oasis(draw: str, slots: list[float]) -> None:
    found, parts = drawn(draw), [0, 0, 0]
    assert len(found) == len(JOBS)
    for number, utility in enumerate(found):
        slot = slots[number % 3]
        assert 1.0 <= utility.priority <= 100.0
        assert slot <= utility.target_seconds <= 15.0 * slot
        decay = utility.decay_per_second * slot
        assert decay == 0.0 or 0.01 <= decay <= 1.0 or 4.0 <= decay <= 6.0
        parts[0 if decay == 0.0 else 1 if decay <= 1.0 else 2] += 1
    assert [part / len(JOBS) for part in parts] == pytest.approx([0.10, 0.55, 0.35], abs=0.06)
    assert fmean(utility.priority for utility in found) == pytest.approx(50.5, abs=4.0)


def test_draw_of_a_job_does_not_depend_on_other_jobs() -> None:
    assert [one.utility for one in with_utilities(JOBS[5:6], "hours", 1)] == drawn("hours")[5:6]
    assert drawn("hours", 2) != drawn("hours", 1)


def test_declared_utility_is_kept_and_none_draws_nothing() -> None:
    known = Utility(7.0, 0.0, 1.0)
    assert with_utilities([job("a", utility=known)], "hours", 1)[0].utility == known
    assert with_utilities([job("a")], "none", 1)[0].utility is None


def test_total_utility_sums_completed_jobs_that_name_one() -> None:
    jobs = (
        job("a", seconds=100.0, utility=Utility(10.0, 0.0, 1.0)),  # 5 whenever it completes
        job("b", seconds=100.0, utility=Utility(8.0, 1.0, 200.0)),  # 4: it completes at its target
        job("c", seconds=100.0),
        job("never", worker=job("x").worker, chunks=2, is_gang=True, utility=Utility(100.0, 0.0, 1.0)),
    )
    summary = summarize(run(Scenario(jobs, (node("n0"),), policy="sjf")))
    assert (summary.jobs, summary.unfinished) == (3, 1)
    assert summary.total_utility == pytest.approx(9.0)


def test_tables_show_utility_only_where_jobs_name_it() -> None:
    without, known = (
        summarize(run(Scenario((job("a", utility=utility),), (node("n0"),))))
        for utility in (None, Utility(4.0, 0.0, 1.0))
    )
    headings = [[column.header for column in format_table([("fifo", one)]).columns] for one in (without, known)]
    assert "utility" not in headings[0]
    assert "utility" in headings[1]
