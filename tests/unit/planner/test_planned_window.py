"""Windows that the forecast opens later, with exact numbers on small clusters."""

from support.builders import gang, job, node, planner
from tranche.planner import JobSubmitted, Planner
from tranche.planner.forecast.planned_window import planned_windows
from tranche.planner.forecast.steps import run_to_completion

Row = tuple[str, str, int, str, float, float]


def rows(p: Planner, most: int = 100) -> list[Row]:
    p.forecast(0.0)
    found = run_to_completion(planned_windows(p, most))
    return [(one.job, one.node, one.workers, one.chunks, one.start, one.end) for one in found]


def test_open_windows_are_left_out_and_later_ones_joined() -> None:
    # One GPU: a holds it with all that fits into its window; b follows with both of its chunks.
    p = planner("fifo", [node("n1", gpus=1)])
    p.handle(JobSubmitted(job("a", chunks=1)), 0.0)
    p.handle(JobSubmitted(job("b", chunks=2)), 0.0)
    assert rows(p) == [("default/b", "n1", 1, "0-1", 100.0, 300.0)]


def test_gang_members_on_one_node_are_one_window() -> None:
    p = planner("fifo", [node("n1", gpus=2), node("n2", gpus=2)])
    p.handle(JobSubmitted(job("a", chunks=4)), 0.0)
    p.handle(JobSubmitted(gang("g", members=4)), 0.0)
    found = rows(p)
    assert [(one[:3], one[4]) for one in found] == [
        (("default/g", "n1", 2), 100.0),
        (("default/g", "n2", 2), 100.0),
    ]


def test_windows_are_cut_to_the_first_by_start() -> None:
    p = planner("fifo", [node("n1", gpus=1)])
    for name in "abcd":
        p.handle(JobSubmitted(job(name, chunks=1)), 0.0)
    assert [one[0] for one in rows(p, most=2)] == ["default/b", "default/c"]


def test_a_binding_policy_has_no_later_windows() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=1)])
    p.handle(JobSubmitted(job("a", chunks=3)), 0.0)
    assert rows(p) == []
