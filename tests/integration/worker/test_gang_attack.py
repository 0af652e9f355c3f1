"""The robust rules of torch_gang over torch.distributed: five real processes, one of which attacks."""

import pytest

from gang_attack import ATTACK, run
from support.frameworks import python_of


def test_attacked_torch_gang_trains_with_robust_rules_only() -> None:
    try:
        python_of("torch")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    results = {(one["rule"], one["attack"]): one for one in run(members=5, batches=24, seed=0)}
    losses = {key: one["loss"] for key, one in results.items()}
    assert losses["mean", ATTACK] > 5 * losses["mean", 1.0]
    for rule in ("median", "trimmed-mean"):
        assert losses[rule, 1.0] < 1.1 * losses["mean", 1.0]
        assert losses[rule, ATTACK] < 1.5 * losses["mean", 1.0]
        for attack in (1.0, ATTACK):
            assert results[rule, attack]["between_members"] == 0.0
            assert results[rule, attack]["off_server"] < 1e-6
