"""Load of the machine: shares of the demo and of other programs between two readings."""

from pathlib import Path

import pytest

from tranche.demo.machine_load import MachineLoad, ProcessorTimes

NAMES = {1: "init", 10: "make (demo)", 11: "kube-apiserver", 12: "a )b", 20: "tests"}
PARENTS = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}


def reading(proc: Path, cores: str, ticks: dict[int, int]) -> ProcessorTimes:
    (proc / "stat").write_text(f"cpu  {cores}\ncpu0 1 1\n")
    for number, used in ticks.items():
        (proc / str(number)).mkdir(exist_ok=True)
        times = f"{used} 1 2 3"
        stat = f"{number} ({NAMES[number]}) S {PARENTS[number]} 1 1 0 -1 4194304 9 0 0 0 {times} 20 0 1 0 5"
        (proc / str(number) / "stat").write_text(stat)
    return ProcessorTimes.read(proc, process=10)


def test_load_is_divided_between_demo_and_other_programs(tmp_path: Path) -> None:
    before = reading(tmp_path, "100 0 100 800 0 0 0 0 0 0", {1: 5, 10: 10, 11: 20, 12: 30, 20: 90})
    after = reading(tmp_path, "300 50 150 1400 50 20 30 0 7 0", {1: 5, 10: 20, 11: 80, 12: 60, 20: 390})
    assert after.load_since(before) == MachineLoad(own=100 / 1000, other=250 / 1000)


def test_name_that_is_cut_within_a_character_is_read(tmp_path: Path) -> None:
    before = reading(tmp_path, "100 0 100 800 0 0 0 0 0 0", {10: 10})
    cut = "обучение".encode()[:15]
    (tmp_path / "13").mkdir()
    (tmp_path / "13/stat").write_bytes(b"13 (" + cut + b") S 10 1 1 0 -1 4194304 9 0 0 0 40 1 2 3 20 0 1 0 5")
    after = reading(tmp_path, "150 0 150 900 0 0 0 0 0 0", {10: 10})
    assert after.own - before.own == 46


@pytest.mark.parametrize(("own", "other", "high"), [(0.5, 0.05, False), (0.5, 0.1, True), (0.88, 0.03, True)])
def test_load_is_high_if_other_programs_or_all_use_much(own: float, other: float, high: bool) -> None:
    assert MachineLoad(own, other).is_high is high


def test_processor_times_of_this_machine_grow() -> None:
    before = ProcessorTimes.read()
    sum(range(10**6))
    after = ProcessorTimes.read()
    assert after.own >= before.own > 0
    assert after.total >= before.total > before.busy > before.own
