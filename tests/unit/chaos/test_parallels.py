"""Rounds of chaos side by side, with other programs in their place."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from chaos import __main__ as chaos
from chaos import rounds
from chaos.outcomes import Outcome
from chaos.parallels import side_by_side


def program(body: str, outcome: Outcome) -> list[str]:
    return [sys.executable, "-c", f"{body}\nprint({msgspec.json.encode(outcome).decode()!r})"]


def outcome(seed: int, *problems: str) -> Outcome:
    return Outcome(seed, ["kill -9 scheduler"], 50.0, "9 pods", 20.0, list(problems))


def waiting_for(path: Path) -> str:
    """A program's body that ends when the file is there; it says that it runs by another one."""
    return (
        "import pathlib, time\n"
        f"path = pathlib.Path({str(path)!r})\n"
        "path.with_suffix('.runs').touch()\n"
        "while not path.exists(): time.sleep(0.01)"
    )


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_side_by_side_runs_at_most_the_limit_and_yields_at_end(at_once: int, tmp_path: Path) -> None:
    paths = {seed: tmp_path / f"{seed}.end" for seed in range(5)}

    def running() -> set[int]:
        return {seed for seed in paths if paths[seed].with_suffix(".runs").exists() and not paths[seed].exists()}

    def end_the_last() -> None:
        """Once as many run as may, the last of them is to end."""
        assert len(running()) <= at_once
        left = [seed for seed in paths if not paths[seed].exists()]
        if left and len(running()) == min(at_once, len(left)):
            paths[max(running())].touch()

    def command(seed: int) -> list[str]:
        return program(waiting_for(paths[seed]), outcome(seed))

    seeds = [one.seed for one in side_by_side(paths, at_once, command, end_the_last)]
    assert sorted(seeds) == list(paths)
    assert (seeds == list(paths)) is (at_once == 1)


def test_round_without_outcome_fails_and_others_continue() -> None:
    def command(seed: int) -> list[str]:
        return program("raise SystemExit(7)" if seed == 1 else "", outcome(seed))

    first, second = sorted(side_by_side([1, 2], 2, command), key=lambda one: one.seed)
    assert first.problems == ["the round's process ended with code 7 and wrote no outcome"]
    assert second == outcome(2)


def test_rounds_do_not_outlive_who_waits_for_them(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    body = f"import os, pathlib, time\npathlib.Path({str(path)!r}).write_text(str(os.getpid()))\ntime.sleep(600)"

    def interrupt() -> None:
        if path.exists() and path.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side([1], 1, lambda seed: program(body, outcome(seed)), interrupt))
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


@pytest.mark.parametrize("at_once", ["1", "2"])
def test_each_round_is_a_line_and_the_last_line_names_the_seeds(
    at_once: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rounds, "command", lambda seed, *_: program("", outcome(seed)))
    chaos.main(["--rounds", "3", "--seed", "7", "--at-once", at_once])
    printed = capsys.readouterr()
    assert printed.out == "3 rounds passed, seeds 7 to 9\n"
    for seed in (7, 8, 9):
        assert printed.err.count(f"seed {seed}: 50 s, settled in 20 s, 9 pods: kill -9 scheduler: ok\n") == 1


def test_rounds_that_fail_are_named_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(seed: int, *_: object) -> list[str]:
        return program(f"import time; time.sleep({0.3 if seed == 7 else 0})", outcome(seed, *["leak"] * (seed != 8)))

    monkeypatch.setattr(rounds, "command", command)
    with pytest.raises(SystemExit) as ended:
        chaos.main(["--rounds", "3", "--seed", "7", "--at-once", "3"])
    assert ended.value.code == "2 of 3 rounds failed, logs in build/chaos: seeds [7, 9]"
