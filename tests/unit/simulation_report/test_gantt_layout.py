"""Positions of the bars of a Gantt chart."""

from support.simulated_results import full_result, occupation
from tranche.simulation.engine.result import Sample
from tranche.simulation_report import gantt_layout
from tranche.simulation_report.gantt_layout import Bar, Chart, lay_out


def overlapping(chart: Chart) -> list[tuple[Bar, Bar]]:
    return [
        (a, b)
        for a in chart.bars
        for b in chart.bars
        if a is not b
        and a.lane < b.lane + b.lanes
        and b.lane < a.lane + a.lanes
        and a.occupation.opened < b.occupation.ended
        and b.occupation.opened < a.occupation.ended
    ]


def test_bars_never_overlap_and_hold_all_gpus_of_their_pod() -> None:
    chart = lay_out(full_result().occupations)
    assert not overlapping(chart)
    assert sum(bar.lanes for bar in chart.bars) == sum(o.gpus for o in full_result().occupations)
    assert chart.nodes == (("node-1", 0, 2), ("node-2", 2, 1))
    assert (chart.begin, chart.end, chart.scope) == (0.0, 80.0, "")


def test_a_pod_whose_gpus_lie_apart_has_several_bars() -> None:
    pods = [occupation(f"j{i}", "n", 0.0, 10.0 if i % 2 else 5.0) for i in range(4)]
    chart = lay_out([*pods, occupation("wide", "n", 5.0, 9.0, 2)])
    assert [(bar.lane, bar.lanes) for bar in chart.bars if bar.occupation.job == "wide"] == [(0, 1), (2, 1)]
    assert not overlapping(chart)


def test_chart_shows_only_busiest_nodes_in_natural_order() -> None:
    pods = [occupation(f"j{i}", f"node-{i}", 0.0, 10.0 if i in (2, 10) else 1.0, 20) for i in range(1, 21)]
    chart = lay_out(pods)
    assert [name for name, _, _ in chart.nodes] == ["node-2", "node-10"]
    assert chart.scope == "the 2 busiest of 20 nodes"
    assert {bar.occupation.node for bar in chart.bars} == {"node-2", "node-10"}


def test_of_one_huge_node_the_first_gpus_are_shown() -> None:
    pods = [occupation(f"j{i}", "pool", 0.0, 10.0, 4) for i in range(32)]
    chart = lay_out(pods)
    assert chart.nodes == (("pool", 0, gantt_layout.MAX_LANES),)
    assert chart.scope == "48 of 128 used GPUs of pool"
    assert max(bar.lane + bar.lanes for bar in chart.bars) <= gantt_layout.MAX_LANES


def test_chart_of_many_pods_shows_time_around_longest_queue() -> None:
    pods = [occupation(f"j{i}", "n", float(i), i + 1.0) for i in range(5000)]
    samples = [Sample(0.0, 1, 0), Sample(3000.0, 1, 9), Sample(3001.0, 1, 0)]
    chart = lay_out(pods, samples)
    assert gantt_layout.MAX_BARS - 2 <= len(chart.bars) <= gantt_layout.MAX_BARS + 2
    assert chart.begin <= 3000.0 <= chart.end
    assert chart.scope == "a stretch with many waiting jobs"


def test_pods_without_gpus_have_a_lane_of_their_own() -> None:
    chart = lay_out([occupation("a", "n", 0.0, 5.0, 0), occupation("b", "n", 0.0, 5.0, 0)])
    assert [(bar.lane, bar.lanes) for bar in chart.bars] == [(0, 1), (1, 1)]
