"""``kubectl tranche plan JOB --chunks``: its table, and what a simulated planner lists."""

import asyncio
from datetime import UTC, datetime

from click.testing import CliRunner

from support.live_controller import NOW, reported, resource, taken_over
from tranche.cli.kubectl import main
from tranche.cli.kubectl_tables import chunks_text
from tranche.client.chunk_plan import RECOMPUTED, ChunkPlan, listed
from tranche.client.what_if import PlanningInputs
from tranche.live.planner_config import PlannerConfig
from tranche.web.chunk_plan import Chunk

START, END = datetime(2026, 11, 22, 14, tzinfo=UTC), datetime(2026, 11, 22, 15, tzinfo=UTC)


def row(chunk: int, state: str = "Planned", q: float | None = None, slots: tuple[int, ...] = ()) -> Chunk:
    if state == "Done":
        return Chunk(chunk, state, "", "", (), None, None, None, None, None)
    return Chunk(chunk, state, "edge-a", "n1", slots, START, END, q, None, None)


def table(*rows: Chunk) -> list[list[str]]:
    plan = ChunkPlan("default", "cats", "chunk", list(rows))
    return [line.split("   ") for line in chunks_text(plan).splitlines()]


def cells(*rows: Chunk) -> list[list[str]]:
    return [[cell.strip() for cell in line if cell.strip()] for line in table(*rows)]


def test_only_chunks_that_are_the_same_share_a_row() -> None:
    found = cells(row(0, "Done"), row(1, "Done"), row(2), row(3), row(4, "Running"), row(5))
    times = ["2026-11-22 14:00:00Z", "2026-11-22 15:00:00Z"]
    assert found == [
        ["CHUNK", "STATE", "SITE", "NODE", "SLOT", "START", "END"],
        ["0-1", "Done", "-", "-", "-", "-", "-"],
        ["2-3", "Planned", "edge-a", "n1", "-", *times],
        ["4", "Running", "edge-a", "n1", "-", *times],
        ["5", "Planned", "edge-a", "n1", "-", *times],
    ]


def test_q_has_a_column_where_there_is_one() -> None:
    found = cells(row(0, q=2.5, slots=(0, 1)), row(1))
    assert found[0][-1] == "Q"
    assert [line[4] for line in found[1:]] == ["0,1", "-"]
    assert [line[-1] for line in found[1:]] == ["2.5 s", "-"]


def test_chunk_at_unlimited_site_has_a_node_on_demand() -> None:
    cloud = Chunk(0, "Running", "cloud", "", (), START, END, None, None, None, on_demand=True)
    assert cells(cloud)[1][2:5] == ["cloud", "on demand", "-"]


def test_a_job_without_chunks_in_the_plan_says_where_to_look() -> None:
    assert chunks_text(ChunkPlan("default", "cats", "chunk", [])) == (
        "no chunks of TrainingJob cats are planned; for the reason, run: kubectl tranche why cats\n"
    )


def listed_by(policy: str) -> ChunkPlan:
    async def asked() -> ChunkPlan:
        controller = await taken_over(policy=policy)
        one = resource("cats", "100s", data={"chunks": 3})
        reported(controller, "jobs", one.key, one)
        return listed(PlanningInputs(controller.watches.objects, PlannerConfig(policy)), one.key, NOW)

    return asyncio.run(asked())


def test_forecast_plan_lists_planned_chunks_without_q() -> None:
    plan = listed_by("chunk")
    assert [one.chunk for one in plan.chunks] == [0, 1, 2]
    assert {one.state for one in plan.chunks} == {"Planned"}
    assert all(one.start and one.end and one.q is None for one in plan.chunks)
    assert (plan.policy, plan.note) == ("chunk", "")


def test_forecast_plan_of_binding_policy_has_q_and_slots() -> None:
    plan = listed_by("chunk-faithful")
    assert all(one.q is not None and one.slots for one in plan.chunks)
    assert plan.note == RECOMPUTED


def test_the_help_of_plan_names_the_chunks() -> None:
    assert "--chunks" in CliRunner().invoke(main, ["plan", "--help"]).stdout
