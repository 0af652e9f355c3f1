"""Parameters of the sweeps, and the figures that their tables are made of."""

import pytest

from sweep_settings import CLOUD, EDGE, Point, Setting, Sweep, sweeps
from sweeps import (
    BASE,
    arrival_seconds,
    base_sweep,
    chunk_windows,
    claims,
    figures_of,
    mean_of,
    place_of,
    reductions,
    table_of,
)
from tranche.simulation.job_log import TraceRow
from tranche.simulation.recipe import DrawnJobs, PresetCluster, RowsLog
from tranche.simulation.scenario import run
from tranche.simulation.study import run_cell

LOG = RowsLog(tuple(TraceRow(str(i), 60.0 * i, 1, 1.0) for i in range(4)))


def found(**jct_hours: tuple[float, ...]) -> dict[tuple[str, str, str, int], dict[str, float]]:
    """Figures of one panel and point: hours by policy, one a seed."""
    return {
        ("jsac-cloud", BASE, policy, seed): {"average": 3600 * hours}
        for policy, values in jct_hours.items()
        for seed, hours in enumerate(values, start=1)
    }


def test_changed_sets_own_fields_and_options() -> None:
    setting = Setting(jobs=4).changed({"load": 0.5, "edges": 3}).changed({"epochs": 20})
    assert (setting.load, setting.jobs, setting.options.edges, setting.options.epochs) == (0.5, 4, 3, 20)


def test_cell_of_a_setting_has_its_jobs_cluster_and_speed() -> None:
    setting = Setting("jsac-edge", jobs=4, chunk_scale=0.1).changed({"speed_factor": 1.5, "delay": "outside"})
    recipe = setting.cell(LOG, "chunk", 2).recipe
    assert isinstance(recipe.workload, DrawnJobs)
    assert isinstance(recipe.cluster, PresetCluster)
    assert (recipe.workload.count, recipe.workload.chunk_scale, recipe.speed_factor) == (4, 0.1, 1.5)
    assert (recipe.cluster.name, recipe.cluster.options.delay) == ("jsac-edge", "outside")
    assert recipe.workload.options is recipe.cluster.options


@pytest.mark.parametrize("sweep", sweeps(), ids=lambda sweep: sweep.name)
def test_each_value_of_a_sweep_makes_another_simulation(sweep: Sweep) -> None:
    cells = sweep.cells(Setting(jobs=4), LOG, (1, 2))
    assert len(cells) == len(sweep.panels) * len(sweep.points) * len(sweep.policies) * 2
    repeated = {"cloud-share": 0, "options": 2 * len(sweep.policies) * 2}.get(sweep.name, 0)
    plain = {(cell.recipe, cell.policy, cell.seed, cell.load) for cell in cells.values()}
    assert len(plain) >= len(cells) - repeated


def test_price_is_an_option_of_the_policy() -> None:
    sweep = next(one for one in sweeps() if one.name == "price")
    policies = [cell.policy for cell in sweep.cells(Setting(), LOG, (1,)).values()]
    assert policies == [f"chunk:price={price}" for price in ("0", "0.01", "0.03", "0.1", "0.3", "1")]


def test_within_leaves_out_points_of_more_jobs() -> None:
    sweep = next(one for one in sweeps() if one.name == "jobs")
    assert [point.label for point in sweep.within(60).points] == ["20", "40", "60"]
    assert next(one for one in sweeps() if one.name == "load").within(1).points[0].label == "0.5"


def test_reductions_are_formed_within_a_seed() -> None:
    base = found(chunk=(8.0, 5.0), fifo=(10.0, 10.0))
    assert reductions(base, "jsac-cloud", BASE, "chunk", "fifo") == pytest.approx((35.0, 20.0, 50.0))


def test_table_has_means_over_seeds_in_hours() -> None:
    sweep = Sweep("one", "One", "nothing", (Point(BASE),), panels=(CLOUD,), policies=("chunk", "fifo"))
    base = found(chunk=(8.0, 5.0), fifo=(10.0, 10.0))
    assert table_of(sweep, base, "average")[1:] == [("jsac-cloud", BASE, "6.5", "10.0")]
    assert mean_of(base, "jsac-cloud", BASE, "chunk", "average") == 6.5 * 3600


def test_place_is_the_value_its_rank_or_a_figure() -> None:
    points = (Point("a"), Point("b"))
    named = Sweep("one", "One", "name", points, panels=(CLOUD,), policies=("chunk",))
    assert place_of(named, {}, CLOUD, "chunk", 1) == 1
    numbered = Sweep("two", "Two", "x", (Point("7", {}, 7.0),), panels=(CLOUD,), policies=("chunk",))
    assert place_of(numbered, {}, CLOUD, "chunk", 0) == 7
    against = Sweep("three", "Three", "x", (Point(BASE),), panels=(CLOUD,), policies=("chunk",), against="average")
    assert place_of(against, found(chunk=(8.0,)), CLOUD, "chunk", 0) == pytest.approx(8.0)


def test_figures_count_chunks_and_jobs_of_the_cloud() -> None:
    setting = Setting("jsac-cloud", jobs=4, chunk_scale=0.05).changed({"cloud_delay_scale": 0})
    figures = figures_of(run_cell(setting.cell(LOG, "chunk-faithful", 1)))
    assert (figures["cloud chunks"], figures["cloud jobs"]) == (1.0, 1.0)
    edge = setting.changed({"preset": "jsac-edge"}).cell(LOG, "chunk-faithful", 1)
    figures = figures_of(run_cell(edge))
    assert (figures["cloud chunks"], figures["cloud jobs"], figures["cloud GPU-hours"]) == (0.0, 0.0, 0.0)
    assert 0 < figures["communication"] < 1


def test_claims_say_when_a_ratio_is_above_its_bound() -> None:
    sweep = base_sweep()
    assert [panel.title for panel in sweep.panels] == [CLOUD.title, EDGE.title]
    base = {(panel.title, BASE, policy, 1): {"average": 1.0} for panel in sweep.panels for policy in sweep.policies}
    rows = [{"epsilon": 1.0, "worst": 1.0, "mean": 0.5, "bound": 2.0}]
    fine = {"instances": 1, "relaxed": rows, "exact": [{**rows[0], "bound": 4.0}]}
    assert [row[2].partition(";")[0] for row in claims(base, fine, "said", "command")[1:3]] == ["holds", "holds"]
    broken = {"instances": 1, "relaxed": rows, "exact": [{**rows[0], "worst": 5.0, "bound": 4.0}]}
    verdicts = [row[2].partition(";")[0] for row in claims(base, broken, "said", "command")[1:3]]
    assert verdicts == ["holds", "does not hold"]


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_chunk_windows_hold_all_that_was_trained(policy: str) -> None:
    cell = Setting("jsac-cloud", jobs=4, chunk_scale=0.05).cell(LOG, policy, 1)
    result = run(cell.recipe.build(policy, 1, cell.load, record=True))
    windows = chunk_windows(result)
    trained = sum(one.gpus * (one.ended - one.opened) for one in windows)
    assert trained == pytest.approx(sum(job.attained_gpu_seconds for job in result.jobs))
    assert {one.job for one in windows} == {job.key for job in result.jobs}


def test_scheduling_time_is_taken_once_a_job() -> None:
    cell = Setting("jsac-edge", jobs=4, chunk_scale=0.05).cell(LOG, "fifo", 1)
    taken = arrival_seconds(cell.recipe.build("fifo", 1, cell.load))
    assert len(taken) == 4
    assert min(taken) > 0
