"""Three short rounds of chaos; `make chaos` runs longer ones with drawn faults."""

from pathlib import Path

import pytest

from chaos import rounds

ROUNDS = {
    101: ("forged plan", "garbled job", "refused statuses", "injected sidecar", "kill scheduler"),
    102: ("refusing kubelet", "denying webhook", "two disruption budgets", "takeover", "failed worker"),
    103: ("hanging pods", "labelled pod", "denied job", "kill etcd", "bad image"),
}
"""Faults of each seed, listed because a new fault would change those that a seed draws."""


@pytest.mark.parametrize("seed", ROUNDS)
def test_round_with_listed_faults_has_no_problem(seed: int, tmp_path: Path) -> None:
    names = ROUNDS[seed]
    size = rounds.Size(jobs=4, faults=len(names), seconds=8.0, only=names)
    outcome = rounds.run(seed, tmp_path / "round", size, print)
    assert not outcome.problems, str(outcome)
