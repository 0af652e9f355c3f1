"""Three short rounds of chaos; `make chaos` runs long ones, as many as it is asked for."""

from pathlib import Path

import pytest

from chaos import rounds

SHORT = rounds.Size(jobs=4, faults=4, seconds=8.0)


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_everything_comes_to_a_good_end_whatever_is_broken(seed: int, tmp_path: Path) -> None:
    outcome = rounds.run(seed, tmp_path / "round", SHORT, print)
    assert not outcome.problems, str(outcome)
