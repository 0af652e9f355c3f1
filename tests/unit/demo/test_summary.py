"""The end of the demo: a run that follows its delays exactly is predicted exactly, and any other is explained."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from support.builders import job, node
from support.operator_objects import training_job
from tranche.demo.delay_measurement import measure_delays
from tranche.demo.deviation import compare, spread
from tranche.demo.machine_load import MachineLoad
from tranche.demo.submission import uses_of
from tranche.demo.summary import Outcome, report, simulate_outcome
from tranche.kube.api.resources import SiteObject
from tranche.model import Site
from tranche.simulation.engine.control_plane_delays import Delays
from tranche.simulation.engine.result import SiteUse
from tranche.simulation_report.formatting import significant

TRUE = Delays(start_seconds=0.4, notice_seconds=0.3, save_seconds=0.2, handover_seconds=0.25, concurrency_seconds=0.02)
REPORTING = 0.1
JOBS = tuple(job(f"j{i}", 6.0 * i, chunks=1 + i % 4, seconds=4.0 + 9 * (i % 3)) for i in range(12))
NODES = (node("a", gpus=2), node("b", gpus=1))
BARE = Outcome({}, 0, {}, TRUE, REPORTING, JOBS, (Site("edge-a"),), NODES)


@pytest.fixture
def outcome() -> Outcome:
    """As if the planner in virtual time had been the live one."""
    _, timelines = simulate_outcome(BARE, "srsf", seed=1)
    completed = {key: timeline.ended + REPORTING for key, timeline in timelines.items()}
    preemptions = sum(timeline.preemptions for timeline in timelines.values())
    measured = measure_delays(timelines, TRUE.save_seconds)
    return replace(BARE, completed=completed, preemptions=preemptions, timelines=timelines, delays=measured)


def printed(outcome: Outcome) -> str:
    console = Console(file=io.StringIO(), width=100)
    report(console, outcome, "srsf", 1)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    return text


def test_delays_are_measured_as_they_are(outcome: Outcome) -> None:
    assert outcome.preemptions >= 3
    assert outcome.delays.start_seconds == pytest.approx(TRUE.start_seconds)
    assert outcome.delays.concurrency_seconds == pytest.approx(TRUE.concurrency_seconds)
    assert outcome.delays.notice_seconds == pytest.approx(TRUE.notice_seconds)
    assert outcome.delays.handover_seconds == pytest.approx(TRUE.handover_seconds)


def test_run_is_predicted_from_arrivals_specs_and_delays(outcome: Outcome) -> None:
    _, simulated = simulate_outcome(outcome, "srsf", seed=1)
    found = compare(outcome.timelines, simulated, outcome.completed, REPORTING)
    assert len(found) == len(JOBS)
    assert spread(found) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert {one.cause() for one in found} == {""}


def test_the_report_says_how_well_it_was_predicted(outcome: Outcome) -> None:
    text = printed(outcome)
    assert "12 of 12 jobs succeeded" in text
    assert "differ from the measured ones by 0.0% at the median and 0.0% at" in text
    assert "0 of 12 jobs by more than 15%" in text
    assert "source of the difference" not in text


@pytest.mark.parametrize(("late_seconds", "side"), [(0.0, "below"), (500.0, "above")])
def test_average_is_above_fifo_if_it_is_longer(outcome: Outcome, late_seconds: float, side: str) -> None:
    late = {key: at + late_seconds for key, at in outcome.completed.items()}
    text = " ".join(printed(replace(outcome, completed=late)).split())
    assert re.search(rf"average JCT is \d+\.\d s, \d+% {side} FIFO ", text)


def test_a_job_whose_status_was_late_is_listed_with_that_cause(outcome: Outcome) -> None:
    late = {**outcome.completed, "default/j3": outcome.completed["default/j3"] + 20.0}
    text = printed(replace(outcome, completed=late))
    assert "1 of 12 jobs by more than 15%" in text
    (line,) = [line for line in text.splitlines() if line.startswith("j3")]
    assert "status written +20.0 s" in line


@pytest.mark.parametrize(
    ("load", "late_seconds", "blamed"),
    [
        (MachineLoad(0.38, 0.6), 20.0, True),
        (MachineLoad(0.38, 0.02), 20.0, False),
        (MachineLoad(0.38, 0.6), 0.0, False),
        (None, 20.0, False),
    ],
    ids=["loaded", "idle", "no difference", "not measured"],
)
def test_load_is_named_as_cause_of_differences(
    outcome: Outcome, load: MachineLoad | None, late_seconds: float, blamed: bool
) -> None:
    late = {**outcome.completed, "default/j3": outcome.completed["default/j3"] + late_seconds}
    text = " ".join(printed(replace(outcome, completed=late, load=load)).split())
    words = "the demo used 38% of this machine's processor time and other programs 60%"
    assert (words in text) is blamed
    assert ("the load is a likely cause" in text) is blamed


def test_report_has_use_of_sites_beside_both_simulations(outcome: Outcome) -> None:
    simulated = {name: simulate_outcome(outcome, name, 1)[0].sites for name in ("srsf", "fifo")}
    used = (*simulated["srsf"], SiteUse("cloud", "Cloud", True, 7200.0, 7000.0, 9, 3e8, 1e8))
    lines = printed(replace(outcome, uses=used)).splitlines()
    heads = lines[[line.strip() for line in lines].index("Use of sites: GPU time held, bytes copied there") + 1]
    assert cells(heads) == ["site", "srsf, measured here", "srsf, simulated", "fifo, simulated"]
    rows = {cells(line)[0]: cells(line)[1:] for line in lines if line.startswith(("edge-a", "cloud", "all", "copied"))}
    srsf, fifo = (f"{significant(simulated[name][0].gpu_seconds)} GPU s" for name in ("srsf", "fifo"))
    assert rows["edge-a"] == [srsf, srsf, fifo]
    assert rows["cloud"] == ["7,200 GPU s, 300 MB", "–", "–"], "one unit in all cells"
    assert rows["all sites"][1:] == [srsf, fifo]
    assert rows["copied but unused"] == ["100 MB", "0 MB", "0 MB"]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_use_of_sites_is_summed_over_the_statuses_of_jobs() -> None:
    spec = {"tier": "Cloud", "unlimited": True, "nodeSelector": {"zone": "cloud"}}
    sites = {name: SiteObject.model_validate({"metadata": {"name": name}, "spec": spec}) for name in ("cloud", "idle")}
    entries = [
        {"site": "cloud", "gpuSeconds": 20, "trainedGpuSeconds": 15, "chunks": 2, "copiedBytes": 64, "inVainBytes": 32},
        {"site": "gone", "gpuSeconds": 5},
    ]
    jobs = [training_job(name=name, status={"progress": {"sites": entries}}) for name in ("a", "b")]
    assert uses_of([*jobs, training_job(name="new")], sites) == (
        SiteUse("cloud", "Cloud", True, 40, 30, 4, 128, 64),
        SiteUse("gone", "Edge", False, 10),
        SiteUse("idle", "Cloud", True),
    )


def test_a_run_in_which_nothing_succeeded_has_no_comparison(outcome: Outcome) -> None:
    assert "Per job" not in printed(replace(outcome, completed={}))
